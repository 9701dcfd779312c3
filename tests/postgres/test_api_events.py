"""POST /api/v1/events, /events/batch; GET /events/<id> and its payload."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from flask import Flask
from werkzeug.test import TestResponse

from tests.api import Api, errors
from tests.queue import one
from webhooks import keys
from webhooks.verified_keys import VerifiedKeys


@pytest.fixture
def api(app: Flask) -> Api:
    """A caller with a key of all tenants."""
    return Api(app)


@pytest.fixture
def woken(app: Flask) -> list[bool]:
    """Grows with each wake-up sent to the workers: whether it tells of a large fan-out."""
    calls: list[bool] = []

    class Recorder:
        def notify(self, *, fan_out: bool) -> None:
            calls.append(fan_out)

    app.extensions["webhooks_notifier"] = Recorder()
    return calls


def envelope(payload: bytes, type: bytes = b"invoice.paid") -> bytes:
    return b'{"type":"' + type + b'","payload":' + payload + b"}"


def stored(connection: psycopg.Connection) -> list[bytes]:
    return [row[0] for row in connection.execute("SELECT payload FROM webhooks.events ORDER BY id")]


def test_an_event_is_accepted(api: Api, connection: psycopg.Connection, woken: list[bool]) -> None:
    """202 tells the id, how many endpoints get it, and the workers are woken."""
    api.endpoint("invoice.*")
    api.endpoint("*")
    api.endpoint("order.*")

    answer = api.post("/events", {"type": "invoice.paid", "payload": {"id": 1}})

    assert answer.status_code == 202
    assert answer.json is not None
    assert answer.json.keys() == {"id", "deliveries", "duplicate"}
    assert answer.json["id"].startswith("evt_")
    assert (answer.json["deliveries"], answer.json["duplicate"]) == (2, False)
    assert one(connection, "SELECT count(*) FROM webhooks.deliveries") == 2
    assert woken == [False]


def test_nobody_is_woken_for_an_event_without_endpoints(api: Api, woken: list[bool]) -> None:
    """An event that nobody subscribes to is stored; 0 deliveries tell so."""
    answer = api.post("/events", {"type": "invoice.paid", "payload": 1})

    assert (answer.status_code, answer.json and answer.json["deliveries"]) == (202, 0)
    assert woken == []


PAYLOADS = (
    b'{"bb":1, "a":1.10,\t"z":1e5 }',
    b'{"a":1,"a":2}',
    b'{"s":"a\\u0000b","k\\u0000":1}',
    b'{"id":50755254975729665,"u":18446744073709551616}',
    b'{"p":1.10,"e":1e5,"z":-0,"x":1E400,"d":123456789012345678901234567890.5}',
    b'"\\ud83d\\ude00 \\u00e9 \\/ \xf0\x9f\x98\x80"',
    b"null",
    b"[]",
    b'""',
    b"0",
    b"1" * 4301,
    b"[" * 100 + b"]" * 100,
    b'"\xe2\x80\xa8\xe2\x80\xa9"',
    b'{"\\u0061":"\x7f"}',
)


def test_the_payload_is_kept_byte_for_byte(api: Api, connection: psycopg.Connection) -> None:
    """Any JSON value, as it was spelled (W003, W006, W007, W191, W193, W194, W196)."""
    for payload in PAYLOADS:
        sent = b'{ "payload" : ' + payload + b' , "type":"invoice.paid"}\r\n'
        answer = api.post("/events", sent)
        assert answer.status_code == 202, payload
        assert answer.json is not None
        shown = api.get(f"/events/{answer.json['id']}/payload")
        assert (shown.data, shown.content_type) == (payload, "application/json")

    assert stored(connection) == list(PAYLOADS)


BAD = (
    (b"", 400, "body"),
    (b" ", 400, "body"),
    (b"{", 400, "body"),
    (envelope(b"1") + b"x", 400, "body"),
    (b"\xef\xbb\xbf" + envelope(b"1"), 400, "body"),
    (envelope(b"1").decode().encode("utf-16"), 400, "body"),
    (envelope(b"NaN"), 400, "body"),
    (envelope(b"Infinity"), 400, "body"),
    (envelope(b"01"), 400, "body"),
    (envelope(b"1."), 400, "body"),
    (envelope(b"'a'"), 400, "body"),
    (envelope(b"[1,]"), 400, "body"),
    (envelope(b'"\\x"'), 400, "body"),
    (envelope(b'"\\ud800"'), 400, "body"),
    (envelope(b'"a\x01"'), 400, "body"),
    (envelope(b'"\xff"'), 400, "payload"),
    (envelope(b'"\xed\xa0\x80"'), 400, "payload"),
    (envelope(b'{"\xff":1}'), 400, "payload"),
    (envelope(b"1", b"\xff"), 400, "body"),
    (envelope(b"[" * 10_000 + b"]" * 10_000), 422, "body"),
    (envelope(b"[" * 100_000), 422, "body"),
    (b"[]", 422, "body"),
    (b"null", 422, "body"),
    (b'"x"', 422, "body"),
    (b"{}", 422, "type"),
    (b'{"type":"a"}', 422, "payload"),
    (b'{"payload":1}', 422, "type"),
    (envelope(b"1", b""), 422, "type"),
    (envelope(b"1", b"a b"), 422, "type"),
    (envelope(b"1", b"a\\u0000"), 422, "type"),
    (envelope(b"1", b"x" * 256), 422, "type"),
    (b'{"type":null,"payload":1}', 422, "type"),
    (b'{"type":["a"],"payload":1}', 422, "type"),
    (b'{"type":"a","payload":1,"tenant":"nobody"}', 422, "tenant"),
    (b'{"type":"a","payload":1,"tenant":"\\u0000"}', 422, "tenant"),
    (b'{"type":"a","payload":1,"tenant":1}', 422, "tenant"),
    (b'{"type":"a","payload":1,"idempotency_key":""}', 422, "idempotency_key"),
    (b'{"type":"a","payload":1,"idempotency_key":" "}', 422, "idempotency_key"),
    (b'{"type":"a","payload":1,"idempotency_key":"\\u0000"}', 422, "idempotency_key"),
    (b'{"type":"a","payload":1,"idempotency_key":5}', 422, "idempotency_key"),
    (b'{"type":"a","payload":1,"paylod":2}', 422, "paylod"),
    (b'{"type":"a","payload":1,"\\u0000":2}', 422, "\0"),
)


def test_bad_input_is_a_problem_that_names_the_field(
    api: Api, connection: psycopg.Connection
) -> None:
    """Never a 5xx, never half a store (W191, W197, W202)."""
    answers = []
    for body, _, _ in BAD:
        answer = api.post("/events", body)
        answers.append((body, answer.status_code, *errors(answer)))

    assert answers == list(BAD)
    assert stored(connection) == []


def test_an_unknown_field_is_answered_with_the_nearest(api: Api) -> None:
    """A typing mistake costs one look."""
    answer = api.post("/events", {"type": "a", "payload": 1, "idempotencykey": "k"})

    assert "did you mean idempotency_key?" in errors(answer)["idempotencykey"]


@pytest.mark.parametrize("fill", ["x", "\U0001f600"], ids=["ASCII", "four bytes each"])
def test_the_limit_counts_the_bytes_of_the_payload(
    api: Api, connection: psycopg.Connection, fill: str
) -> None:
    """262,144 bytes are taken whole; one more is 413 with the number (W199)."""
    size = len(fill.encode())
    text = fill * ((262_144 - 2) // size)
    text += "x" * (262_144 - 2 - len(text.encode()))
    longest = b'"' + text.encode() + b'"'

    taken = api.post("/events", envelope(longest))
    refused = api.post("/events", envelope(longest[:-1] + b'x"'))

    assert taken.status_code == 202
    assert stored(connection) == [longest]
    assert refused.status_code == 413
    assert "262144" in errors(refused)["payload"]


def test_a_body_past_all_limits_is_not_read(api: Api) -> None:
    """A body that cannot hold an acceptable payload is 413 by its length alone."""
    answer = api.post("/events", b" " * 400_000)

    assert answer.status_code == 413
    assert list(errors(answer)) == ["body"]


@pytest.mark.parametrize(
    "media_type",
    [
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json; charset=latin1",
        "application/cloudevents+json",
        "application/x-ndjson",
    ],
)
def test_another_media_type_is_refused(
    api: Api, connection: psycopg.Connection, media_type: str
) -> None:
    """415 names what is expected (W155)."""
    answer = api.call("POST", "/events", envelope(b"1"), headers={"Content-Type": media_type})

    assert answer.status_code == 415
    assert "application/json" in errors(answer)["Content-Type"]
    assert stored(connection) == []


@pytest.mark.parametrize("media_type", ["application/json; charset=UTF-8", "Application/JSON"])
def test_utf_8_may_be_said(api: Api, media_type: str) -> None:
    """JSON is UTF-8 whether or not the header says so."""
    answer = api.call("POST", "/events", envelope(b"1"), headers={"Content-Type": media_type})

    assert answer.status_code == 202


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "gzip, gzip"])
def test_a_compressed_body_is_refused(api: Api, encoding: str) -> None:
    """415: nothing is inflated, so there is no bomb (W156)."""
    answer = api.post("/events", envelope(b"1"), Content_Encoding=encoding)

    assert answer.status_code == 415
    assert list(errors(answer)) == ["Content-Encoding"]


def test_an_idempotency_key_makes_asking_again_safe(
    api: Api, connection: psycopg.Connection, woken: list[bool]
) -> None:
    """Header and field mean the same; the second answer is the first one, marked."""
    api.endpoint("*")

    first = api.post("/events", envelope(b"1"), Idempotency_Key="k")
    again = api.post("/events", {"type": "invoice.paid", "payload": 1, "idempotency_key": "k"})

    assert first.json is not None
    assert again.status_code == 202
    assert again.json == {**first.json, "duplicate": True}
    assert len(stored(connection)) == 1
    assert woken == [False]


def test_a_used_key_with_another_body_is_a_conflict(
    api: Api, connection: psycopg.Connection
) -> None:
    """409 names the key; the second event is not stored."""
    api.post("/events", envelope(b"1"), Idempotency_Key="k")

    answer = api.post("/events", envelope(b"2"), Idempotency_Key="k")

    assert answer.status_code == 409
    assert list(errors(answer)) == ["idempotency_key"]
    assert stored(connection) == [b"1"]


def test_two_different_keys_in_one_request_are_refused(api: Api) -> None:
    """The header and the field may both be given only when they are equal."""
    body = {"type": "a", "payload": 1, "idempotency_key": "k"}

    assert api.post("/events", body, Idempotency_Key="k").status_code == 202
    answer = api.post("/events", body, Idempotency_Key="other")
    assert answer.status_code == 422
    assert list(errors(answer)) == ["idempotency_key"]


@pytest.mark.parametrize("key", ["x" * 256, " ", "x" * 10_000], ids=["256", "blank", "10000"])
def test_a_bad_key_in_the_header_is_refused(api: Api, key: str) -> None:
    """422 as for the field (W143)."""
    answer = api.post("/events", envelope(b"1"), Idempotency_Key=key)

    assert answer.status_code == 422
    assert list(errors(answer)) == ["idempotency_key"]


def test_the_same_key_is_another_one_for_another_tenant(
    app: Flask, api: Api, connection: psycopg.Connection
) -> None:
    """Tenants cannot see or use up each other's idempotency keys."""
    acme = Api(app, "acme")

    api.post("/events", envelope(b"1"), Idempotency_Key="k")
    answer = acme.post("/events", envelope(b"2"), Idempotency_Key="k")

    assert answer.status_code == 202
    assert sorted(stored(connection)) == [b"1", b"2"]


