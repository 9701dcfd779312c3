"""The dispatcher in this process, with real sockets and a real database, and faults put in."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from tests.queue import make_endpoint, one, statuses
from tests.recorder import Recorder
from tests.stack import eventually
from tests.support import KEYRING
from webhooks import deliveries
from webhooks.attempt import LIVE
from webhooks.dispatcher import Dispatcher, network
from webhooks.secrets import Keyring, Place
from webhooks.sending import Sender
from webhooks.settings import Settings
from webhooks.transports.curl import CurlTransport


@pytest.fixture
def quick(settings: Settings) -> Settings:
    """Short leases and retries."""
    return replace(
        settings,
        lease_s=3.0,
        heartbeat_s=0.5,
        retry_base_s=0.05,
        retry_factor=1.0,
        retry_attempts=4,
        attempt_timeout_s=1.0,
        max_in_flight=50,
    )


@pytest.fixture
def dispatcher(quick: Settings) -> Iterator[Dispatcher]:
    """A running dispatcher, drained at the end."""
    running = Dispatcher(quick, CurlTransport(quick), Sender(quick, Keyring.parse(KEYRING)))
    running.start()
    yield running
    running.drain(10)


def add_secret(connection: psycopg.Connection, endpoint_id: object) -> None:
    """A signing secret, encrypted as the product stores it."""
    tenant = one(connection, "SELECT tenant_id FROM webhooks.endpoints WHERE id = %s", endpoint_id)
    row_id = one(connection, "SELECT webhooks.uuid7()")
    place = Place("signing_secrets", tenant, row_id, "ciphertext")
    secret = b"whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
    connection.execute(
        "INSERT INTO webhooks.signing_secrets (id, tenant_id, endpoint_id, ciphertext) "
        "VALUES (%s, %s, %s, %s)",
        [row_id, tenant, endpoint_id, Keyring.parse(KEYRING).encrypt(place, secret)],
    )


def emit(connection: psycopg.Connection, count: int) -> None:
    connection.execute(
        "SELECT webhooks.emit('default', 'test', '{}') FROM generate_series(1, %s)", [count]
    )


def faulty(call: Any, chance: float, *, after: bool) -> Any:
    """The same call, which at random raises before it or after it did its work."""
    dice = random.Random(7)

    def wrapped(*arguments: Any, **more: Any) -> Any:
        if dice.random() < chance and not after:
            raise RuntimeError("injected before")
        answer = call(*arguments, **more)
        if dice.random() < chance and after:
            raise RuntimeError("injected after")
        return answer

    return wrapped


@pytest.mark.parametrize(
    "events", [250, pytest.param(5000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
def test_no_row_stays_in_flight_whatever_goes_wrong(
    connection: psycopg.Connection,
    dispatcher: Dispatcher,
    monkeypatch: pytest.MonkeyPatch,
    events: int,
) -> None:
    """Errors at claim, send and record, before and after their work: all rows finish (W101)."""
    monkeypatch.setattr(deliveries, "claim", faulty(deliveries.claim, 0.1, after=True))
    monkeypatch.setattr(deliveries, "settle", faulty(deliveries.settle, 0.2, after=True))
    monkeypatch.setattr(deliveries, "promote", faulty(deliveries.promote, 0.2, after=False))
    monkeypatch.setattr(Sender, "prepare", faulty(Sender.prepare, 0.02, after=False))
    monkeypatch.setattr(network, "outcome", faulty(network.outcome, 0.02, after=False))
    dice = random.Random(3)

    with Recorder(lambda nth, _: dice.choice([200, 200, 500, 404])) as receiver:
        for _ in range(4):
            add_secret(connection, make_endpoint(connection, url=receiver.url))
        emit(connection, events)
        live = {status.value for status in LIVE}
        eventually(lambda: not statuses(connection).keys() & live, 60 + events / 10)

    finished = statuses(connection)
    assert finished.keys() == {"delivered", "dead_lettered"}
    assert sum(finished.values()) == 4 * events
    assert one(connection, "SELECT count(*) FROM webhooks.deliveries_queue") == 0


def test_a_worker_whose_row_vanished_registers_anew(
    connection: psycopg.Connection, dispatcher: Dispatcher
) -> None:
    """A pruned worker row costs the incarnation, not the process; deliveries go on (W104)."""
    with Recorder() as receiver:
        add_secret(connection, make_endpoint(connection, url=receiver.url))
        emit(connection, 20)
        eventually(lambda: statuses(connection) == {"delivered": 20})
        before = one(connection, "SELECT id FROM webhooks.workers")

        connection.execute("DELETE FROM webhooks.workers")
        emit(connection, 20)
        eventually(lambda: statuses(connection) == {"delivered": 40})

    assert one(connection, "SELECT id FROM webhooks.workers") != before


def test_terminated_connections_are_opened_again(
    connection: psycopg.Connection, dispatcher: Dispatcher
) -> None:
    """Every session of the worker is killed twice; it reconnects by itself (W113)."""
    with Recorder() as receiver:
        add_secret(connection, make_endpoint(connection, url=receiver.url))
        for expected in (20, 40):
            eventually(lambda: one(connection, "SELECT count(*) FROM webhooks.workers") == 1)
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            emit(connection, 20)
            wanted = {"delivered": expected}
            eventually(lambda wanted=wanted: statuses(connection) == wanted)

    assert set(receiver.counts().values()) == {1}


def test_a_drained_dispatcher_leaves_no_trace(
    connection: psycopg.Connection, quick: Settings
) -> None:
    """After a drain nothing is in flight, its row is gone, and what was unsent is pending."""
    with Recorder(delay_s=0.3) as receiver:
        add_secret(connection, make_endpoint(connection, url=receiver.url))
        emit(connection, 200)
        running = Dispatcher(quick, CurlTransport(quick), Sender(quick, Keyring.parse(KEYRING)))
        running.start()
        eventually(lambda: receiver.requests)
        running.drain(10)

        left = statuses(connection)
        assert left.get("in_flight", 0) == 0
        assert left["pending"] + left["delivered"] == 200
        assert left["delivered"] == len(receiver.requests)
        assert one(connection, "SELECT count(*) FROM webhooks.workers") == 0


def test_a_slow_endpoint_keeps_nobody_waiting(
    connection: psycopg.Connection, dispatcher: Dispatcher
) -> None:
    """One endpoint that hangs holds its own cap of slots; a fast one is served meanwhile (W132)."""
    with Recorder(delay_s=3) as slow, Recorder() as fast:
        add_secret(connection, make_endpoint(connection, url=slow.url, cap=10))
        emit(connection, 100)
        add_secret(connection, make_endpoint(connection, url=fast.url))
        eventually(lambda: len(slow.requests) == 10)

        emit(connection, 50)
        eventually(lambda: len(fast.requests) == 50, 3)
        connection.execute("UPDATE webhooks.lanes SET open_at = 'infinity'")


def test_an_odd_retry_policy_stops_nobody(
    connection: psycopg.Connection, dispatcher: Dispatcher
) -> None:
    """A policy that cannot be read falls back to the installation's; others are served (W118)."""
    with Recorder(lambda nth, request: 500 if request.path == "/odd" else 200) as receiver:
        odd = make_endpoint(connection, url=receiver.url.replace("/hook", "/odd"))
        add_secret(connection, odd)
        connection.execute("""UPDATE webhooks.endpoints SET retry_policy = '{"delays_s": 5}'""")
        add_secret(connection, make_endpoint(connection, url=receiver.url))
        emit(connection, 2)
        eventually(lambda: statuses(connection) == {"delivered": 2, "dead_lettered": 2})


def test_a_payload_too_large_for_one_claim_waits_for_the_next(
    connection: psycopg.Connection, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim is bounded in bytes: what is over goes back as it was, and arrives later."""
    monkeypatch.setattr("webhooks.deliveries.claims.MOST_BYTES", 250_000)
    with Recorder() as receiver:
        add_secret(connection, make_endpoint(connection, url=receiver.url))
        connection.execute(
            "SELECT webhooks.emit('default', 'big', to_json(repeat('x', 100000))::text) "
            "FROM generate_series(1, 9)"
        )
        eventually(lambda: statuses(connection) == {"delivered": 9})

    assert one(connection, "SELECT max(tries) FROM webhooks.deliveries") == 1
    assert one(connection, "SELECT max(attempts) FROM webhooks.deliveries") == 1
