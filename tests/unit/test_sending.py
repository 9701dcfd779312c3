"""From a claim to a signed request, and from a response to an outcome."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from importlib.metadata import version
from ipaddress import ip_network
from typing import Any
from uuid import UUID

import jwt
import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.rawserver import RawServer, replies, reply
from webhooks import custom_headers, signing
from webhooks.attempt import Claim, ErrorClass, Headers, Outcome, Target, Timings, Withheld
from webhooks.secrets import Keyring, Place
from webhooks.sending import Sender, outcome, parse_retry_after
from webhooks.settings import Settings
from webhooks.transports.base import Request, Response
from webhooks.transports.curl import CurlTransport

TENANT, ENDPOINT = UUID(int=1), UUID(int=2)
# The example of the TypeID specification.
EVENT = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
DELIVERY = UUID(int=4)
KEYRING = Keyring.parse(Keyring.generate("test"))
# Fixed, so that an independent HMAC can be computed from their bytes.
KEYS = {name: hashlib.sha256(name.encode()).digest() for name in ("new", "old")}
PAYLOAD = '{"bb":1,"a":1.10,"a":2.50,"z":1e5, "text":"Привет 😱"}'.encode()
NOW = 1_700_000_000.75
URL = "https://receiver.example/hook"


def stored(name: str, row: int, tenant: UUID = TENANT) -> tuple[UUID, str]:
    """A signing secret as the database holds it."""
    text = "whsec_" + base64.b64encode(KEYS[name]).decode()
    place = Place("signing_secrets", tenant, UUID(int=row), "ciphertext")
    return UUID(int=row), KEYRING.encrypt(place, text.encode())


def claim(**changes: Any) -> Claim:
    target = Target(
        ENDPOINT, TENANT, URL, timeout_s=changes.pop("timeout_s", 20.0),
        secrets=changes.pop("secrets", (stored("new", 11), stored("old", 12))),
        schemes=changes.pop("schemes", ("standard",)), headers=changes.pop("headers", None),
    )  # fmt: skip
    values: dict[str, Any] = {
        "delivery_id": DELIVERY, "shard": 0, "tenant_id": TENANT, "event_id": EVENT,
        "endpoint_id": ENDPOINT, "event_type": "invoice.paid", "attempt": 3, "tries": 2,
        "lost": 0, "trigger": "schedule", "payload": PAYLOAD, "target": target,
    }  # fmt: skip
    return Claim(**{**values, **changes})


@pytest.fixture
def sender() -> Sender:
    return Sender(Settings(connect_timeout_s=5.0), KEYRING)


def prepared(sender: Sender, **changes: Any) -> Request:
    made = sender.prepare(claim(**changes), lambda: NOW)
    assert isinstance(made, Request)
    return made


def response(status: int | None = 200, **changes: Any) -> Response:
    request = Request(DELIVERY, URL, (("webhook-id", "evt_x"),), b"{}", 5.0, 20.0)
    values: dict[str, Any] = {
        "request": request, "error": None, "detail": "", "started": 10.0, "finished": 10.5,
        "status_code": status,
    }  # fmt: skip
    return Response(**{**values, **changes})


# Preparing


def test_request_is_the_documented_one(sender: Sender) -> None:
    """Headers of the design, each once; the payload's bytes as stored (W001, W007, W021, W025)."""
    request = prepared(sender)

    headers = dict(request.headers)
    assert [name for name, _ in request.headers] == [
        "Content-Type", "User-Agent", "webhook-id", "webhook-timestamp", "webhook-signature",
        "webhook-event-type", "webhook-attempt",
    ]  # fmt: skip
    assert headers["Content-Type"] == "application/json"
    assert headers["User-Agent"] == f"Webhooks/{version('webhooks-platform')}"
    assert headers["webhook-timestamp"] == "1700000000"
    assert headers["webhook-event-type"] == "invoice.paid"
    assert headers["webhook-attempt"] == "3"
    assert request.body == PAYLOAD
    assert (request.url, request.key, request.timeout_s) == (URL, DELIVERY, 20.0)
    assert request.connect_timeout_s == 5.0


def test_signature_is_that_of_an_independent_hmac(sender: Sender) -> None:
    """Both keys sign id.timestamp.body, the newest first (S2, S10, W013)."""
    headers = dict(prepared(sender).headers)

    content = f"{headers['webhook-id']}.1700000000.".encode() + PAYLOAD
    expected = [
        "v1," + base64.b64encode(hmac.new(KEYS[name], content, "sha256").digest()).decode()
        for name in ("new", "old")
    ]
    assert headers["webhook-signature"] == " ".join(expected)