def test_a_key_of_all_tenants_names_the_tenant(
    app: Flask, api: Api, connection: psycopg.Connection
) -> None:
    """``tenant`` chooses whose event it is; null is as if it were left out."""
    Api(app, "acme")

    api.event(tenant="acme")
    api.event(tenant=None)

    keys = connection.execute(
        "SELECT t.key FROM webhooks.events e JOIN webhooks.tenants t ON t.id = e.tenant_id "
        "ORDER BY e.id"
    ).fetchall()
    assert keys == [("acme",), ("default",)]


def test_a_key_of_one_tenant_may_name_only_its_own(
    app: Flask, connection: psycopg.Connection
) -> None:
    """Its own name is allowed; another's, existing or not, is 403 and stores nothing."""
    acme = Api(app, "acme")

    assert acme.event(tenant="acme")
    for other in ("default", "nobody"):
        answer = acme.post("/events", {"type": "a", "payload": 1, "tenant": other})
        assert answer.status_code == 403
        assert list(errors(answer)) == ["tenant"]
    assert len(stored(connection)) == 1


def test_an_event_is_shown_with_its_deliveries(api: Api) -> None:
    """Metadata and the first page of deliveries; the payload has its own address."""
    endpoint = api.endpoint("*")
    event = api.event(payload={"a": 1})

    shown = api.get(f"/events/{event}").json

    assert shown is not None
    assert (shown["id"], shown["type"], shown["tenant"]) == (event, "invoice.paid", "default")
    assert shown["payload_bytes"] == len('{"a": 1}')
    assert [d["endpoint"] for d in shown["deliveries"]["data"]] == [endpoint]
    assert shown["deliveries"]["next"] is None


