"""The main job with real processes: emit, sign, send, retry, die, replay."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
import requests
import standardwebhooks

from tests.recorder import Received, Recorder, verify
from tests.stack import Stack, eventually

pytestmark = pytest.mark.acceptance

FAST = {
    "WEBHOOKS_RETRY_BASE_S": "0.05",
    "WEBHOOKS_RETRY_FACTOR": "1",
    "WEBHOOKS_RETRY_ATTEMPTS": "3",
    "WEBHOOKS_LEASE_S": "4",
    "WEBHOOKS_HEARTBEAT_S": "1",
}


@pytest.fixture
def stack(database_url: str) -> Iterator[Stack]:
    """Web and worker as gunicorn processes, with quick retries and three attempts."""
    with Stack(database_url, FAST) as running:
        running.start_web()
        running.start_worker()
        yield running


def delivery_of(stack: Stack, event_id: str) -> dict[str, object]:
    """The only delivery of an event, with its attempts."""
    listed = stack.get(f"/deliveries?event={event_id}")["data"]
    found: dict[str, object] = stack.get(f"/deliveries/{listed[0]['id']}")
    return found


def test_a_delivery_is_signed_so_that_others_can_verify(stack: Stack) -> None:
    """An independent verifier and the public package accept the bytes on the wire (W001, W013)."""
    payload = {"contextId": "m1", "final": False, "n": [1, 2]}
    with Recorder() as receiver:
        _, secret = stack.register(receiver.url)
        event_id = stack.emit(payload)
        eventually(lambda: receiver.requests)

    (request,) = receiver.requests
    assert request.id == event_id
    assert verify(secret, request)
    assert standardwebhooks.Webhook(secret).verify(request.body, request.headers) == payload
    assert not verify(secret, replace(request, body=request.body[:-1] + b"!"))
    assert abs(int(request.headers["webhook-timestamp"]) - request.at) < 5
    assert request.headers["webhook-event-type"] == "test.event"
    assert request.headers["webhook-attempt"] == "1"
    assert request.headers["User-Agent"].startswith("Webhooks/")


def test_a_failing_receiver_gets_retries_with_fresh_timestamps(stack: Stack) -> None:
    """500, 500, 200: three attempts, one webhook-id, each signed anew at send time (W009, W167)."""
    with Recorder(lambda nth, _: 200 if nth == 3 else 500) as receiver:
        _, secret = stack.register(receiver.url, retry_policy={"delays_s": [1.1, 1.1]})
        event_id = stack.emit({"a": 1})
        eventually(lambda: len(receiver.requests) == 3)
        delivery = eventually(
            lambda: (d := delivery_of(stack, event_id))["status"] == "delivered" and d
        )

    stamps = [int(r.headers["webhook-timestamp"]) for r in receiver.requests]
    assert [r.id for r in receiver.requests] == [event_id] * 3
    assert stamps == sorted(set(stamps))
    assert all(verify(secret, r) for r in receiver.requests)
    assert all(abs(int(r.headers["webhook-timestamp"]) - r.at) < 2 for r in receiver.requests)
    attempts = delivery["attempts"]
    assert isinstance(attempts, list)
    assert sorted((a["number"], a["status_code"]) for a in attempts) == [
        (1, 500),
        (2, 500),
        (3, 200),
    ]


def test_used_up_attempts_make_a_dead_letter_that_can_be_replayed(stack: Stack) -> None:
    """After the last try a dead letter; its replay sends the same bytes and id (W007, W012)."""
    body = (
        '{"bb":1,"a":1.10,"z":1e5,  "n":50755254975729665,"s":"\u2028\u0416\\u0000\\ud83d\\ude31"}'
    )
    healed: list[bool] = []
    with Recorder(lambda nth, _: 200 if healed else 500) as receiver:
        _, secret = stack.register(receiver.url)
        with stack.connect() as connection:
            connection.execute("SELECT webhooks.emit('default', 'a.b', %s)", [body])
        delivery_id = eventually(
            lambda: [d["id"] for d in stack.get("/deliveries?status=dead_lettered")["data"]]
        )[0]
        assert len(receiver.requests) == 3

        healed.append(True)
        answer = stack.post(f"/deliveries/{delivery_id}/replay")
        assert answer.status_code == 202, answer.text
        eventually(lambda: stack.statuses() == {"delivered": 1})

    digests = {hashlib.sha256(r.body).hexdigest() for r in receiver.requests}
    assert len(receiver.requests) == 4
    assert digests == {hashlib.sha256(body.encode()).hexdigest()}
    assert len({r.id for r in receiver.requests}) == 1
    assert all(verify(secret, r) for r in receiver.requests)


@pytest.mark.parametrize(
    "payload",
    [
        '{"sku":"\u2028\u2028724812-22\u2029"}',
        '{"m":"\\u001b[31mred\\u0007\\t"}',
        '{"a":"\\ud83e\\udd28","b":"\\u270b\\u270a","c":"e\u0301"}',
        '{"text":"\u041f\u0440\u0438\u0432\u0435\u0442 \U0001f631"}',
        '{"a":1,"a":2}',
        '{"p":1.10,"e":1e5,"z":-0,"x":1E400,"d":123456789012345678901234567890.5}',
        '{ "n" : 9007199254740993 }',
    ],
)
def test_the_body_on_the_wire_is_the_payload_as_sent(stack: Stack, payload: str) -> None:
    """Raw characters, escapes, spacing and numbers arrive untouched (W003, W004, W006, W025)."""
    raw = b'{"type":"a.b","payload":' + payload.encode() + b"}"
    with Recorder() as receiver:
        _, secret = stack.register(receiver.url)
        assert post_raw(stack, raw) == 202
        eventually(lambda: receiver.requests)

    assert receiver.requests[0].body == payload.encode()
    assert verify(secret, receiver.requests[0])


def post_raw(stack: Stack, body: bytes) -> int:
    return requests.post(
        f"{stack.base_url}/api/v1/events",
        data=body,
        headers={"Authorization": f"Bearer {stack.key}", "Content-Type": "application/json"},
        timeout=10,
    ).status_code


def test_an_emit_that_rolls_back_delivers_nothing(stack: Stack) -> None:
    """What the producer's transaction undoes was never an event; what it commits is (W115)."""
    with Recorder() as receiver:
        stack.register(receiver.url)
        with stack.connect() as connection:
            connection.execute("BEGIN")
            connection.execute("SELECT webhooks.emit('default', 'a', '{\"undone\": true}')")
            time.sleep(0.6)
            assert receiver.requests == []
            connection.execute("ROLLBACK")
            connection.execute("SELECT webhooks.emit('default', 'a', '{\"kept\": true}')")
        eventually(lambda: receiver.requests)
        time.sleep(0.6)

    assert [r.body for r in receiver.requests] == [b'{"kept": true}']


