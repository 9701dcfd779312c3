"""Rows, URLs and answers that break things: each fails alone, with a class; the worker lives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import psycopg
import pytest

from tests.queue import one
from tests.rawserver import Peer, RawServer, reply
from tests.recorder import Recorder
from tests.stack import Stack, eventually
from webhooks import ids

pytestmark = pytest.mark.acceptance

GOOD = 5
ENV = {
    "WEBHOOKS_LEASE_S": "4",
    "WEBHOOKS_HEARTBEAT_S": "1",
    "WEBHOOKS_RETRY_BASE_S": "0.05",
    "WEBHOOKS_RETRY_FACTOR": "1",
    "WEBHOOKS_RETRY_ATTEMPTS": "2",
}
UNKEPT = "ALTER TABLE webhooks.{} DROP CONSTRAINT {}"
# What the record of a poisonous answer meets: it cannot be stored as it is.
REFUSES = """
ALTER TABLE webhooks.attempts ADD CONSTRAINT refuses
    CHECK (response_headers::text NOT LIKE '%unstorable%')
"""

Poison = Callable[[psycopg.Connection, UUID], None]


def setting(table: str, key: str, assignment: str, *values: object) -> Poison:
    statement = f"UPDATE webhooks.{table} SET {assignment} WHERE {key} = %s"

    def poison(connection: psycopg.Connection, target: UUID) -> None:
        connection.execute(statement.encode(), [*values, target])

    return poison


endpoint = partial(setting, "endpoints", "id")
secret = partial(setting, "signing_secrets", "endpoint_id")
delivery = partial(setting, "deliveries_queue", "endpoint_id")


def no_endpoint(connection: psycopg.Connection, target: UUID) -> None:
    for table in ("signing_secrets", "subscriptions"):
        connection.execute(f"DELETE FROM webhooks.{table} WHERE endpoint_id = %s", [target])
    connection.execute("DELETE FROM webhooks.endpoints WHERE id = %s", [target])


def no_secret(connection: psycopg.Connection, target: UUID) -> None:
    connection.execute("DELETE FROM webhooks.signing_secrets WHERE endpoint_id = %s", [target])


def anothers_secret(connection: psycopg.Connection, target: UUID) -> None:
    """A ciphertext that decrypts, elsewhere: each is bound to its row and tenant."""
    connection.execute(
        "UPDATE webhooks.signing_secrets SET ciphertext = (SELECT ciphertext FROM "
        "webhooks.signing_secrets WHERE endpoint_id <> %s ORDER BY id LIMIT 1) "
        "WHERE endpoint_id = %s", [target, target])  # fmt: skip


# What is wrong, and the class that its attempt must have; None: it is delivered all the same.
POISONS: dict[str, tuple[Poison, str | None]] = {
    "empty label": (endpoint("url = 'http://a..b/'"), "invalid_url"),
    "backslash and snowman": (
        endpoint("url = %s", "http://127.0.0.1\\@evil.test/\u2603"),
        "invalid_url",
    ),
    "no scheme": (endpoint("url = 'hook'"), "invalid_url"),
    "empty": (endpoint("url = ''"), "invalid_url"),
    "line break": (endpoint("url = url || %s", "\r\nX-Injected: yes"), "invalid_url"),
    "100 kB": (endpoint("url = url || repeat('a', 100000)"), "invalid_url"),
    "zone": (endpoint("url = 'http://[fe80::1%%25eth0]/'"), "invalid_url"),
    "port": (endpoint("url = 'http://127.0.0.1:99999/'"), "invalid_url"),
    "odd bytes": (endpoint("url = %s", "http://127.0.0.1/\x01\u202e\U000e0001"), "invalid_url"),
    "timeout NaN": (endpoint("timeout_s = 'NaN'"), "internal"),
    "timeout infinite": (endpoint("timeout_s = 'Infinity'"), "internal"),
    "timeout negative": (endpoint("timeout_s = -5"), "internal"),
    "policy": (endpoint("""retry_policy = '{"delays_s": [[]], "attempts": "x"}'"""), None),
    "no endpoint": (no_endpoint, "internal"),
    "no payload": (delivery("event_id = webhooks.uuid7()"), "internal"),
    "event type": (delivery("event_type = %s", "a\r\nX-Injected: yes"), "internal"),
    "garbage secret": (secret("ciphertext = 'garbage'"), "internal"),
    "cut secret": (secret("ciphertext = left(ciphertext, 40)"), "internal"),
    "another's secret": (anothers_secret, "internal"),
}
UNTRIED = "SELECT count(*) FROM webhooks.deliveries WHERE status = 'pending' AND tries = 0"

# What a person puts right: these wait, and nothing is charged or lost.
WAITING: dict[str, Poison] = {
    "no secret": no_secret,
    "unknown key": secret("ciphertext = replace(ciphertext, ':test', ':gone')"),
    "no key for its scheme": endpoint("schemes = '{jwt}'"),
}


@dataclass(frozen=True)
class Ended:
    """How a delivery ended."""

    status: str
    reason: str
    error: str | None


@pytest.fixture(params=["curl", "requests"])
def stack(database_url: str, request: pytest.FixtureRequest) -> Iterator[Stack]:
    """Web and one worker, with each transport."""
    with Stack(database_url, {**ENV, "WEBHOOKS_TRANSPORT": request.param}) as running:
        running.start_web()
        yield running


def unstorable(peer: Peer) -> None:
    while peer.read() is not None:
        peer.send(reply(200, b"\x00\xff", [("X-Answer", "unstorable")]))


def test_poison_fails_alone(stack: Stack) -> None:
    """Every poisonous row has its class, the good ones of the batch arrive, nothing dies (W118)."""
    with Recorder() as receiver, RawServer(unstorable) as odd:
        # Before the poison: it would refuse to start with a key that is missing.
        worker = stack.start_worker()
        targets = {name: register(stack, receiver.url) for name in POISONS}
        waiting = {name: register(stack, receiver.url) for name in WAITING}
        register(stack, odd.url())
        good = [register(stack, receiver.url) for _ in range(GOOD)]
        with stack.connect() as connection:
            poison(connection, targets, waiting)
        before = worker.children()
        eventually(lambda: live(stack) == {"pending": len(WAITING)}, 30)

        stack.emit({"still": "alive"})
        eventually(lambda: sum(b"alive" in r.body for r in receiver.requests) >= GOOD)
        assert worker.children() == before
        with stack.connect() as connection:
            assert one(connection, UNTRIED) == 2 * len(WAITING)
            ended = {name: how_it_ended(connection, target) for name, target in targets.items()}
            stored = one(
                connection,
                "SELECT DISTINCT detail FROM webhooks.attempts WHERE detail ~ 'not be stored'",
            )

    expected = {name: error for name, (_, error) in POISONS.items()}
    assert {name: found.error for name, found in ended.items()} == expected
    assert {found.status for found in ended.values() if found.error} == {"dead_lettered"}
    assert all(found.reason for found in ended.values() if found.error)
    assert stored == "what came back could not be stored: CheckViolation"
    assert all("X-Injected" not in r.headers for r in receiver.requests)
    assert sum(b"first" in r.body for r in receiver.requests) == GOOD + 1
    assert len(good) == GOOD


def register(stack: Stack, url: str) -> UUID:
    return ids.decode(ids.ENDPOINT, stack.register(url)[0])


def poison(
    connection: psycopg.Connection, targets: dict[str, UUID], waiting: dict[str, UUID]
) -> None:
    """One event for all of them, in one transaction with what makes it poison."""
    with connection.transaction():
        connection.execute(UNKEPT.format("endpoints", "ck_endpoints_timeout_s").encode())
        connection.execute(REFUSES)
        connection.execute("SELECT webhooks.emit('default', 'odd', '{\"first\": 1}')")
        for name, target in targets.items():
            POISONS[name][0](connection, target)
        for name, target in waiting.items():
            WAITING[name](connection, target)


def live(stack: Stack) -> dict[str, int]:
    states = ("pending", "in_flight", "scheduled")
    return {state: count for state, count in stack.statuses().items() if state in states}


def how_it_ended(connection: psycopg.Connection, target: UUID) -> Ended:
    row = connection.execute(
        "SELECT d.status, coalesce(d.reason, ''), a.error_class "
        "FROM webhooks.deliveries d JOIN webhooks.attempts a ON a.delivery_id = d.id "
        "WHERE d.endpoint_id = %s ORDER BY d.id, a.number LIMIT 1",
        [target],
    ).fetchone()
    assert row is not None
    return Ended(*row)