@pytest.mark.parametrize("path", ["/events/{}", "/events/{}/payload"])
def test_another_tenants_event_is_not_there(app: Flask, api: Api, path: str) -> None:
    """404, as for an id that never was (W158)."""
    acme = Api(app, "acme")
    event = api.event()

    assert api.get(path.format(event)).status_code == 200
    for missing in (event, "evt_" + "7" * 26, "evt_x", "%00", "%ff", "x" * 3000):
        answer = acme.get(path.format(missing))
        assert answer.status_code == 404
        assert errors(answer) == {}


def test_a_batch_answers_each_item_in_order(
    api: Api, connection: psycopg.Connection, woken: list[bool]
) -> None:
    """The valid ones are stored, the others reported; none keeps another back (W161)."""
    api.endpoint("*")
    items: list[Any] = [{"type": "a", "payload": n} for n in range(100)]
    items[40] = {"type": "", "payload": 40}
    items[41] = {"payload": 41}
    items[42] = 42

    answer = api.post("/events/batch", items)

    assert answer.status_code == 200
    assert answer.json is not None
    data = answer.json["data"]
    assert [item["status"] for item in data] == [202] * 40 + [422] * 3 + [202] * 57
    assert [item["errors"][0]["field"] for item in data[40:43]] == ["type", "type", "body"]
    assert all(item["deliveries"] == 1 and not item["duplicate"] for item in data[:40])
    assert stored(connection) == [str(n).encode() for n in range(100) if n not in (40, 41, 42)]
    assert woken == [False]


