"""Standard Webhooks signatures: made, and verified, against outside vectors and verifiers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets as random
import time
from pathlib import Path
from typing import Any, cast

import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from webhooks import signing
from webhooks.signing import Message, SchemeError, SignatureError, Signer, SigningSecretError, Step

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "vectors.json").read_text(encoding="utf-8")
)["standard_webhooks_v1"]
NOW = 1_700_000_000
ID = "evt_01h455vb4pex5vsknk084sn02q"
BODY = '{"type": "invoice.paid",  "amount": 1.10, "name": "Zoë ☃"}'.encode()
OLD, NEW, FOREIGN = (
    "whsec_" + base64.b64encode(hashlib.sha256(name).digest()).decode()
    for name in (b"old", b"new", b"foreign")
)


def independent(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """A verifier of its own, written from the specification alone."""
    key = base64.b64decode(secret[len("whsec_") :])
    content = headers["webhook-id"].encode() + b"." + headers["webhook-timestamp"].encode()
    digest = hmac.new(key, content + b"." + body, hashlib.sha256).digest()
    wanted = "v1," + base64.b64encode(digest).decode()
    return wanted in headers["webhook-signature"].split(" ")


def message(body: bytes = BODY, timestamp: int = NOW, message_id: str = ID) -> Message:
    return Message(message_id, timestamp, body, "https://hooks.example/in", "invoice.paid")


def signer(*secrets: str, schemes: tuple[str, ...] = ("standard",)) -> Signer:
    keys = [(f"sec_{n}", signing.import_secret(secret)) for n, secret in enumerate(secrets)]
    return Signer(schemes, keys)


def signed(*secrets: str, body: bytes = BODY, timestamp: int = NOW) -> dict[str, str]:
    return dict(signer(*secrets).headers(message(body, timestamp)))


def failed_step(headers: dict[str, Any], secrets: tuple[str, ...] = (OLD,)) -> Step:
    with pytest.raises(SignatureError) as caught:
        signing.verify(secrets, headers, BODY, NOW)
    return caught.value.step


# Signing


def test_all_eleven_vectors_are_there() -> None:
    """The vector file is the whole v1 part."""
    assert len(VECTORS) == 11
    for vector in VECTORS:
        digest = hashlib.sha256(vector["body"].encode()).hexdigest()
        assert digest == vector["body_sha256"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_published_vectors(vector: dict[str, Any]) -> None:
    """Each published vector's signature is reproduced and verified (S2, S7)."""
    body = vector["body"].encode()
    headers = {
        "webhook-id": vector["id"],
        "webhook-timestamp": str(vector["ts"]),
        "webhook-signature": vector["sig"],
    }

    given = message(body, vector["ts"], vector["id"])
    assert dict(signer(vector["secret"]).headers(given)) == headers
    signing.verify([vector["secret"]], headers, body, vector["ts"])


@given(st.binary(min_size=24, max_size=64), st.binary(max_size=300))
def test_signature_has_the_standard_form(key: bytes, body: bytes) -> None:
    """v1, a comma, 44 characters of padded standard base64 (S7)."""
    secret = "whsec_" + base64.b64encode(key).decode()

    assert re.fullmatch(r"v1,[A-Za-z0-9+/]{43}=", signed(secret, body=body)["webhook-signature"])


def test_several_keys_make_one_space_separated_list() -> None:
    """Newest first, single spaces, nothing around (S9, S10); both holders verify."""
    headers = signed(NEW, OLD)

    parts = headers["webhook-signature"].split(" ")
    assert parts == [signed(NEW)["webhook-signature"], signed(OLD)["webhook-signature"]]
    assert independent(NEW, headers, BODY)
    assert independent(OLD, headers, BODY)
    assert not independent(FOREIGN, headers, BODY)
    assert not independent(NEW, headers, BODY + b" ")


def test_header_stays_small_with_five_keys() -> None:
    """Five keys, the most that are ever live, fit well under 1 kB (W016)."""
    assert len(signed(*(signing.new_secret() for _ in range(5)))["webhook-signature"]) < 1024


def test_public_library_accepts_what_we_sign() -> None:
    """The standardwebhooks package verifies bodies of many kinds, with either key."""
    now = int(time.time())
    for body in (BODY, b"{}", b'{"a":"\\u0000"}', b'{\r\n "a": 1}\n', b'"' + b"x" * 200_000 + b'"'):
        headers = signed(NEW, OLD, body=body, timestamp=now)
        for secret in (NEW, OLD):
            assert standardwebhooks.Webhook(secret).verify(body, headers) == json.loads(body)
        with pytest.raises(standardwebhooks.WebhookVerificationError):
            standardwebhooks.Webhook(FOREIGN).verify(body, headers)


