"""events.emit and events.emit_many."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import psycopg
import pytest

from tests.queue import make_endpoint, one
from webhooks import events
from webhooks.db import connect
from webhooks.events import Accepted, Conflict, EventError, NewEvent


@pytest.fixture
def tenant(connection: psycopg.Connection) -> UUID:
    """The default tenant's id."""
    found: UUID = one(connection, "SELECT id FROM webhooks.tenants")
    return found


def payloads(connection: psycopg.Connection) -> list[bytes]:
    """Every payload, in the order of the events' ids."""
    return [row[0] for row in connection.execute("SELECT payload FROM webhooks.events ORDER BY id")]


def test_an_event_is_stored_with_a_delivery_for_each_endpoint(
    connection: psycopg.Connection, tenant: UUID
) -> None:
    """The answer counts the matching endpoints; the payload is kept byte for byte (W007)."""
    make_endpoint(connection)
    make_endpoint(connection)

    accepted = events.emit(connection, tenant, "invoice.paid", b'{"b": 1.10,"a":"\\u0000"}')

    assert accepted == Accepted(accepted.id, 2, False)
    assert payloads(connection) == [b'{"b": 1.10,"a":"\\u0000"}']
    assert one(connection, "SELECT count(*) FROM webhooks.deliveries WHERE status='pending'") == 2


def test_the_same_key_and_body_is_the_first_event(
    connection: psycopg.Connection, tenant: UUID
) -> None:
    """A producer that asks again gets the first answer, and nobody a second delivery."""
    make_endpoint(connection)

    first = events.emit(connection, tenant, "a", b"1", "key")
    again = events.emit(connection, tenant, "a", b"1", "key")

    assert again == Accepted(first.id, first.deliveries, True)
    assert len(payloads(connection)) == 1


@pytest.mark.parametrize(("type", "payload"), [("a", b"2"), ("b", b"1"), ("a", b"1 ")])
def test_the_same_key_with_another_body_conflicts(
    connection: psycopg.Connection, tenant: UUID, type: str, payload: bytes
) -> None:
    """Another event under a used key is refused, never silently dropped."""
    events.emit(connection, tenant, "a", b"1", "key")

    with pytest.raises(Conflict):
        events.emit(connection, tenant, type, payload, "key")

    assert payloads(connection) == [b"1"]


def test_twenty_threads_with_one_key_make_one_event(
    connection: psycopg.Connection, tenant: UUID, database_url: str
) -> None:
    """The key's row decides, not a look before the insert (W141)."""
    barrier = threading.Barrier(20, timeout=20)

    def emit(_: int) -> Accepted:
        with connect(database_url, "test") as own:
            barrier.wait()
            return events.emit(own, tenant, "a", b"1", "key")

    with ThreadPoolExecutor(20) as pool:
        accepted = list(pool.map(emit, range(20)))

    assert len({a.id for a in accepted}) == 1
    assert sum(not a.duplicate for a in accepted) == 1
    assert payloads(connection) == [b"1"]