def test_message_id_is_the_events(sender: Sender) -> None:
    """The same over attempts and replays, of the public form, without a dot (S4, S5)."""
    first, later = prepared(sender), prepared(sender, attempt=9, delivery_id=UUID(int=99))

    message_id = dict(first.headers)["webhook-id"]
    assert message_id == "evt_01h455vb4pex5vsknk084sn02q"
    assert dict(later.headers)["webhook-id"] == message_id
    other = prepared(sender, event_id=UUID(int=5))
    assert dict(other.headers)["webhook-id"] != message_id


def test_each_attempt_is_signed_anew(sender: Sender) -> None:
    """A retry carries its own time and signature, the same id and body (S3, W009)."""
    first = prepared(sender)
    second = sender.prepare(claim(attempt=4), lambda: NOW + 7200)
    assert isinstance(second, Request)

    before, after = dict(first.headers), dict(second.headers)
    assert int(after["webhook-timestamp"]) - int(before["webhook-timestamp"]) == 7200
    assert after["webhook-signature"] != before["webhook-signature"]
    assert (after["webhook-id"], second.body) == (before["webhook-id"], first.body)


def test_product_headers_are_small_whatever_the_event(sender: Sender) -> None:
    """Nothing of the payload is copied into headers (W078)."""
    request = prepared(sender, payload=b'{"tags": "' + b"t" * 200_000 + b'"}')
    assert sum(len(name) + len(value) + 4 for name, value in request.headers) < 1024


def test_connect_timeout_is_within_the_endpoints_timeout(sender: Sender) -> None:
    """An endpoint with a short timeout gets no longer connect timeout."""
    request = prepared(sender, timeout_s=1.0)
    assert (request.timeout_s, request.connect_timeout_s) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"target": None}, "the endpoint does not exist any more"),
        ({"payload": None}, "the event's payload is not stored any more"),
        ({"secrets": ((UUID(int=11), "garbage"),)}, "the signing secret cannot be used"),
        ({"secrets": ((UUID(int=13), stored("new", 11)[1]),)}, "does not decrypt"),
        ({"secrets": (stored("new", 11, UUID(int=77)),)}, "does not decrypt"),
    ],
    ids=["target", "payload", "garbage", "moved row", "other tenant"],
)
def test_what_cannot_be_sent_is_an_internal_outcome(
    sender: Sender, changes: dict[str, Any], reason: str
) -> None:
    """It ends with a plain text, not an exception, and is not retried."""
    result = sender.prepare(claim(**changes), lambda: NOW)

    assert isinstance(result, Outcome)
    assert (result.error, result.retryable) == (ErrorClass.INTERNAL, False)
    assert reason in result.detail
    assert result.started == result.finished == pytest.approx(time.monotonic(), abs=5)
    assert not isinstance(result, Withheld)


@pytest.mark.parametrize(
    "changes",
    [
        {"secrets": (stored("new", 11), (UUID(int=12), "v1:gone:AAAA:AAAA"))},
        {"headers": "v1:gone:AAAA:AAAA"},
    ],
    ids=["one of two secrets", "custom headers"],
)
def test_what_another_process_may_decrypt_is_withheld(
    sender: Sender, changes: dict[str, Any]
) -> None:
    """A key that the keyring lacks is no fault of the delivery; which one is told (W183)."""
    result = sender.prepare(claim(**changes), lambda: NOW)

    assert isinstance(result, Withheld)
    assert ("'gone'" in result.detail, result.delivered) == (True, False)


def test_stored_secret_of_the_wrong_form_is_named_not_shown(sender: Sender) -> None:
    """A secret that decrypts to something else is told, without its text."""
    place = Place("signing_secrets", TENANT, UUID(int=11), "ciphertext")
    secret = (UUID(int=11), KEYRING.encrypt(place, b"canary-pa55"))
    result = sender.prepare(claim(secrets=(secret,)), lambda: NOW)

    assert isinstance(result, Outcome)
    assert result.error is ErrorClass.INTERNAL
    assert "needs a secret of the kind" in result.detail
    assert "canary" not in result.detail