def test_id_with_a_dot_is_refused() -> None:
    """A dot in the id would let two different messages share a signature (S5)."""
    with pytest.raises(ValueError, match="holds a dot"):
        signer(NEW).headers(message(b"x", 6, "m1.5"))


def test_signing_without_a_key_is_refused() -> None:
    """An unsigned request is never made by accident (W010)."""
    with pytest.raises(SchemeError, match="standard needs a secret"):
        signer()


# Secrets


def test_new_secret_holds_32_random_bytes() -> None:
    """whsec_ and standard padded base64 of 32 bytes, never the same twice (S6, S11, W013)."""
    made = {signing.new_secret() for _ in range(100)}

    assert len(made) == 100
    for secret in made:
        assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", secret)
        assert len(base64.b64decode(secret[6:])) == 32


@pytest.mark.parametrize("size", [24, 25, 32, 33, 63, 64])
def test_keys_of_24_to_64_bytes_are_read(size: int) -> None:
    """Both bounds are inclusive (S6)."""
    key = random.token_bytes(size)
    assert signing.decode_secret("whsec_" + base64.b64encode(key).decode()) == key


def encoded(size: int) -> str:
    return "whsec_" + base64.b64encode(b"\x7f" * size).decode()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (encoded(23), "holds 23 bytes"),
        (encoded(65), "holds 65 bytes"),
        ("whsec_", "holds 0 bytes"),
        ("", "starts with whsec_"),
        ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "starts with whsec_"),
        ("WHSEC_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "starts with whsec_"),
        ("v1,whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "starts with whsec_"),
        ("whsk_nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=", "starts with whsec_"),
        ("whsec_--__--__--__--__--__--__--__--__--__--__", "URL-safe"),
        (" " + encoded(32), "starts with whsec_"),
        (encoded(32) + " ", "without blanks"),
        (encoded(32) + "\n", "without blanks"),
        (encoded(32).removesuffix("="), "padding"),
        (encoded(32) + "=", "base64"),
        (encoded(32)[:-2] + "9=", "canonical"),
        ("whsec_ééééééééééééééééééééééééééééééééé", "base64"),
        ("whsec_\ud800", "base64"),
    ],
)
def test_wrong_secret_is_named_and_not_shown(text: str, reason: str) -> None:
    """The error says what is wrong, without the secret in it (S6)."""
    with pytest.raises(SigningSecretError, match=re.escape(reason)) as caught:
        signing.decode_secret(text)

    shown = text.removeprefix("whsec_").strip()
    assert len(shown) < 8 or shown not in str(caught.value)


# Verifying


@pytest.mark.parametrize("secrets", [(NEW,), (OLD,), (FOREIGN, OLD), (OLD, NEW)])
def test_any_of_the_secrets_verifies(secrets: tuple[str, ...]) -> None:
    """During a rotation either side may hold both, the old or the new one (S10, W015)."""
    signing.verify(secrets, signed(NEW, OLD), BODY, NOW)


def test_header_names_are_read_in_any_case() -> None:
    """HTTP header names have no case."""
    signing.verify([OLD], {k.title(): v for k, v in signed(OLD).items()}, BODY, NOW)


@pytest.mark.parametrize("shift", [-300, -299, 0, 299, 300])
def test_timestamps_within_five_minutes_pass(shift: int) -> None:
    """The tolerance holds both ways (S12, W018)."""
    signing.verify([OLD], signed(OLD, timestamp=NOW + shift), BODY, NOW)


@pytest.mark.parametrize("shift", [-301, 301, 10**9])
def test_timestamps_beyond_five_minutes_fail(shift: int) -> None:
    """Too old and too far ahead both fail, though correctly signed (W018)."""
    assert failed_step(signed(OLD, timestamp=NOW + shift)) is Step.TIMESTAMP


@pytest.mark.parametrize(
    "text",
    ["abc", "NaN", "1e400", "-1", "0x10", "\u0661\u0667", "1_7", " 1", "1 ", "1.0", "9" * 13, "+1"],
)
def test_timestamp_that_is_not_whole_seconds(text: str) -> None:
    """Only ASCII digits count as a timestamp (W018)."""
    assert failed_step({**signed(OLD), "webhook-timestamp": text}) is Step.TIMESTAMP