def test_an_emit_does_not_wait_for_ever_for_a_used_key(
    connection: psycopg.Connection, tenant: UUID, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another transaction holds the key, emit gives up in bounded time."""
    monkeypatch.setattr("webhooks.events.retry_tx", lambda work: work())
    connection.execute("BEGIN")
    connection.execute("SELECT webhooks.emit('default', 'a', '1', 'key')")

    with connect(database_url, "test") as own, pytest.raises(psycopg.errors.LockNotAvailable):
        events.emit(own, tenant, "a", b"1", "key")

    connection.execute("ROLLBACK")
    assert events.emit(connection, tenant, "a", b"1", "key").duplicate is False


@pytest.mark.parametrize(
    "type", ["", ".", "a.", ".a", "a..b", "a b", "é", "a\n", "a\0", "a*", "*", "x" * 256]
)
def test_a_bad_type_is_refused(connection: psycopg.Connection, tenant: UUID, type: str) -> None:
    """The error names the field and nothing is stored (W143)."""
    with pytest.raises(EventError) as raised:
        events.emit(connection, tenant, type, b"1")

    assert raised.value.field == "type"
    assert payloads(connection) == []


@pytest.mark.parametrize("type", ["a", "A-1_b.c", "x" * 255, ".".join("a" * 128)])
def test_a_good_type_is_taken(connection: psycopg.Connection, tenant: UUID, type: str) -> None:
    """Dot-separated words of letters, digits, underscore and hyphen, up to 255 characters."""
    events.emit(connection, tenant, type, b"1")

    assert one(connection, "SELECT type FROM webhooks.events") == type


@pytest.mark.parametrize("key", ["", " ", "\t", "a\0b", "a\nb", "x" * 256, "\u2028"])
def test_a_bad_idempotency_key_is_refused(
    connection: psycopg.Connection, tenant: UUID, key: str
) -> None:
    """Empty, blank, long and unprintable keys are refused and nothing is stored (W143)."""
    with pytest.raises(EventError) as raised:
        events.emit(connection, tenant, "a", b"1", key)

    assert raised.value.field == "idempotency_key"
    assert payloads(connection) == []


def test_the_longest_idempotency_key_fits_its_index(
    connection: psycopg.Connection, tenant: UUID
) -> None:
    """255 characters of four bytes each are within the index's limit (W143)."""
    key = "".join(chr(0x1F600 + n % 60) for n in range(255))

    assert events.emit(connection, tenant, "a", b"1", key).duplicate is False
    assert events.emit(connection, tenant, "a", b"1", key).duplicate is True


def test_a_batch_is_answered_and_stored_in_its_order(
    connection: psycopg.Connection, tenant: UUID
) -> None:
    """Ids follow the order given, with and without keys, so deliveries do."""
    make_endpoint(connection)
    items = [
        NewEvent(tenant, "a", str(n).encode(), None if n % 3 else f"key {999 - n}")
        for n in range(300)
    ]

    accepted = events.emit_many(connection, items)

    assert [type(a) for a in accepted] == [Accepted] * 300
    assert payloads(connection) == [str(n).encode() for n in range(300)]


def test_keys_work_within_a_batch_and_with_what_was_before(
    connection: psycopg.Connection, tenant: UUID
) -> None:
    """A key used before, twice in the batch, and with another body: one verdict each."""
    before = events.emit(connection, tenant, "a", b"1", "old")

    answers = events.emit_many(
        connection,
        [
            NewEvent(tenant, "a", b"1", "old"),
            NewEvent(tenant, "a", b"2", "old"),
            NewEvent(tenant, "a", b"3", "new"),
            NewEvent(tenant, "a", b"3", "new"),
            NewEvent(tenant, "a", b"4", "new"),
        ],
    )

    kinds = [a.duplicate if isinstance(a, Accepted) else "conflict" for a in answers]
    assert kinds == [True, "conflict", False, True, "conflict"]
    assert isinstance(answers[0], Accepted)
    assert answers[0].id == before.id
    assert payloads(connection) == [b"1", b"3"]


def test_batches_that_share_keys_in_other_orders_do_not_deadlock(
    connection: psycopg.Connection, tenant: UUID, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch takes its keys in the order that all share, whatever order it was given."""
    monkeypatch.setattr("webhooks.events.retry_tx", lambda work: work())
    items = [NewEvent(tenant, "a", b"1", f"key {n}") for n in range(300)]
    orders = [items, items[::-1], items[100:] + items[:100], items[::-2] + items[::2]]
    barrier = threading.Barrier(len(orders), timeout=20)

    def emit(order: list[NewEvent]) -> None:
        with connect(database_url, "test") as own:
            for _ in range(3):
                barrier.wait()
                events.emit_many(own, order)

    with ThreadPoolExecutor(len(orders)) as pool:
        list(pool.map(emit, orders))

    assert len(payloads(connection)) == 300


def test_a_batch_with_a_bad_item_stores_nothing(
    connection: psycopg.Connection, tenant: UUID
) -> None:
    """Checked before the transaction: all or nothing for a caller in this process."""
    with pytest.raises(EventError):
        events.emit_many(connection, [NewEvent(tenant, "a", b"1"), NewEvent(tenant, "", b"1")])

    assert payloads(connection) == []


def test_an_empty_batch_is_no_transaction(connection: psycopg.Connection) -> None:
    """Nothing in, nothing out."""
    assert events.emit_many(connection, []) == []


def test_a_group_is_answered_in_the_order_given(
    connection: psycopg.Connection, tenant: UUID
) -> None:
    """One statement for strangers' events: each gets its own verdict, stored or not."""
    before = events.emit(connection, tenant, "a", b"1", "old")
    group = [
        NewEvent(tenant, "a", b"2"),
        NewEvent(tenant, "a", b"3", "z"),
        NewEvent(tenant, "a", b"1", "old"),
        NewEvent(tenant, "a", b"4", "a"),
        NewEvent(tenant, "a", b"5", "old"),
        NewEvent(tenant, "a", b"3", "z"),
    ]

    answers = events.emit_group(connection, group)

    kinds = [a.duplicate if isinstance(a, Accepted) else "conflict" for a in answers]
    assert kinds == [False, False, True, False, "conflict", True]
    ids = [a.id if isinstance(a, Accepted) else None for a in answers]
    assert ids[2] == before.id
    assert ids[5] == ids[1]
    for number in (0, 1, 3):
        stored = one(connection, "SELECT payload FROM webhooks.events WHERE id = %s", ids[number])
        assert stored == group[number].payload
    assert sorted(payloads(connection)) == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("count", [1, 3])
def test_a_group_waits_for_a_key_for_a_moment_only(
    connection: psycopg.Connection, tenant: UUID, database_url: str, count: int
) -> None:
    """Others wait with it: after 50 ms it gives up, and nothing of it is stored."""
    connection.execute("BEGIN")
    connection.execute("SELECT webhooks.emit('default', 'a', '1', 'key')")
    group = [NewEvent(tenant, "a", str(n).encode()) for n in range(count - 1)]

    with connect(database_url, "test") as own:
        began = time.monotonic()
        with pytest.raises(psycopg.errors.LockNotAvailable):
            events.emit_group(own, [*group, NewEvent(tenant, "a", b"1", "key")])
        assert time.monotonic() - began < 0.9

    connection.execute("ROLLBACK")
    assert payloads(connection) == []
