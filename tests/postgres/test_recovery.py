"""Recovery: due retries, dead workers, rows given back."""

from __future__ import annotations

import threading
from datetime import timedelta
from uuid import uuid4

import psycopg

from tests.queue import (
    claim,
    delivered,
    emit,
    expire,
    make_endpoint,
    one,
    outcome,
    register,
    statuses,
)
from webhooks import deliveries, workers
from webhooks.attempt import ErrorClass
from webhooks.db import connect, transaction
from webhooks.deliveries import Settlement


def test_a_due_retry_becomes_pending(connection: psycopg.Connection) -> None:
    """Only what is due by the database's clock is promoted; its tries stay charged."""
    make_endpoint(connection)
    emit(connection, 2)
    worker_id = register(connection)
    due, later = claim(connection, worker_id)
    failed = outcome(ErrorClass.HTTP_5XX, 500)
    deliveries.settle(
        connection,
        worker_id,
        [Settlement(due, failed, timedelta(0)), Settlement(later, failed, timedelta(hours=1))],
    )

    assert deliveries.promote(connection) == 1
    assert statuses(connection) == {"pending": 1, "scheduled": 1}
    (again,) = claim(connection, worker_id)
    assert (again.delivery_id, again.attempt, again.tries) == (due.delivery_id, 2, 1)


def test_a_dead_workers_rows_return(connection: psycopg.Connection) -> None:
    """After the lease, any worker takes the rows back, charges a try and records the loss."""
    make_endpoint(connection)
    emit(connection, 3)
    dead, alive = register(connection), register(connection)
    claim(connection, dead, room=3)
    expire(connection, dead)

    assert deliveries.reclaim(connection) == 3

    assert statuses(connection) == {"pending": 3}
    assert one(connection, "SELECT DISTINCT error_class FROM webhooks.attempts") == "worker_lost"
    assert [w for (w,) in connection.execute("SELECT id FROM webhooks.workers")] == [alive]
    assert {(c.attempt, c.tries, c.lost) for c in claim(connection, alive)} == {(2, 1, 1)}


def test_a_live_workers_rows_stay(connection: psycopg.Connection) -> None:
    """Nothing is taken from a worker whose lease runs."""
    make_endpoint(connection)
    emit(connection, 3)
    claim(connection, register(connection))

    assert deliveries.reclaim(connection) == 0
    assert statuses(connection) == {"in_flight": 3}


def test_rows_of_an_unknown_worker_return(connection: psycopg.Connection) -> None:
    """A worker row that was pruned by hand does not strand what it held (W104)."""
    make_endpoint(connection)
    emit(connection, 2)
    claim(connection, register(connection))
    connection.execute("DELETE FROM webhooks.workers")

    assert deliveries.reclaim(connection) == 2
    assert statuses(connection) == {"pending": 2}


def test_a_new_worker_of_the_same_host_and_pid_does_not_hide_the_dead_one(
    connection: psycopg.Connection,
) -> None:
    """Incarnations have ids of their own, so a restart under the same name hides nothing (W103)."""
    make_endpoint(connection)
    emit(connection)
    dead = register(connection)
    claim(connection, dead)
    expire(connection, dead)
    reborn = register(connection)

    assert workers.beat(connection, reborn, 0)
    assert deliveries.reclaim(connection) == 1


def test_rows_that_are_not_recoverable_hide_nothing(connection: psycopg.Connection) -> None:
    """Closed lanes and many live rows do not keep a dead worker's few from returning (W106)."""
    paused = make_endpoint(connection)
    emit(connection, 400)
    live = register(connection)
    claim(connection, live, room=500)
    connection.execute(
        "UPDATE webhooks.lanes SET open_at = 'infinity' WHERE endpoint_id = %s", [paused]
    )
    make_endpoint(connection)
    emit(connection, 5)
    dead = register(connection)
    assert len(claim(connection, dead)) == 5
    expire(connection, dead)

    assert deliveries.reclaim(connection) == 5


def test_the_third_lost_worker_makes_a_dead_letter(connection: psycopg.Connection) -> None:
    """A delivery that takes its workers with it must not do so for ever."""
    make_endpoint(connection)
    emit(connection)
    for _ in range(3):
        worker_id = register(connection)
        assert len(claim(connection, worker_id)) == 1
        expire(connection, worker_id)
        deliveries.reclaim(connection)
        connection.execute(
            "UPDATE webhooks.deliveries_queue SET due_at = now() WHERE due_at > now()"
        )
        deliveries.promote(connection)

    assert statuses(connection) == {"dead_lettered": 1}
    assert one(connection, "SELECT reason FROM webhooks.deliveries") == "lost its worker 3 times"
    assert one(connection, "SELECT array_agg(number ORDER BY number) FROM webhooks.attempts") == [
        1, 2, 3
    ]  # fmt: skip


def test_a_row_that_was_settled_meanwhile_is_not_reclaimed(
    connection: psycopg.Connection, database_url: str
) -> None:
    """While a settle is open the worker's row is locked, and the reclaim passes it by (W107)."""
    make_endpoint(connection)
    emit(connection)
    worker_id = register(connection)
    (claimed,) = claim(connection, worker_id)
    expire(connection, worker_id)

    with connect(database_url, "settling") as other, transaction(other):
        other.execute("SELECT 1 FROM webhooks.workers WHERE id = %s FOR KEY SHARE", [worker_id])
        assert deliveries.reclaim(connection) == 0

    deliveries.settle(connection, worker_id, [delivered(claimed)])
    deliveries.reclaim(connection)
    assert statuses(connection) == {"delivered": 1}


