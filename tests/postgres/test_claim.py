"""Claiming: fair over lanes, capped per lane, fenced, never twice."""

from __future__ import annotations

import threading
from collections import Counter
from uuid import UUID

import psycopg
import pytest

from tests.queue import claim, delivered, emit, make_endpoint, one, register, statuses
from webhooks import deliveries
from webhooks.db import connect, transaction
from webhooks.deliveries import NO_CURSOR, Cursor, Fenced


def test_a_claim_carries_what_sending_needs(connection: psycopg.Connection) -> None:
    """Payload bytes, URL and secrets come with the claim, and the row says who holds it."""
    endpoint_id = make_endpoint(connection, url="http://127.0.0.1:9/hook")
    connection.execute("SELECT webhooks.emit('default', 'a.b', '{\"n\": 1.10}')")
    worker_id = register(connection)

    (claimed,) = claim(connection, worker_id)

    assert claimed.payload == b'{"n": 1.10}'
    assert claimed.event_type == "a.b"
    assert claimed.target is not None
    assert claimed.target.url == "http://127.0.0.1:9/hook"
    assert (claimed.attempt, claimed.tries, claimed.endpoint_id) == (1, 0, endpoint_id)
    assert one(connection, "SELECT worker_id FROM webhooks.deliveries") == worker_id


def test_nothing_is_claimed_twice_by_concurrent_workers(
    connection: psycopg.Connection, database_url: str
) -> None:
    """Four workers that claim at once share the rows out without an overlap (W110)."""
    for _ in range(10):
        make_endpoint(connection, cap=1000)
    emit(connection, 40)
    taken: list[UUID] = []

    def work() -> None:
        with connect(database_url, "w") as mine:
            worker_id = register(mine)
            misses = 0
            while misses < 5:
                got = claim(mine, worker_id, room=37)
                misses = 0 if got else misses + 1
                taken.extend(c.delivery_id for c in got)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(taken) == 400
    assert len(set(taken)) == 400


def test_the_cap_of_a_lane_holds_over_all_workers(
    connection: psycopg.Connection, database_url: str
) -> None:
    """Eight claimers at once never put more than max_in_flight of one endpoint in flight."""
    make_endpoint(connection, cap=5)
    emit(connection, 200)

    def work() -> None:
        with connect(database_url, "w") as mine:
            worker_id = register(mine)
            for _ in range(10):
                claim(mine, worker_id, room=50)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert statuses(connection) == {"in_flight": 5, "pending": 195}


def test_a_settled_delivery_frees_its_place_under_the_cap(connection: psycopg.Connection) -> None:
    """What is delivered no longer counts against max_in_flight."""
    make_endpoint(connection, cap=2)
    emit(connection, 3)
    worker_id = register(connection)
    first = claim(connection, worker_id)

    assert claim(connection, worker_id) == ()
    deliveries.settle(connection, worker_id, [delivered(first[0])])

    assert len(claim(connection, worker_id)) == 1


def test_a_backlog_does_not_keep_other_endpoints_waiting(connection: psycopg.Connection) -> None:
    """A small claim takes from every lane, also when one lane has thousands of older rows."""
    make_endpoint(connection, cap=1000)
    emit(connection, 3000)
    for _ in range(9):
        make_endpoint(connection, cap=1000)
    emit(connection, 5)

    claimed = claim(connection, register(connection), room=20)

    assert set(Counter(c.endpoint_id for c in claimed).values()) == {2}
    assert len(claimed) == 20


def test_the_cursor_goes_round_all_lanes(connection: psycopg.Connection) -> None:
    """With room for one lane at a time, each lane has its turn before any has two."""
    endpoints = {make_endpoint(connection) for _ in range(4)}
    emit(connection, 3)
    worker_id = register(connection)
    cursor = NO_CURSOR
    turns = []

    for _ in range(8):
        batch = deliveries.claim(connection, worker_id, cursor, 1)
        cursor = batch.cursor
        turns += [c.endpoint_id for c in batch.claims]

    assert set(turns[:4]) == endpoints
    assert set(turns[4:]) == endpoints


def test_a_cursor_past_the_last_lane_starts_from_the_first(connection: psycopg.Connection) -> None:
    """No lane is missed because a worker happened to start behind it."""
    make_endpoint(connection)
    emit(connection)
    behind = Cursor(64, UUID(int=2**128 - 1))

    batch = deliveries.claim(connection, register(connection), behind, 10)

    assert len(batch.claims) == 1


@pytest.mark.parametrize("open_at", ["infinity", "now() + interval '1 hour'"])
def test_a_closed_lane_is_left_out(connection: psycopg.Connection, open_at: str) -> None:
    """Paused, disabled and throttled endpoints hold their deliveries."""
    make_endpoint(connection)
    emit(connection)
    value = f"'{open_at}'" if open_at == "infinity" else open_at
    connection.execute(f"UPDATE webhooks.lanes SET open_at = {value}")

    batch = deliveries.claim(connection, register(connection), NO_CURSOR, 10)

    assert batch.claims == ()
    assert (batch.claims, batch.ended) == ((), True)
    assert statuses(connection) == {"pending": 1}