def test_a_batch_may_be_lines(api: Api, connection: psycopg.Connection) -> None:
    """NDJSON: one event a line, blank lines left out, a broken line is its own error."""
    lines = [
        b'{"type":"a","payload":{ "a" : 1.10 }}',
        b"",
        b"{broken",
        b'{"type":"b","payload":2}\r',
        b"",
    ]

    answer = api.call(
        "POST",
        "/events/batch",
        b"\n".join(lines),
        headers={"Content-Type": "application/x-ndjson"},
    )

    assert answer.json is not None
    assert [item["status"] for item in answer.json["data"]] == [202, 400, 202]
    assert stored(connection) == [b'{ "a" : 1.10 }', b"2"]


def test_a_batch_gives_every_kind_of_refusal_its_status(
    app: Flask, connection: psycopg.Connection
) -> None:
    """Foreign tenant 403, used key 409, too large 413, as for a single event."""
    acme = Api(app, "acme")
    acme.post("/events", envelope(b"1"), Idempotency_Key="k")

    answer = acme.post(
        "/events/batch",
        [
            {"type": "a", "payload": 1, "tenant": "default"},
            {"type": "a", "payload": 1, "idempotency_key": "k"},
            {"type": "a", "payload": "x" * 262_144},
            {"type": "invoice.paid", "payload": 1, "idempotency_key": "k"},
        ],
    )

    assert answer.json is not None
    data = answer.json["data"]
    assert [item["status"] for item in data] == [403, 409, 413, 202]
    assert data[3]["duplicate"] is True
    assert stored(connection) == [b"1"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[broken", 400),
        (b'[{"type":"a","payload":1},', 400),
        (b"{}", 422),
        (b"1", 422),
        (b"[" + b",".join([b'{"type":"a","payload":1}'] * 1001) + b"]", 413),
        (b" " * (8 * 1024 * 1024 + 1), 413),
    ],
    ids=["empty", "broken", "cut", "object", "number", "1001", "long"],
)
def test_a_bad_batch_stores_nothing(
    api: Api, connection: psycopg.Connection, body: bytes, status: int
) -> None:
    """What is wrong with the whole is a problem of the whole."""
    answer = api.post("/events/batch", body)

    assert answer.status_code == status
    assert list(errors(answer)) == ["body"]
    assert stored(connection) == []


def test_a_full_batch_is_taken(api: Api, connection: psycopg.Connection) -> None:
    """1,000 items in one request, each with its own idempotency key."""
    items = [
        {"type": "a", "payload": n, "idempotency_key": f"key {n % 7} {n}"} for n in range(1000)
    ]

    first = api.post("/events/batch", items).json
    again = api.post("/events/batch", items).json

    assert first is not None
    assert again is not None
    assert {item["status"] for item in first["data"]} == {202}
    assert [item["id"] for item in again["data"]] == [item["id"] for item in first["data"]]
    assert all(item["duplicate"] for item in again["data"])
    assert stored(connection) == [json.dumps(n).encode() for n in range(1000)]