def test_what_is_sent_is_what_was_accepted_then(stack: Stack) -> None:
    """Later events about the same thing, and edits, never change a body (W024, W122)."""
    accepted: dict[str, bytes] = {}
    with Recorder(delay_s=0.02) as receiver:
        endpoint_id, _ = stack.register(receiver.url)

        def produce(first: int) -> None:
            for n in range(first, first + 50):
                payload = {"subject": "in_1", "version": n}
                accepted[stack.emit(payload)] = json.dumps(payload).encode()

        producers = [threading.Thread(target=produce, args=(n,)) for n in (0, 100, 200, 300)]
        for producer in producers:
            producer.start()
        for n in range(5):
            edit = {"description": f"edited {n}", "event_types": ["*", f"other{n}"]}
            assert stack.patch(f"/endpoints/{endpoint_id}", edit).status_code == 200
        for producer in producers:
            producer.join()
        eventually(lambda: len(receiver.requests) >= 200)

    assert {r.id: json.loads(r.body) for r in receiver.requests} == {
        event_id: json.loads(body) for event_id, body in accepted.items()
    }
    assert len(receiver.requests) == 200


@pytest.mark.parametrize("path", ["schedule", "retry", "replay", "retry_now", "recovered"])
def test_every_path_to_a_receiver_signs(stack: Stack, path: str) -> None:
    """First send, retry, replay, retry now, and after a crash: one sender, always signed (W010)."""
    fails = {"schedule": 0, "retry": 1, "replay": 3, "retry_now": 1, "recovered": 0}[path]
    policy = {"delays_s": [3600]} if path == "retry_now" else None
    with Recorder(lambda nth, _: 500 if nth <= fails else 200) as receiver:
        _, secret = stack.register(receiver.url, **({"retry_policy": policy} if policy else {}))
        if path == "recovered":
            strand(stack)
        else:
            stack.emit({"a": 1})
        if path in ("replay", "retry_now"):
            press(stack, path)
        eventually(lambda: stack.statuses() == {"delivered": 1})

    last: Received = receiver.requests[-1]
    assert len(receiver.requests) == fails + 1
    assert verify(secret, last)


def strand(stack: Stack) -> None:
    """A delivery in flight under a worker that does not exist."""
    with stack.connect() as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT webhooks.emit('default', 'a', '{}')")
        connection.execute(
            "UPDATE webhooks.deliveries_queue SET status = 'in_flight', attempts = 1, "
            "worker_id = webhooks.uuid7(), claimed_at = now()"
        )
        connection.execute("COMMIT")


def press(stack: Stack, path: str) -> None:
    status, action = ("dead_lettered", "replay") if path == "replay" else ("scheduled", "retry")
    found = eventually(lambda: stack.get(f"/deliveries?status={status}")["data"])
    assert stack.post(f"/deliveries/{found[0]['id']}/{action}").status_code == 202