def test_secrets_are_decrypted_once(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are kept, by row and ciphertext: a rotated or moved secret is read anew."""
    calls: list[Place] = []
    decrypt = Keyring.decrypt

    def counting(keyring: Keyring, place: Place, text: str) -> bytes:
        calls.append(place)
        return decrypt(keyring, place, text)

    monkeypatch.setattr(Keyring, "decrypt", counting)
    one = (stored("new", 11),)
    for _ in range(5):
        prepared(sender, secrets=one)
    assert len(calls) == 1
    prepared(sender, secrets=(stored("old", 12), *one))
    assert len(calls) == 3
    moved = ((UUID(int=13), one[0][1]),)
    assert isinstance(sender.prepare(claim(secrets=moved), lambda: NOW), Outcome)


def with_target(**changes: Any) -> Claim:
    """A claim whose endpoint has other values."""
    made = claim()
    assert made.target is not None
    return replace(made, target=replace(made.target, **changes))


def sealed(headers: list[list[str]], endpoint: UUID = ENDPOINT) -> str:
    """Custom headers as the database holds them."""
    place = Place("endpoints", TENANT, endpoint, "headers")
    return KEYRING.encrypt(place, json.dumps(headers).encode())


CUSTOM = [["X-Tenant", "a"], ["Authorization", "Bearer canary"], ["x-MiXed", "b:c"]]


def test_custom_headers_come_after_ours(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order and case; decrypted once for all deliveries."""
    wanted = with_target(headers=sealed(CUSTOM))
    made = [sender.prepare(wanted, lambda: NOW)]
    monkeypatch.delattr(Keyring, "decrypt")
    made.append(sender.prepare(wanted, lambda: NOW))

    ours = [
        "Content-Type", "User-Agent", "webhook-id", "webhook-timestamp", "webhook-signature",
        "webhook-event-type", "webhook-attempt",
    ]  # fmt: skip
    for request in made:
        assert isinstance(request, Request)
        assert [name for name, _ in request.headers[:-3]] == ours
        assert request.headers[-3:] == tuple(map(tuple, CUSTOM))


@pytest.mark.parametrize(
    "stored",
    ["garbage", sealed(CUSTOM, UUID(int=9)), sealed([["X-A"]])],
    ids=["garbage", "another endpoint's", "no pairs"],
)
def test_custom_headers_that_cannot_be_read_are_never_left_out(sender: Sender, stored: str) -> None:
    """A receiver that asks for a token would refuse the request: nothing is sent without it."""
    result = sender.prepare(with_target(headers=stored), lambda: NOW)

    assert isinstance(result, Outcome)
    assert result.error is ErrorClass.INTERNAL
    assert "the custom headers cannot be used" in result.detail
    assert "canary" not in result.detail


def test_an_endpoints_own_ca_is_passed_on(sender: Sender) -> None:
    """To the transport, for this request alone."""
    request = sender.prepare(with_target(ca_pem="pem"), lambda: NOW)
    assert isinstance(request, Request)
    assert request.ca_pem == "pem"
    assert prepared(sender).ca_pem is None


def test_no_secret_header_is_recorded() -> None:
    """Its name is, with a mask; our own and those that are no secret as they were sent."""
    headers = (("webhook-signature", "v1,x"), *((name, value) for name, value in CUSTOM))
    answer = response()
    found = outcome(replace(answer, request=replace(answer.request, headers=headers)))

    assert found.request_headers == (
        ("webhook-signature", "v1,x"),
        ("X-Tenant", "a"),
        ("Authorization", "•••"),
        ("x-MiXed", "b:c"),
    )


def test_every_header_of_ours_is_reserved() -> None:
    """Whatever the schemes: a custom one of the same name would be there twice."""
    keys = [signing.new_secret(kind) for kind in (signing.Kind.HMAC, signing.Kind.ED25519)]
    rows = []
    for row, text in enumerate(keys, 11):
        place = Place("signing_secrets", TENANT, UUID(int=row), "ciphertext")
        rows.append((UUID(int=row), KEYRING.encrypt(place, text.encode())))
    target = with_target(secrets=tuple(rows), schemes=tuple(signing.Scheme))
    settings = Settings(ownership_proof="options", origin="hooks.example")
    request = Sender(settings, KEYRING).prepare(target, lambda: NOW)

    assert isinstance(request, Request)
    names = [name for name, _ in request.headers]
    assert {"Stripe-Signature", "Signature-Input", "svix-id", "webhook-jwt"} <= set(names)
    for name in ("Host", "Content-Length", *names):
        with pytest.raises(custom_headers.HeaderError, match="reserved"):
            custom_headers.check({name: "v"})


def test_what_arrives_on_the_wire_verifies(sender: Sender) -> None:
    """The public library and a plain HMAC accept the raw bytes received (W001, W010, W025)."""
    settings = Settings(allow_http=True, allow_cidrs=(ip_network("127.0.0.1"),))
    transport = CurlTransport(settings)
    with RawServer(replies(reply(200))) as server:
        made = sender.prepare(claim(), time.time)
        assert isinstance(made, Request)
        transport.start(replace(made, url=server.url("/hook")))
        (result,) = map(outcome, transport.wait(5))
    transport.close()

    assert result.delivered
    (received,) = server.requests
    headers = {name: value for name, value in received.headers if name.startswith("webhook-")}
    for name, key in KEYS.items():
        secret = "whsec_" + base64.b64encode(key).decode()
        standardwebhooks.Webhook(secret).verify(received.body, headers, json_parse=False)
        content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode()
        for body, good in ((received.body, True), (received.body[:-1] + b" ", False)):
            digest = hmac.new(key, content + body, "sha256").digest()
            wanted = "v1," + base64.b64encode(digest).decode()
            assert (wanted in headers["webhook-signature"].split(" ")) is good, name
    assert received.body == PAYLOAD


# Classifying


@pytest.mark.parametrize("status", [200, 201, 202, 203, 204, 205, 206, 226, 299])
def test_every_2xx_is_delivered(status: int) -> None:
    """All 2xx count, whatever the body says (W054, W055)."""
    for body in (b"", b"<html>", b"{bad", b'"\\ud800"', b"\xff\xfe\x00"):
        result = outcome(response(status, body=body))
        assert (result.delivered, result.error, result.status_code) == (True, None, status)
        assert (result.body, result.retry_after_s) == (body, None)


def test_note_on_a_delivered_response_is_kept() -> None:
    """Trouble in the body is shown, not counted (W057)."""
    result = outcome(response(200, detail="the response body is incomplete: x", truncated=True))

    assert result.delivered
    assert (result.detail, result.truncated) == ("the response body is incomplete: x", True)


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 306, 307, 308, 399])
def test_redirects_fail_and_show_where_to(status: int) -> None:
    """3xx is a failure of its own class with Location in its text (W049)."""
    result = outcome(response(status, headers=(("LOCATION", "http://127.0.0.1/final"),)))

    assert (result.error, result.retryable) == (ErrorClass.REDIRECT, True)
    assert "http://127.0.0.1/final" in result.detail
    assert str(status) in result.detail
    assert "redirect, which" in outcome(response(status)).detail


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, ErrorClass.HTTP_4XX), (401, ErrorClass.HTTP_4XX), (404, ErrorClass.HTTP_4XX),
        (410, ErrorClass.HTTP_4XX), (413, ErrorClass.HTTP_4XX), (429, ErrorClass.HTTP_4XX),
        (431, ErrorClass.HTTP_4XX), (499, ErrorClass.HTTP_4XX), (500, ErrorClass.HTTP_5XX),
        (502, ErrorClass.HTTP_5XX), (504, ErrorClass.HTTP_5XX), (520, ErrorClass.HTTP_5XX),
        (599, ErrorClass.HTTP_5XX),
    ],
)  # fmt: skip
def test_4xx_and_5xx_fail(status: int, error: ErrorClass) -> None:
    """Every other status fails; only 410 is final (W073, W075, W076, S15)."""
    result = outcome(response(status))

    assert (result.error, result.status_code) == (error, status)
    assert result.retryable is (status != 410)
    assert str(status) in result.detail