GOOD = signed(OLD)["webhook-signature"]


@pytest.mark.parametrize(
    "text",
    ["v1", "v1,", "v1,é", "v1,AAAA", "v1a," + GOOD[3:], "v0," + GOOD[3:], GOOD[3:], GOOD[:-1],
     GOOD[:-2], GOOD + "=", GOOD + "x", " ", " " * 4000, GOOD.lower(),
     "v1, " + GOOD[3:], GOOD + ", " + GOOD[:9], "\ud800", "v1,\ud800", "v1," + "A" * 43 + "="],
)  # fmt: skip
def test_malformed_or_foreign_signatures_fail(text: str) -> None:
    """Empty, short, long and non-ASCII signatures are refused, never an exception (W019)."""
    assert failed_step({**signed(OLD), "webhook-signature": text}) is Step.SIGNATURE


@pytest.mark.parametrize(
    "text", ["v1,AAAA " + GOOD, GOOD + " ", " " + GOOD, "v1a,x  " + GOOD, GOOD + " v2,☃"]
)
def test_a_good_signature_among_others_passes(text: str) -> None:
    """What a newer scheme adds does not disturb (S9, W019)."""
    signing.verify([OLD], {**signed(OLD), "webhook-signature": text}, BODY, NOW)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
@pytest.mark.parametrize("value", [None, "", "x" * 5000, b"bytes", 7, ["x"]])
def test_missing_and_odd_headers_fail(name: str, value: Any) -> None:
    """A missing, empty, huge or non-text header is told apart from a wrong signature."""
    headers: dict[str, Any] = {**signed(OLD), name: value}
    if value is None:
        del headers[name]

    assert failed_step(headers) is Step.HEADERS


def test_header_that_is_there_twice_fails() -> None:
    """Two values for one header leave open which was signed (W019)."""
    assert failed_step({**signed(OLD), "Webhook-Id": "other"}) is Step.HEADERS


def test_changed_body_id_or_timestamp_fails() -> None:
    """Each part of the signed content counts (W001)."""
    headers = signed(OLD)
    for changed in ({"webhook-id": "other"}, {"webhook-timestamp": str(NOW + 1)}):
        assert failed_step({**headers, **changed}) is Step.SIGNATURE
    with pytest.raises(SignatureError):
        signing.verify([OLD], headers, BODY + b" ", NOW)
    assert failed_step(headers, (FOREIGN,)) is Step.SIGNATURE


@pytest.mark.parametrize("secrets", [(), ("",), ("whsec_short",)])
def test_receiver_without_a_usable_secret_accepts_nothing(secrets: tuple[str, ...]) -> None:
    """No secret configured is a failed verification, not a passed one."""
    assert failed_step(signed(OLD), secrets) is Step.SECRET


PIECES = ["v1,", "v1a,", " ", ",", ".", "=", "A" * 43 + "=", "A" * 44, GOOD[:-1], "1700000000", "é"]


@given(
    st.dictionaries(
        st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature", "Webhook-Id"]),
        st.text() | st.lists(st.sampled_from(PIECES)).map("".join),
    ),
    st.binary(),
)
def test_hostile_input_raises_nothing_else(headers: dict[str, str], body: bytes) -> None:
    """Whatever a sender puts into a request, the verifier says no and nothing else."""
    with pytest.raises(SignatureError):
        signing.verify([OLD], headers, body, NOW)


def test_verifying_is_bounded() -> None:
    """The longest header that is read at all, against five secrets, costs milliseconds."""
    many = " ".join([signed(FOREIGN)["webhook-signature"]] * 85)
    began = time.perf_counter()
    assert failed_step({**signed(OLD), "webhook-signature": many}, (OLD,) * 5) is Step.SIGNATURE

    assert time.perf_counter() - began < 0.1


def test_error_tells_step_and_reason() -> None:
    """A receiver's log line says which check failed and why."""
    with pytest.raises(SignatureError, match=r"^timestamp: the request is 400 s old; 300 s are"):
        signing.verify([OLD], signed(OLD, timestamp=NOW - 400), BODY, NOW)
    with pytest.raises(SignatureError, match=r"^timestamp: the request is 400 s ahead"):
        signing.verify([OLD], signed(OLD, timestamp=NOW + 400), BODY, NOW)
    with pytest.raises(SignatureError, match=r"^headers: webhook-id is missing$"):
        signing.verify([OLD], cast("dict[str, str]", {}), BODY, NOW)