def test_reclaim_waits_for_a_claim_that_is_still_open(
    connection: psycopg.Connection, database_url: str
) -> None:
    """A stalled worker's open claim is not stranded: it is taken once it commits."""
    make_endpoint(connection)
    emit(connection)
    worker_id = register(connection)
    claimed = threading.Event()
    go_on = threading.Event()

    def stall() -> None:
        with connect(database_url, "stalled") as other, transaction(other):
            other.execute("SELECT 1 FROM webhooks.workers WHERE id = %s FOR KEY SHARE", [worker_id])
            other.execute(
                "UPDATE webhooks.deliveries_queue SET status = 'in_flight', worker_id = %s",
                [worker_id],
            )
            claimed.set()
            go_on.wait(10)

    thread = threading.Thread(target=stall)
    thread.start()
    claimed.wait(10)
    expire(connection, worker_id)

    assert deliveries.reclaim(connection) == 0
    go_on.set()
    thread.join()
    assert deliveries.reclaim(connection) == 1
    assert statuses(connection) == {"pending": 1}


def test_a_lease_is_renewed_as_long_as_its_row_is_there(connection: psycopg.Connection) -> None:
    """Late is not lost: only reclaiming, which removes the row, ends an incarnation."""
    worker_id = register(connection)
    expire(connection, worker_id)

    assert workers.beat(connection, worker_id, 0)

    expire(connection, worker_id)
    deliveries.reclaim(connection)
    assert not workers.beat(connection, worker_id, 0)
    assert not workers.beat(connection, uuid4(), 0)


def test_a_restart_of_the_database_extends_every_lease(connection: psycopg.Connection) -> None:
    """Nobody can renew while the database is down, so its start counts as the last beat (W112)."""
    make_endpoint(connection)
    emit(connection)
    worker_id = register(connection, lease_s=3600)
    claim(connection, worker_id)
    connection.execute("UPDATE webhooks.workers SET seen_at = '2020-01-01'")

    up_s = one(connection, "SELECT extract(epoch FROM now() - pg_postmaster_start_time())::int")
    connection.execute("UPDATE webhooks.workers SET lease = make_interval(secs => %s)", [up_s + 60])
    assert deliveries.reclaim(connection) == 0


def test_what_is_given_back_charges_no_try(connection: psycopg.Connection) -> None:
    """A drain returns unsent rows: the number was used, the try was not."""
    make_endpoint(connection)
    emit(connection, 3)
    worker_id = register(connection)
    kept, *_ = claim(connection, worker_id)

    theirs = deliveries.held_by(connection, worker_id)
    assert deliveries.give_back(connection, worker_id, theirs - {(kept.delivery_id, 1)}) == 2

    assert statuses(connection) == {"in_flight": 1, "pending": 2}
    assert {(c.attempt, c.tries, c.lost) for c in claim(connection, worker_id)} == {(2, 0, 0)}


def test_only_the_claim_that_was_seen_is_given_back(connection: psycopg.Connection) -> None:
    """A row that was claimed again meanwhile has another number and stays (W107)."""
    make_endpoint(connection)
    emit(connection)
    worker_id = register(connection)
    claim(connection, worker_id)
    seen = deliveries.held_by(connection, worker_id)
    deliveries.give_back(connection, worker_id, seen)
    claim(connection, worker_id)

    assert deliveries.give_back(connection, worker_id, seen) == 0
    assert statuses(connection) == {"in_flight": 1}


def test_losses_with_an_answer_between_them_do_not_add_up(connection: psycopg.Connection) -> None:
    """An attempt that came to its end did not kill its worker: the count starts anew."""
    make_endpoint(connection)
    emit(connection)
    for _ in range(3):
        worker_id = register(connection)
        claim(connection, worker_id)
        expire(connection, worker_id)
        deliveries.reclaim(connection)
        alive = register(connection)
        (claimed,) = claim(connection, alive)
        failed = outcome(ErrorClass.HTTP_5XX, 500)
        deliveries.settle(connection, alive, [Settlement(claimed, failed, timedelta(0))])
        deliveries.promote(connection)

    assert statuses(connection) == {"pending": 1}


def test_a_second_loss_separates_the_suspects(connection: psycopg.Connection) -> None:
    """Rows that lost two workers return apart from each other, within 20 seconds."""
    make_endpoint(connection)
    emit(connection, 20)
    for _ in range(2):
        worker_id = register(connection)
        assert len(claim(connection, worker_id)) == 20
        expire(connection, worker_id)
        deliveries.reclaim(connection)

    assert statuses(connection) == {"scheduled": 20}
    spread = "SELECT extract(epoch FROM max(due_at) - min(due_at)) FROM webhooks.deliveries"
    assert 3 < one(connection, spread) <= 20


def test_a_worker_that_holds_something_is_not_retired(connection: psycopg.Connection) -> None:
    """A worker's row goes only when nothing hangs on it."""
    make_endpoint(connection)
    emit(connection)
    worker_id = register(connection)
    claim(connection, worker_id)

    assert not workers.retire(connection, worker_id)
    deliveries.give_back(connection, worker_id, deliveries.held_by(connection, worker_id))
    assert workers.retire(connection, worker_id)