def test_a_key_for_a_whole_batch_is_refused(api: Api) -> None:
    """A header that would do nothing is an error, not a silent promise."""
    answer = api.post("/events/batch", [], Idempotency_Key="k")

    assert answer.status_code == 422
    assert list(errors(answer)) == ["Idempotency-Key"]


def test_an_empty_batch_is_an_empty_answer(api: Api) -> None:
    """A producer need not treat it apart."""
    answer = api.post("/events/batch", [])

    assert (answer.status_code, answer.json) == (200, {"data": []})


def post(app: Flask, api: Api, body: Any) -> TestResponse:
    """As a client of its own, so that threads share nothing but the application."""
    headers = {"Authorization": f"Bearer {api.key}"}
    return app.test_client().post("/api/v1/events", json=body, headers=headers)


def test_concurrent_emits_are_each_answered_as_themselves(
    app: Flask, connection: psycopg.Connection
) -> None:
    """Whatever they are committed with: own ids, one event a key, conflicts told to their own."""
    api = Api(app)
    api.endpoint("*")

    def emit(number: int) -> tuple[int, Any, Any]:
        key = f"key {number % 4}" if number % 2 else None
        body = {"type": "a", "payload": number if number % 3 else "same", "idempotency_key": key}
        answer = post(app, api, body)
        return answer.status_code, key, answer.json

    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(emit, range(120)))

    new = [told["id"] for status, _, told in answers if status == 202 and not told["duplicate"]]
    assert {status for status, _, _ in answers} == {202, 409}
    assert len(set(new)) == len(new) == len(stored(connection)) == 60 + 2
    for key in ("key 1", "key 3"):
        told = [t for s, k, t in answers if k == key and s == 202]
        assert len({t["id"] for t in told}) == 1
        assert sum(not t["duplicate"] for t in told) == 1
    assert one(connection, "SELECT count(*) FROM webhooks.deliveries") == 62


def test_a_key_held_elsewhere_does_not_hold_up_the_others(
    app: Flask, connection: psycopg.Connection
) -> None:
    """While a producer's open transaction holds a key, emits that are not its go on."""
    api = Api(app)
    connection.execute("BEGIN")
    connection.execute("SELECT webhooks.emit('default', 'a', '1', 'held')")

    def emit(number: int) -> tuple[int, float]:
        began = time.monotonic()
        key = "held" if number == 0 else None
        body = {"type": "a", "payload": 1, "idempotency_key": key}
        answer = post(app, api, body)
        return answer.status_code, time.monotonic() - began

    with ThreadPoolExecutor(8) as pool:
        held = pool.submit(emit, 0)
        others = list(pool.map(emit, range(1, 40)))
        connection.execute("COMMIT")
        assert held.result(20)[0] == 202

    assert {status for status, _ in others} == {202}
    assert max(took for _, took in others) < 1.0
    assert len(stored(connection)) == 40


def test_a_revoked_key_is_refused_after_two_seconds_at_most(app: Flask) -> None:
    """A process may remember a key for that long; a clock two seconds on, it is refused."""
    now = [1000.0]
    app.extensions["webhooks_verified_keys"] = VerifiedKeys(lambda: now[0])
    api = Api(app)
    assert api.get("/endpoints").status_code == 200
    with app.app_context():
        key = keys.find(keys.public_id_of(api.key) or "")
        assert key is not None
        keys.revoke(key)

    now[0] += 2.0

    assert api.get("/endpoints").status_code == 401
    assert api.post("/events", {"type": "a", "payload": 1}).status_code == 401


@pytest.mark.parametrize("path", ["/events", "/events/batch"])
def test_a_delivery_is_no_emit(api: Api, connection: psycopg.Connection, path: str) -> None:
    """An endpoint whose URL is an emit address would make events for ever: the header tells."""
    api.endpoint("*")
    body = {"type": "a.b", "payload": {}}

    answer = api.post(path, body if path == "/events" else [body], webhook_attempt="1")

    assert (answer.status_code, list(errors(answer))) == (422, ["webhook-attempt"])
    assert one(connection, "SELECT count(*) FROM webhooks.events") == 0
