"""Large fan-outs: kept as one row by emit, made into deliveries by the workers in chunks."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from uuid import UUID

import psycopg
import pytest
from flask import Flask

from tests.api import Api
from tests.dispatching import dispatching
from tests.queue import claim, make_endpoint, make_endpoints, one, register, statuses
from tests.stack import eventually
from webhooks import deliveries, events, fanouts
from webhooks.db import connect
from webhooks.deliveries import NO_CURSOR
from webhooks.events import Accepted, NewEvent
from webhooks.fanouts import Progress, expand
from webhooks.settings import Settings

CHUNK = 1_000
RESTING = """
SELECT count(*) = 2 FROM pg_stat_activity
WHERE datname = current_database() AND state = 'idle'
  AND (application_name = 'webhooks listener' AND starts_with(query, 'LISTEN')
       OR application_name = 'webhooks keeper' AND state_change < now() - interval '0.3 s')
"""


def emit(connection: psycopg.Connection, type: str = "a", tenant: str = "default") -> UUID:
    found: UUID = one(connection, "SELECT webhooks.emit(%s, %s, '{}')", tenant, type)
    return found


def expand_all(connection: psycopg.Connection) -> list[int]:
    """The sizes of the chunks."""
    return list(iter(lambda: expand(connection), 0))


def delivered_to(connection: psycopg.Connection, event_id: UUID) -> Counter[UUID]:
    """How many deliveries of an event each endpoint has."""
    rows = connection.execute(
        "SELECT endpoint_id FROM webhooks.deliveries WHERE event_id = %s", [event_id]
    )
    return Counter(row[0] for row in rows)


def open_fanouts(connection: psycopg.Connection) -> int:
    return int(one(connection, "SELECT count(*) FROM webhooks.fanouts"))


@pytest.fixture
def tenant(connection: psycopg.Connection) -> UUID:
    """The default tenant's id."""
    found: UUID = one(connection, "SELECT id FROM webhooks.tenants")
    return found


@pytest.fixture(params=["database_url", "old_database_url"], ids=["newest", "PostgreSQL 15"])
def either(request: pytest.FixtureRequest) -> Iterator[psycopg.Connection]:
    """A connection to the newest PostgreSQL, and to the oldest that we support."""
    with connect(request.getfixturevalue(request.param), "test") as opened:
        yield opened


def test_up_to_500_endpoints_get_their_deliveries_with_the_event(
    connection: psycopg.Connection,
) -> None:
    """What is quickly done is done in the emitting transaction, and nothing is left open."""
    matching = make_endpoints(connection, 500)

    event_id = emit(connection)

    assert delivered_to(connection, event_id) == dict.fromkeys(matching, 1)
    assert open_fanouts(connection) == 0


@pytest.mark.parametrize(
    ("count", "chunks"),
    [(501, [501]), (1_000, [1_000]), (1_001, [1_000, 1]), (10_000, [1_000] * 10)],
)
def test_a_large_fan_out_reaches_each_endpoint_once(
    connection: psycopg.Connection, tenant: UUID, count: int, chunks: list[int]
) -> None:
    """The emit answers with all that match; chunks make exactly these, and nobody else's."""
    matching = make_endpoints(connection, count, "a", "*")
    make_endpoints(connection, 3, "b")

    accepted = events.emit(connection, tenant, "a", b"1")

    assert accepted == Accepted(accepted.id, count, False)
    assert delivered_to(connection, accepted.id) == {}
    assert expand_all(connection) == chunks
    assert delivered_to(connection, accepted.id) == dict.fromkeys(matching, 1)
    assert statuses(connection) == {"pending": count}
    assert open_fanouts(connection) == 0


def test_sql_emit_and_batches_leave_large_fan_outs_too(
    either: psycopg.Connection,
) -> None:
    """One code path: what is emitted by SQL or many at once is expanded alike."""
    matching = make_endpoints(either, 600)
    tenant_id = one(either, "SELECT id FROM webhooks.tenants")

    by_sql = emit(either)
    batch = events.emit_many(either, [NewEvent(tenant_id, "a", b"1", key) for key in (None, "k")])

    assert expand_all(either) == [600, 600, 600]
    for event_id in (by_sql, *(a.id for a in batch if isinstance(a, Accepted))):
        assert delivered_to(either, event_id) == dict.fromkeys(matching, 1)