@pytest.mark.parametrize(
    "error", ["dns", "connect", "tls", "timeout", "protocol", "blocked_address", "invalid_url",
              "internal"],
)  # fmt: skip
def test_transport_errors_pass_through(error: str) -> None:
    """What the transport found is the outcome, even when a status had come."""
    result = outcome(response(200, error=ErrorClass(error), detail="why"))

    assert (result.error, result.detail, result.status_code) == (ErrorClass(error), "why", 200)


def test_no_status_and_no_error_is_a_protocol_error() -> None:
    """A transport that knows neither has not delivered anything (W072)."""
    assert outcome(response(None)).error is ErrorClass.PROTOCOL


def test_outcome_carries_the_whole_attempt() -> None:
    """Times, peer, URL, headers and body of the attempt are all there to be recorded."""
    timings = Timings(1.0, 2.0, 3.0, 4.0, 5.0)
    result = outcome(response(500, peer="1.1.1.1", timings=timings, body=b"b", truncated=True))

    assert (result.started, result.finished, result.peer) == (10.0, 10.5, "1.1.1.1")
    assert (result.url, result.timings) == (URL, timings)
    assert (result.request_headers, result.body) == ((("webhook-id", "evt_x"),), b"b")
    assert result.truncated


def test_response_headers_are_bounded() -> None:
    """At most 50 of at most 1 kB, without what PostgreSQL cannot store (W063)."""
    headers: Headers = (
        ("X-Long", "l" * 5000),
        ("X-Nul", "a\0b"),
        *((f"X-{n}", "v") for n in range(99)),
    )
    kept = outcome(response(200, headers=headers)).response_headers

    assert len(kept) == 50
    assert all(len(name) + len(value) <= 1024 for name, value in kept)
    assert kept[0][1].startswith("lll")
    assert kept[1] == ("X-Nul", "a\ufffdb")
    result = outcome(response(302, headers=(("Location", "\0" + "x" * 9000),)))
    assert len(result.detail) <= 500
    assert "\0" not in result.detail