def test_thousands_of_closed_lanes_do_not_hide_an_open_one(connection: psycopg.Connection) -> None:
    """A scan that ends among closed lanes goes on from there at the next claim."""
    open_lane = make_endpoint(connection)
    emit(connection)
    connection.execute(
        "INSERT INTO webhooks.deliveries (shard, tenant_id, event_id, endpoint_id, event_type) "
        "SELECT shard - 1, tenant_id, event_id, webhooks.uuid7(), event_type "
        "FROM webhooks.deliveries, generate_series(1, 5000)")  # fmt: skip
    connection.execute(
        "INSERT INTO webhooks.lanes (shard, endpoint_id, tenant_id, max_in_flight, open_at) "
        "SELECT shard, endpoint_id, tenant_id, 5, 'infinity' FROM webhooks.deliveries "
        "WHERE endpoint_id <> %s", [open_lane])  # fmt: skip
    worker_id = register(connection)
    cursor = NO_CURSOR

    rounds = 0
    claimed: tuple[object, ...] = ()
    while not claimed and rounds < 5:
        batch = deliveries.claim(connection, worker_id, cursor, 10)
        cursor, claimed, rounds = batch.cursor, batch.claims, rounds + 1

    assert len(claimed) == 1


@pytest.mark.parametrize("start", ["first", "middle"])
def test_a_round_over_thousands_of_closed_lanes_is_told(
    connection: psycopg.Connection, start: str
) -> None:
    """Each part is looked at once: 5,000 lanes are three looks, wherever the cursor began."""
    make_endpoint(connection)
    emit(connection)
    connection.execute(
        "INSERT INTO webhooks.deliveries (shard, tenant_id, event_id, endpoint_id, event_type) "
        "SELECT shard, tenant_id, event_id, webhooks.uuid7(), event_type "
        "FROM webhooks.deliveries, generate_series(1, 4999)")  # fmt: skip
    connection.execute("UPDATE webhooks.lanes SET open_at = 'infinity'")
    connection.execute(
        "INSERT INTO webhooks.lanes (shard, endpoint_id, tenant_id, max_in_flight, open_at) "
        "SELECT shard, endpoint_id, tenant_id, 5, 'infinity' FROM webhooks.deliveries "
        "ON CONFLICT DO NOTHING")  # fmt: skip
    lanes = connection.execute(
        "SELECT shard, endpoint_id FROM webhooks.deliveries_queue ORDER BY 1, 2"
    ).fetchall()
    cursor = NO_CURSOR if start == "first" else Cursor(*lanes[2500])
    worker_id = register(connection)

    looks = []
    for _ in range(3):
        batch = deliveries.claim(connection, worker_id, cursor, 10)
        looks.append((batch.wrapped, batch.ended, batch.claims))
        cursor = batch.cursor

    wraps = [False, False, True] if start == "first" else [False, True, False]
    assert looks == [(wrapped, False, ()) for wrapped in wraps]


def test_a_worker_without_a_row_is_fenced(connection: psycopg.Connection) -> None:
    """A worker whose lease was lost claims nothing (W103)."""
    make_endpoint(connection)
    emit(connection)
    worker_id = register(connection)
    connection.execute("DELETE FROM webhooks.workers")

    with pytest.raises(Fenced):
        claim(connection, worker_id)

    assert statuses(connection) == {"pending": 1}


def test_a_row_that_somebody_holds_is_skipped(
    connection: psycopg.Connection, database_url: str
) -> None:
    """A claim never waits for a row lock; the held row waits for the next claim."""
    make_endpoint(connection)
    emit(connection, 2)

    with connect(database_url, "holder") as other, transaction(other):
        held = one(other, "SELECT id FROM webhooks.deliveries ORDER BY id LIMIT 1 FOR UPDATE")
        claimed = claim(connection, register(connection))

    assert [c.delivery_id for c in claimed] != [held]
    assert len(claimed) == 1


def test_a_missing_event_or_endpoint_comes_back_as_none(connection: psycopg.Connection) -> None:
    """A row without its event does not block its lane: it is claimed, and can be settled."""
    make_endpoint(connection)
    emit(connection)
    connection.execute("DELETE FROM webhooks.events")

    (claimed,) = claim(connection, register(connection))

    assert claimed.payload is None


def test_orphans_are_named_and_cancelled(connection: psycopg.Connection) -> None:
    """Rows of a lane that is missing or deleted are cancelled on sight (W119)."""
    make_endpoint(connection)
    deleted = make_endpoint(connection)
    emit(connection, 3)
    connection.execute(
        "UPDATE webhooks.lanes SET deleted = true, open_at = 'infinity' WHERE endpoint_id = %s",
        [deleted])  # fmt: skip
    worker_id = register(connection)

    batch = deliveries.claim(connection, worker_id, NO_CURSOR, 10)
    cancelled = deliveries.cancel_orphans(connection, batch.orphans)

    assert len(batch.claims) == 3
    assert cancelled == 3
    assert statuses(connection) == {"in_flight": 3, "cancelled": 3}
    reason = one(connection, "SELECT DISTINCT reason FROM webhooks.deliveries WHERE reason > ''")
    assert reason == "endpoint deleted"


def test_an_idle_claim_writes_nothing(connection: psycopg.Connection) -> None:
    """Polling an empty queue takes no transaction id and makes no WAL of its own (W131)."""
    worker_id = register(connection)
    claim(connection, worker_id)

    def wal() -> int:
        # Flushed by one statement, read by the next.
        connection.execute("SELECT pg_stat_force_next_flush()")
        connection.execute("SELECT 1")
        return int(
            one(connection, "SELECT wal_bytes FROM pg_stat_get_backend_wal(pg_backend_pid())")
        )

    before = wal()

    for _ in range(20):
        claim(connection, worker_id)

    assert wal() == before
    connection.execute("UPDATE webhooks.workers SET in_flight = 1")
    assert wal() > before