def test_the_first_chunks_deliveries_can_be_claimed(connection: psycopg.Connection) -> None:
    """They are like any other: pending, with the event's shard, type and payload."""
    make_endpoints(connection, 501)
    event_id = emit(connection, "a.b")
    assert expand(connection) == 501

    claims = claim(connection, register(connection), 10)

    assert len(claims) == 10
    assert {(c.event_id, c.event_type, c.payload, c.tries) for c in claims} == {
        (event_id, "a.b", b"{}", 0)
    }


def test_subscriptions_that_change_later_change_nothing(connection: psycopg.Connection) -> None:
    """Those get the event that matched when it was accepted, and the number told stays true."""
    matching = make_endpoints(connection, 1_500)
    event_id = emit(connection)
    assert expand(connection) == CHUNK

    make_endpoints(connection, 10)
    connection.execute("DELETE FROM webhooks.subscriptions WHERE pattern = '*'")

    assert expand_all(connection) == [500]
    assert delivered_to(connection, event_id) == dict.fromkeys(matching, 1)


def test_an_endpoint_deleted_meanwhile_has_its_delivery_cancelled(
    connection: psycopg.Connection,
) -> None:
    """As for any emit that commits late: a worker cancels it on sight."""
    make_endpoints(connection, 501)
    gone = make_endpoint(connection)
    event_id = emit(connection)
    connection.execute("UPDATE webhooks.endpoints SET deleted_at = now() WHERE id = %s", [gone])
    connection.execute(
        "UPDATE webhooks.lanes SET deleted = true, open_at = 'infinity' WHERE endpoint_id = %s",
        [gone],
    )
    assert expand_all(connection) == [502]

    worker = register(connection)
    cursor, found = NO_CURSOR, []
    for _ in range(10):
        batch = deliveries.claim(connection, worker, cursor, 500)
        cursor = batch.cursor
        found += batch.orphans
    deliveries.cancel_orphans(connection, found[:1])

    assert {lane[1] for lane in found} == {gone}
    row = connection.execute(
        "SELECT status FROM webhooks.deliveries WHERE endpoint_id = %s AND event_id = %s",
        [gone, event_id],
    ).fetchall()
    assert row == [("cancelled",)]


SOON = "SELECT now() + interval '1 ms'"


def last(event_id: UUID, connection: psycopg.Connection) -> UUID:
    """The endpoint whose turn comes last."""
    found: UUID = one(
        connection,
        "SELECT endpoint_ids[cardinality(endpoint_ids)] FROM webhooks.fanouts WHERE event_id = %s",
        event_id,
    )
    return found


def withdraw(connection: psycopg.Connection, endpoint_id: UUID, before: datetime) -> int:
    return sum(fanouts.withdraw(connection, endpoint_id, "not wanted", before))


def test_what_is_withdrawn_is_cancelled_and_nothing_else(either: psycopg.Connection) -> None:
    """The endpoint gets its delivery, cancelled; all others get theirs, the numbers stay true."""
    matching = make_endpoints(either, 1_500)
    event_id = emit(either)
    gone = last(event_id, either)
    tenant_id = one(either, "SELECT id FROM webhooks.tenants")
    before = one(either, SOON)
    later = one(either, "SELECT webhooks.emit('default', 'a', '1') FROM pg_sleep(0.005)")
    assert expand(either) == CHUNK
    (done, *_) = delivered_to(either, event_id)

    assert withdraw(either, gone, before) == 1

    assert fanouts.progress(either, tenant_id, event_id) == Progress(1_001, 1_500)
    assert withdraw(either, gone, before) == withdraw(either, done, before) == 0
    assert expand_all(either) == [499, 1_000, 500]
    assert delivered_to(either, event_id) == dict.fromkeys(matching, 1)
    cancelled = either.execute(
        "SELECT endpoint_id, event_id, reason FROM webhooks.deliveries WHERE status = 'cancelled'"
    ).fetchall()
    assert cancelled == [(gone, event_id, "not wanted")]
    assert delivered_to(either, later) == dict.fromkeys(matching, 1)


def test_a_fan_out_whose_last_is_withdrawn_ends(connection: psycopg.Connection) -> None:
    """Nothing is left to make, and its row goes."""
    matching = make_endpoints(connection, 1_001)
    event_id = emit(connection)
    gone = last(event_id, connection)
    assert expand(connection) == CHUNK

    assert withdraw(connection, gone, one(connection, SOON)) == 1

    assert expand(connection) == 0
    assert open_fanouts(connection) == 0
    assert delivered_to(connection, event_id) == dict.fromkeys(matching, 1)


