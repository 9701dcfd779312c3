"""What a person does to deliveries: replay, retry now, cancel."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.queue import claim, delivered, emit, make_endpoint, one, outcome, register, statuses
from webhooks import deliveries
from webhooks.attempt import Claim, ErrorClass
from webhooks.deliveries import Missing, Refused, Settlement


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
    """It becomes pending behind the closed lane."""
    make_endpoint(connection)
    worker_id = register(connection)
    first = finish(connection, worker_id, dead=True)
    connection.execute("UPDATE webhooks.endpoints SET status = 'paused'")
    connection.execute("UPDATE webhooks.lanes SET open_at = 'infinity'")

    deliveries.replay(connection, first.delivery_id, None, actor="ana")

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