# Retry-After


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_retry_after_of_throttling_statuses_is_read(status: int) -> None:
    """429 and 502 to 504 may ask for time (row 53)."""
    result = outcome(response(status, headers=(("retry-AFTER", "120"),)))
    assert result.retry_after_s == 120
    assert outcome(response(status)).retry_after_s is None


@pytest.mark.parametrize("status", [200, 301, 400, 410, 500])
def test_retry_after_of_other_statuses_is_ignored(status: int) -> None:
    """Only throttling statuses throttle."""
    headers = (("Retry-After", "120"),)
    assert outcome(response(status, headers=headers)).retry_after_s is None


# 2026-11-30 12:00:00 UTC
THEN = 1_796_040_000.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("1", 1.0),
        ("0000000120", 120.0),
        ("86400", 86_400.0),
        ("86401", 86_400.0),
        ("31536000", 86_400.0),
        ("9999999999", 86_400.0),
        ("Mon, 30 Nov 2026 12:00:30 GMT", 30.0),
        ("Mon, 30 Nov 2026 12:00:30 -0000", 30.0),
        ("Mon, 30 Nov 2026 12:00:30 +0000", 30.0),
        ("Monday, 30-Nov-26 12:00:30 GMT", 30.0),
        ("Mon Nov 30 12:00:30 2026", 30.0),
        ("Tue Dec  1 12:00:00 2026", 86_400.0),
        ("Wed, 21 Oct 2099 07:28:00 GMT", 86_400.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400.0),
        ("Mon, 30 Nov 2026 11:59:59 GMT", 0.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 0.0),
    ],
)
def test_retry_after_seconds_and_dates(text: str, seconds: float) -> None:
    """Seconds and all three date forms, as UTC, clamped to a day (W081, W083)."""
    assert parse_retry_after(text, THEN) == seconds


@pytest.mark.parametrize(
    "text",
    ["", " ", "-5", "+5", "1.5", "1e309", "1e3", "nan", "inf", "0x10", "\uff11\uff12\uff10", "1 2",
     "1_0", "12s", "10" * 10, "soon", "Mon, 30 Feb", "Mon, 32 Nov 2026 12:00:30 GMT",
     "Mon, 30 Xxx 2026 12:00:30 GMT", "Mon, 30 Nov 2026 12:00:30 +0200",
     "Mon, 30 Nov 2026 12:00:30", "2026-11-30T12:00:30Z", "Mon, 30 Nov 20266 12:00:30 GMT",
     "x" * 100_000],
    ids=lambda text: repr(text[:40]),
)  # fmt: skip
def test_retry_after_garbage_is_ignored(text: str) -> None:
    """What is neither is as if it were not there (row 54)."""
    assert parse_retry_after(text, THEN) is None


@given(
    st.text()
    | st.from_regex(r"[A-Z][a-z]{2}, [0-9]{2} Nov [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT")
)
def test_retry_after_never_raises(text: str) -> None:
    """Any header value is read or ignored, within a day."""
    seconds = parse_retry_after(text, THEN)
    assert seconds is None or 0 <= seconds <= 86_400


def test_a_token_names_who_sent_it() -> None:
    """The installation's own name where it has one."""
    place = Place("signing_secrets", TENANT, UUID(int=11), "ciphertext")
    text = signing.new_secret(signing.Kind.ED25519)
    secret = (UUID(int=11), KEYRING.encrypt(place, text.encode()))
    named = Sender(Settings(origin="hooks.example.com"), KEYRING)

    found = dict(prepared(named, secrets=(secret,), schemes=("jwt",)).headers)

    claims = jwt.decode(found["webhook-jwt"], options={"verify_signature": False})
    assert claims["iss"] == "hooks.example.com"