def test_many_open_fan_outs_are_withdrawn_from(connection: psycopg.Connection) -> None:
    """However many there are, a few in a transaction."""
    make_endpoints(connection, 501)
    made = [emit(connection) for _ in range(45)]

    chunks = list(
        fanouts.withdraw(connection, last(made[0], connection), "x", one(connection, SOON))
    )

    assert chunks == [20, 20, 5]


def test_a_chunk_that_is_being_made_is_waited_for(
    connection: psycopg.Connection, database_url: str
) -> None:
    """What it made is not withdrawn again: each endpoint has one delivery."""
    make_endpoints(connection, 501)
    event_id = emit(connection)
    gone, before = last(event_id, connection), one(connection, SOON)
    with connect(database_url, "other") as other, ThreadPoolExecutor(1) as pool:
        connection.execute("BEGIN")
        connection.execute("UPDATE webhooks.fanouts SET expanded = 501")
        withdrawn = pool.submit(withdraw, other, gone, before)
        with connect(database_url, "watcher") as watcher:
            _wait_until_blocked(watcher, other.info.backend_pid)
        connection.execute("COMMIT")

        assert withdrawn.result(20) == 0

    assert statuses(connection) == {}


def test_an_endpoint_deleted_before_is_not_counted(
    connection: psycopg.Connection, tenant: UUID
) -> None:
    """A tombstone keeps its subscriptions, and matches nothing."""
    matching = make_endpoints(connection, 502)
    connection.execute(
        "UPDATE webhooks.endpoints SET deleted_at = now() WHERE id = %s", [min(matching)]
    )

    accepted = events.emit(connection, tenant, "a", b"1")

    assert accepted.deliveries == 501
    assert expand_all(connection) == [501]
    assert set(delivered_to(connection, accepted.id)) == matching - {min(matching)}


def test_a_rolled_back_emit_leaves_no_fan_out(connection: psycopg.Connection) -> None:
    """It lives and dies with the producer's transaction (W115)."""
    make_endpoints(connection, 501)

    connection.execute("BEGIN")
    emit(connection)
    connection.execute("ROLLBACK")

    assert open_fanouts(connection) == 0
    assert expand(connection) == 0


def test_the_same_key_answers_the_same_number(connection: psycopg.Connection, tenant: UUID) -> None:
    """A duplicate tells the first event's number, before its expansion and after; it adds none."""
    make_endpoints(connection, 501)

    first = events.emit(connection, tenant, "a", b"1", "key")
    during = events.emit(connection, tenant, "a", b"1", "key")
    expand_all(connection)
    after = events.emit(connection, tenant, "a", b"1", "key")

    assert during == after == Accepted(first.id, 501, True)
    assert statuses(connection) == {"pending": 501}


def test_a_worker_that_dies_in_a_chunk_leaves_it_to_the_next(
    connection: psycopg.Connection, database_url: str
) -> None:
    """A chunk is one transaction: what was inserted and how far it is go together."""
    matching = make_endpoints(connection, 2_500)
    event_id = emit(connection)
    assert expand(connection) == CHUNK
    with connect(database_url, "doomed") as doomed:
        # The chunk waits at its last statement, when its deliveries have been inserted.
        connection.execute("BEGIN")
        connection.execute("LOCK TABLE webhooks.fanouts IN SHARE MODE")
        with ThreadPoolExecutor(1) as pool:
            chunk = pool.submit(expand, doomed)
            pid = doomed.info.backend_pid
            _wait_until_blocked(connection, pid)
            connection.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
            with pytest.raises(psycopg.OperationalError):
                chunk.result(20)
        connection.execute("COMMIT")

    assert len(delivered_to(connection, event_id)) == CHUNK
    assert expand_all(connection) == [1_000, 500]
    assert delivered_to(connection, event_id) == dict.fromkeys(matching, 1)


def _wait_until_blocked(connection: psycopg.Connection, pid: int) -> None:
    """Until a backend waits for a lock."""
    for _ in range(1_000):
        if one(connection, "SELECT cardinality(pg_blocking_pids(%s))", pid):
            return
        threading.Event().wait(0.005)
    raise AssertionError("it never waited")


def test_many_expanders_at_once_miss_and_repeat_nothing(
    connection: psycopg.Connection, database_url: str
) -> None:
    """Four workers, three fan-outs: each row is moved on by one at a time."""
    matching = make_endpoints(connection, 3_300)
    made = [emit(connection) for _ in range(3)]
    barrier = threading.Barrier(4, timeout=20)

    def work(_: int) -> int:
        with connect(database_url, "test") as own:
            barrier.wait()
            done = 0
            while open_fanouts(own):
                done += expand(own)
            return done

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, range(4))) == 3 * 3_300

    for event_id in made:
        assert delivered_to(connection, event_id) == dict.fromkeys(matching, 1)


