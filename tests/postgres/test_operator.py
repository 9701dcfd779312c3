"""What a person does to deliveries: replay, retry now, cancel."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.queue import claim, delivered, emit, make_endpoint, one, outcome, register, statuses
from webhooks import deliveries
from webhooks.attempt import Claim, ErrorClass
from webhooks.db import transaction
from webhooks.deliveries import Missing, Refused, Settlement
from webhooks.deliveries.cancelling import PENDING_BELOW, SCHEDULED_AFTER


def finish(connection: psycopg.Connection, worker_id: UUID, *, dead: bool) -> Claim:
    """One emitted delivery, delivered or dead-lettered."""
    emit(connection)
    (claimed,) = claim(connection, worker_id)
    failed = Settlement(claimed, outcome(ErrorClass.HTTP_5XX, 500), None)
    deliveries.settle(connection, worker_id, [failed if dead else delivered(claimed)])
    return claimed


@pytest.mark.parametrize("dead", [True, False])
def test_a_replay_starts_the_ladder_anew(connection: psycopg.Connection, dead: bool) -> None:
    """Same event and bytes, all tries again, and the attempt's number goes on (W012, W170)."""
    make_endpoint(connection)
    worker_id = register(connection)
    first = finish(connection, worker_id, dead=dead)

    deliveries.replay(connection, first.delivery_id, None, actor="ana")

    (again,) = claim(connection, worker_id)
    assert (again.delivery_id, again.event_id) == (first.delivery_id, first.event_id)
    assert again.payload == first.payload
    assert (again.attempt, again.tries, again.trigger) == (2, 0, "manual")
    later = Settlement(again, outcome(ErrorClass.TIMEOUT), timedelta(0))
    deliveries.settle(connection, worker_id, [later])
    deliveries.promote(connection)
    (third,) = claim(connection, worker_id)
    assert (third.attempt, third.tries, third.trigger) == (3, 1, "schedule")
    assert one(connection, "SELECT actor || action FROM webhooks.audit_log") == (
        "anadelivery.replayed"
    )


def test_a_replay_of_a_live_delivery_is_refused(connection: psycopg.Connection) -> None:
    """What has not finished cannot be replayed, so a second press changes nothing (W171)."""
    make_endpoint(connection)
    worker_id = register(connection)
    first = finish(connection, worker_id, dead=True)
    deliveries.replay(connection, first.delivery_id, None, actor="ana")

    with pytest.raises(Refused, match="pending"):
        deliveries.replay(connection, first.delivery_id, None, actor="ana")

    assert statuses(connection) == {"pending": 1}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("UPDATE webhooks.endpoints SET status = 'disabled', status_reason = 'gone'", "disabled"),
        ("UPDATE webhooks.endpoints SET deleted_at = now()", "deleted"),
        ("DELETE FROM webhooks.events", "payload is gone"),
    ],
)
def test_a_replay_that_cannot_arrive_is_refused_with_the_reason(
    connection: psycopg.Connection, change: str, reason: str
) -> None:
    """Disabled, deleted, or past retention: 409 in words, and nothing is queued (W159)."""
    make_endpoint(connection)
    worker_id = register(connection)
    first = finish(connection, worker_id, dead=True)
    connection.execute(change)

    with pytest.raises(Refused, match=reason):
        deliveries.replay(connection, first.delivery_id, None, actor="ana")

    assert statuses(connection) == {"dead_lettered": 1}


def test_a_replay_to_a_paused_endpoint_is_held(connection: psycopg.Connection) -> None:
    """It becomes pending behind the closed lane, and the answer says so."""
    make_endpoint(connection)
    worker_id = register(connection)
    first = finish(connection, worker_id, dead=True)
    connection.execute("UPDATE webhooks.endpoints SET status = 'paused'")
    connection.execute("UPDATE webhooks.lanes SET open_at = 'infinity'")

    assert (
        deliveries.replay(connection, first.delivery_id, None, actor="ana")
        == "the endpoint is paused"
    )

    assert statuses(connection) == {"pending": 1}
    assert claim(connection, worker_id) == ()


def test_another_tenants_delivery_is_missing(connection: psycopg.Connection) -> None:
    """A foreign id is answered like one that does not exist (W158)."""
    make_endpoint(connection)
    first = finish(connection, register(connection), dead=True)
    theirs = uuid4()

    for action in (deliveries.replay, deliveries.retry_now):
        with pytest.raises(Missing):
            action(connection, first.delivery_id, theirs, actor="eve")
    with pytest.raises(Missing):
        deliveries.cancel(connection, first.delivery_id, theirs, actor="eve", reason="x")
    with pytest.raises(Missing):
        deliveries.replay(connection, uuid4(), None, actor="eve")


def test_retry_now_skips_the_wait(connection: psycopg.Connection) -> None:
    """A scheduled retry is pending at once and keeps its count of tries."""
    make_endpoint(connection)
    emit(connection)
    worker_id = register(connection)
    (claimed,) = claim(connection, worker_id)
    failed = Settlement(claimed, outcome(ErrorClass.TIMEOUT), timedelta(hours=1))
    deliveries.settle(connection, worker_id, [failed])

    deliveries.retry_now(connection, claimed.delivery_id, None, actor="ana")

    (again,) = claim(connection, worker_id)
    assert (again.attempt, again.tries, again.trigger) == (2, 1, "manual")
    with pytest.raises(Refused, match="in_flight"):
        deliveries.retry_now(connection, claimed.delivery_id, None, actor="ana")


def schedule(connection: psycopg.Connection, worker_id: UUID, wait: timedelta) -> list[Claim]:
    """Claim what is pending and let it fail once."""
    claimed = list(claim(connection, worker_id))
    failed = outcome(ErrorClass.TIMEOUT)
    deliveries.settle(connection, worker_id, [Settlement(c, failed, wait) for c in claimed])
    return claimed


@pytest.mark.parametrize("status", ["paused", "disabled"])
def test_retry_now_follows_the_endpoints_status(
    connection: psycopg.Connection, status: str
) -> None:
    """Held for a paused endpoint; refused for a disabled one, and it stays scheduled."""
    make_endpoint(connection)
    emit(connection)
    (failed,) = schedule(connection, register(connection), timedelta(hours=1))
    connection.execute(
        "UPDATE webhooks.endpoints SET status = %s, status_reason = 'gone'", [status]
    )

    if status == "paused":
        assert (
            deliveries.retry_now(connection, failed.delivery_id, None, actor="ana")
            == "the endpoint is paused"
        )
        assert statuses(connection) == {"pending": 1}
        return
    with pytest.raises(Refused, match=r"disabled \(gone\)"):
        deliveries.retry_now(connection, failed.delivery_id, None, actor="ana")
    assert statuses(connection) == {"scheduled": 1}


def test_a_waiting_delivery_can_be_cancelled(connection: psycopg.Connection) -> None:
    """Cancelled: final, with the reason; one in flight is refused."""
    make_endpoint(connection)
    emit(connection)
    worker_id = register(connection)
    (claimed,) = claim(connection, worker_id)
    delivery_id = claimed.delivery_id
    with pytest.raises(Refused, match="in_flight"):
        deliveries.cancel(connection, delivery_id, None, actor="ana", reason="not needed")
    deliveries.give_back(connection, worker_id, deliveries.held_by(connection, worker_id))

    deliveries.cancel(connection, delivery_id, None, actor="ana", reason="not needed")

    assert statuses(connection) == {"cancelled": 1}
    assert one(connection, "SELECT reason FROM webhooks.deliveries") == "not needed"
    with pytest.raises(Refused, match="cancelled"):
        deliveries.cancel(connection, delivery_id, None, actor="ana", reason="again")