def test_a_fan_out_that_another_worker_is_at_is_passed_over(
    connection: psycopg.Connection, database_url: str
) -> None:
    """Two workers work on two fan-outs of one tenant; nobody waits."""
    make_endpoints(connection, 501)
    first, second = emit(connection), emit(connection)
    with connect(database_url, "other") as other:
        other.execute("BEGIN")
        other.execute("SELECT FROM webhooks.fanouts WHERE event_id = %s FOR UPDATE", [first])

        assert expand(connection) == 501
        assert expand(connection) == 0
        other.execute("ROLLBACK")

    assert len(delivered_to(connection, second)) == 501
    assert len(delivered_to(connection, first)) == 0
    assert expand(connection) == 501


def test_the_oldest_of_a_tenant_comes_first(connection: psycopg.Connection) -> None:
    """Whole fan-outs, in the order in which they were accepted."""
    make_endpoints(connection, 1_001)
    first, second = emit(connection), emit(connection)

    assert expand(connection) == CHUNK
    assert expand(connection) == 1

    assert len(delivered_to(connection, first)) == 1_001
    assert len(delivered_to(connection, second)) == 0


def test_a_tenant_with_many_does_not_hold_up_another(connection: psycopg.Connection) -> None:
    """With 30 fan-outs before it, another tenant's only one waits for a few chunks."""
    connection.execute("INSERT INTO webhooks.tenants (key, name) VALUES ('other', 'Other')")
    make_endpoints(connection, 501)
    make_endpoints(connection, 501, tenant="other")
    for _ in range(30):
        emit(connection)
    theirs = emit(connection, tenant="other")

    chunks = 0
    while not delivered_to(connection, theirs):
        expand(connection)
        chunks += 1

    # By chance alone, two tenants in turn: 25 in a row once in 30 million runs.
    assert chunks <= 25


def test_nothing_to_expand_writes_nothing(connection: psycopg.Connection) -> None:
    """A quiet system costs a read: no transaction id, no WAL."""
    before = one(connection, "SELECT pg_current_xact_id()::text::bigint")

    assert expand(connection) == 0

    assert one(connection, "SELECT pg_current_xact_id()::text::bigint") == before + 1


@pytest.mark.parametrize("count", [500, 501])
def test_a_large_fan_out_wakes_who_expands_it(
    app: Flask, connection: psycopg.Connection, settings: Settings, monkeypatch: pytest.MonkeyPatch,
    count: int,
) -> None:  # fmt: skip
    """A worker that looks for work of its own accord once a minute makes the deliveries at once."""
    monkeypatch.setattr("webhooks.dispatcher.dispatcher.PROMOTE_EVERY_S", 60.0)
    make_endpoints(connection, count)
    connection.execute("UPDATE webhooks.lanes SET open_at = 'infinity'")
    with dispatching(settings):
        eventually(lambda: one(connection, RESTING))
        Api(app).post("/events", {"type": "a", "payload": 1})

        eventually(lambda: statuses(connection) == {"pending": count}, 10)


def test_progress_is_told_while_it_lasts(app: Flask, connection: psycopg.Connection) -> None:
    """GET /events/<id> says how far the fan-out is, and nothing of it when it is whole."""
    api = Api(app)
    make_endpoints(connection, 2_200)
    posted = api.post("/events", {"type": "a", "payload": 1})
    assert posted.json is not None
    assert posted.json["deliveries"] == 2_200
    path = f"/events/{posted.json['id']}"

    told = []
    for _ in range(4):
        answer = api.get(path)
        assert answer.json is not None
        told.append((answer.json.get("fanout"), len(answer.json["deliveries"]["data"])))
        expand(connection)

    of = {"of": 2_200}
    page = told[1][1]
    assert page > 0
    assert told == [
        ({"expanded": 0, **of}, 0),
        ({"expanded": 1_000, **of}, page),
        ({"expanded": 2_000, **of}, page),
        (None, page),
    ]


def test_progress_of_one_event(connection: psycopg.Connection, tenant: UUID) -> None:
    """Each event has its own; one without a large fan-out has none."""
    make_endpoints(connection, 1_200)
    event_id = emit(connection)
    expand(connection)
    emit(connection)

    assert fanouts.progress(connection, tenant, event_id) == Progress(1_000, 1_200)
    assert fanouts.progress(connection, tenant, UUID(int=0)) is None