def test_deleting_an_endpoint_cancels_all_that_waits_for_it(
    connection: psycopg.Connection,
) -> None:
    """Pending and scheduled rows of one endpoint go, over many chunks; others stay."""
    endpoint_id = make_endpoint(connection, cap=10)
    emit(connection, 1200)
    worker_id = register(connection)
    failed = outcome(ErrorClass.TIMEOUT)
    deliveries.settle(
        connection,
        worker_id,
        [Settlement(c, failed, timedelta(hours=1)) for c in claim(connection, worker_id)],
    )
    make_endpoint(connection)
    emit(connection)

    assert deliveries.cancel_endpoint(connection, endpoint_id, "endpoint deleted") == 1201
    assert statuses(connection) == {"cancelled": 1201, "pending": 1}


def test_what_is_newer_is_not_cancelled(connection: psycopg.Connection) -> None:
    """Live, bulk and scheduled ones made before the time go, over many chunks (W089)."""
    endpoint_id = make_endpoint(connection, cap=1000)
    worker_id = register(connection)
    emit(connection, 700)
    schedule(connection, worker_id, timedelta(0))  # the same due time for many
    emit(connection, 1300)
    connection.execute(
        "UPDATE webhooks.deliveries SET priority = 1 WHERE id IN "
        "(SELECT id FROM webhooks.deliveries_queue WHERE status = 'pending' LIMIT 600)"
    )
    before = one(connection, "SELECT clock_timestamp() + interval '1 ms'")
    connection.execute("SELECT pg_sleep(0.002)")
    emit(connection, 600)
    schedule(connection, worker_id, timedelta(hours=1))
    newer = "SELECT count(*) FROM webhooks.deliveries WHERE id >= webhooks.uuid7_floor(%s)"
    kept = statuses(connection)

    cancelled = deliveries.cancel_endpoint(connection, endpoint_id, "not released", before)

    assert cancelled == 2000
    assert one(connection, f"{newer} AND finished_at = 'infinity'", before) == 600
    assert one(connection, newer, before) == 600
    assert sum(kept.values()) == 2600
    assert statuses(connection)["cancelled"] == 2000


def test_nothing_was_made_before_1970(connection: psycopg.Connection) -> None:
    """A time before the ids begin cancels nothing, instead of all (it wraps around)."""
    endpoint_id = make_endpoint(connection)
    emit(connection, 2)

    for before in (datetime(1969, 12, 31, tzinfo=UTC), datetime.min.replace(tzinfo=UTC)):
        assert deliveries.cancel_endpoint(connection, endpoint_id, "x", before) == 0

    assert statuses(connection) == {"pending": 2}


@pytest.mark.parametrize("name", ["pending", "scheduled"])
def test_newer_deliveries_are_not_read(connection: psycopg.Connection, name: str) -> None:
    """A look for older ones costs the same whatever came since: an index's range, no more."""
    endpoint_id = make_endpoint(connection)
    before = one(connection, "SELECT webhooks.uuid7()")
    connection.execute(
        "INSERT INTO webhooks.deliveries (shard, tenant_id, event_id, endpoint_id, event_type, "
        "status, due_at) SELECT shard, tenant_id, webhooks.uuid7(), endpoint_id, 'a', %s::text, "
        "CASE WHEN %s = 'scheduled' THEN now() + n * interval '1 s' END "
        "FROM webhooks.lanes, generate_series(1, 20000) AS n",
        [name, name],
    )
    values = {
        "shard": one(connection, "SELECT shard FROM webhooks.lanes"), "endpoint": endpoint_id,
        "priority": 0, "after": UUID(int=0), "below": before, "due_at": "-infinity", "rows": 500,
    }  # fmt: skip
    statement = PENDING_BELOW if name == "pending" else SCHEDULED_AFTER

    with transaction(connection, "enable_seqscan = off"):
        row = connection.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", values
        ).fetchone()

    assert row is not None
    plan = row[0][0]["Plan"]
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < (
        20 if name == "pending" else 600
    )
    assert plan["Actual Rows"] == (0 if name == "pending" else 500)
