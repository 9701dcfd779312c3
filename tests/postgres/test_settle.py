"""Settling: fenced, batched, and nothing that cannot be stored stops it."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest
from flask import Flask

from tests.queue import claim, delivered, emit, make_endpoint, one, outcome, register, statuses
from webhooks import deliveries, endpoints
from webhooks.attempt import ErrorClass, Timings
from webhooks.deliveries import Settlement


def test_a_delivered_row_moves_to_history(connection: psycopg.Connection) -> None:
    """Delivered: out of the queue, with a finish time and one attempt on record."""
    make_endpoint(connection)
    emit(connection)
    worker_id = register(connection)
    (claimed,) = claim(connection, worker_id)

    held = deliveries.settle(connection, worker_id, [delivered(claimed)])

    assert held == {claimed.delivery_id}
    assert statuses(connection) == {"delivered": 1}
    assert one(connection, "SELECT count(*) FROM webhooks.deliveries_queue") == 0
    assert one(connection, "SELECT number FROM webhooks.attempts") == 1
    assert one(connection, "SELECT status_code FROM webhooks.deliveries") == 200


def test_a_failed_row_waits_for_its_retry(connection: psycopg.Connection) -> None:
    """Failed with a delay: scheduled, due by the database's clock, one try charged."""
    make_endpoint(connection)
    emit(connection)
    worker_id = register(connection)
    (claimed,) = claim(connection, worker_id)
    failed = Settlement(claimed, outcome(ErrorClass.HTTP_5XX, 500), timedelta(seconds=60))

    deliveries.settle(connection, worker_id, [failed])

    assert statuses(connection) == {"scheduled": 1}
    assert one(connection, "SELECT tries FROM webhooks.deliveries") == 1
    wait = one(connection, "SELECT extract(epoch FROM due_at - now()) FROM webhooks.deliveries")
    assert 58 < wait <= 60


def test_a_row_without_tries_left_is_a_dead_letter(connection: psycopg.Connection) -> None:
    """Failed without a delay: dead-lettered, with the reason in words."""
    make_endpoint(connection)
    emit(connection)
    worker_id = register(connection)
    (claimed,) = claim(connection, worker_id)

    deliveries.settle(
        connection, worker_id, [Settlement(claimed, outcome(ErrorClass.HTTP_5XX, 500), None)]
    )

    assert statuses(connection) == {"dead_lettered": 1}
    assert one(connection, "SELECT reason FROM webhooks.deliveries") == "HTTP 500 after 1 tries"


def test_a_reclaimed_row_is_not_settled_by_its_old_worker(connection: psycopg.Connection) -> None:
    """The fence: another claim of the same row is untouched, and no attempt is recorded (W107)."""
    make_endpoint(connection)
    emit(connection)
    old, new = register(connection), register(connection)
    (stale,) = claim(connection, old)
    deliveries.give_back(connection, old, deliveries.held_by(connection, old))
    (fresh,) = claim(connection, new)

    assert deliveries.settle(connection, old, [delivered(stale)]) == set()
    assert statuses(connection) == {"in_flight": 1}
    assert one(connection, "SELECT count(*) FROM webhooks.attempts") == 0
    assert deliveries.settle(connection, new, [delivered(fresh)]) == {fresh.delivery_id}


def test_a_worker_without_a_row_settles_nothing(connection: psycopg.Connection) -> None:
    """A worker that lost its lease changes nothing, even if its rows were not taken yet."""
    make_endpoint(connection)
    emit(connection)
    worker_id = register(connection)
    (claimed,) = claim(connection, worker_id)
    connection.execute("DELETE FROM webhooks.workers")

    assert deliveries.settle(connection, worker_id, [delivered(claimed)]) == set()
    assert statuses(connection) == {"in_flight": 1}


def test_settling_twice_records_once(connection: psycopg.Connection) -> None:
    """A batch that is sent again after a lost commit answer changes nothing more."""
    make_endpoint(connection)
    emit(connection)
    worker_id = register(connection)
    (claimed,) = claim(connection, worker_id)

    deliveries.settle(connection, worker_id, [delivered(claimed)])
    deliveries.settle(connection, worker_id, [delivered(claimed)])

    assert one(connection, "SELECT count(*) FROM webhooks.attempts") == 1
    assert one(connection, "SELECT tries FROM webhooks.deliveries") == 1


def test_what_came_back_is_kept(connection: psycopg.Connection) -> None:
    """Headers, body, timings and peer of the attempt are stored as they were."""
    make_endpoint(connection)
    emit(connection)
    worker_id = register(connection)
    (claimed,) = claim(connection, worker_id)
    came = outcome(
        None,
        201,
        peer="127.0.0.1",
        timings=Timings(1, 2, None, 30, 40),
        request_headers=(("webhook-id", "evt_x"),),
        response_headers=(("Server", "x\x00\udcff"),),
        body=b"\x00\xff<b>",
        truncated=True,
    )

    deliveries.settle(connection, worker_id, [Settlement(claimed, came, None)])

    row = connection.execute(
        "SELECT status_code, peer, dns_ms, tls_ms, total_ms, request_headers, response_body, "
        "truncated FROM webhooks.attempts").fetchone()  # fmt: skip
    assert row == (
        201, "127.0.0.1", 1.0, None, 40.0, [["webhook-id", "evt_x"]], b"\x00\xff<b>", True
    )  # fmt: skip


def test_a_row_that_cannot_be_stored_is_settled_alone(connection: psycopg.Connection) -> None:
    """Poison keeps its verdict without its record's details; its batch goes on (W118)."""
    make_endpoint(connection)
    emit(connection, 4)
    worker_id = register(connection)
    claimed = claim(connection, worker_id)
    poison = Settlement(claimed[2], outcome(None, 200, peer="nul\x00"), None)
    batch = [delivered(claimed[0]), delivered(claimed[1]), poison, delivered(claimed[3])]

    held = deliveries.settle(connection, worker_id, batch)

    assert len(held) == 4
    assert statuses(connection) == {"delivered": 4}
    details = one(
        connection,
        "SELECT detail FROM webhooks.attempts WHERE delivery_id = %s",
        claimed[2].delivery_id,
    )
    assert "could not be stored" in details


def test_a_missing_partition_is_made_and_nothing_is_lost(connection: psycopg.Connection) -> None:
    """With every day partition of history gone, a settle makes them and succeeds (W137)."""
    make_endpoint(connection)
    emit(connection)
    worker_id = register(connection)
    (claimed,) = claim(connection, worker_id)
    for (name,) in connection.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent IN "
        "('webhooks.deliveries'::regclass, 'webhooks.attempts'::regclass) "
        "AND inhrelid <> 'webhooks.deliveries_queue'::regclass").fetchall():  # fmt: skip
        connection.execute(f"DROP TABLE {name}")

    deliveries.settle(connection, worker_id, [delivered(claimed)])

    assert statuses(connection) == {"delivered": 1}
    assert one(connection, "SELECT count(*) FROM webhooks.attempts") == 1


def lane(connection: psycopg.Connection) -> tuple[object, ...]:
    row = connection.execute(
        "SELECT failures, failing_since IS NULL, open_at = 'infinity', open_at > now() "
        "FROM webhooks.lanes").fetchone()  # fmt: skip
    assert row is not None
    return row


def test_a_lane_counts_failures_in_a_row(connection: psycopg.Connection) -> None:
    """Failures add up over batches and a success ends them."""
    make_endpoint(connection)
    emit(connection, 3)
    worker_id = register(connection)
    a, b, c = claim(connection, worker_id)
    broken = outcome(ErrorClass.CONNECT)

    deliveries.settle(connection, worker_id, [Settlement(a, broken, timedelta(1))])
    deliveries.settle(connection, worker_id, [Settlement(b, broken, timedelta(1))])
    assert lane(connection) == (2, False, False, False)

    deliveries.settle(connection, worker_id, [delivered(c)])
    assert lane(connection) == (0, True, False, False)


def test_gone_disables_the_endpoint(connection: psycopg.Connection) -> None:
    """410 closes the lane for good, disables the endpoint and says why; the rest is held."""
    make_endpoint(connection, cap=1)
    emit(connection, 2)
    worker_id = register(connection)
    (claimed,) = claim(connection, worker_id)

    deliveries.settle(
        connection, worker_id, [Settlement(claimed, outcome(ErrorClass.HTTP_4XX, 410), None)]
    )

    assert lane(connection)[2]
    assert statuses(connection) == {"dead_lettered": 1, "pending": 1}
    assert one(connection, "SELECT status FROM webhooks.endpoints") == "disabled"
    assert "410" in one(connection, "SELECT status_reason FROM webhooks.endpoints")
    assert one(connection, "SELECT action FROM webhooks.audit_log") == "endpoint.disabled"
    assert claim(connection, worker_id) == ()


@pytest.mark.parametrize(("code", "asked"), [(429, 120.0), (503, 120.0), (502, 120.0)])
def test_throttled_lanes_wait_as_long_as_was_asked(
    connection: psycopg.Connection, code: int, asked: float
) -> None:
    """429, 502, 503 and 504 close the lane until Retry-After."""
    make_endpoint(connection)
    emit(connection)
    worker_id = register(connection)
    (claimed,) = claim(connection, worker_id)
    busy = outcome(ErrorClass.HTTP_4XX, code, retry_after_s=asked)

    deliveries.settle(connection, worker_id, [Settlement(claimed, busy, timedelta(seconds=300))])

    wait = one(connection, "SELECT extract(epoch FROM open_at - now()) FROM webhooks.lanes")
    assert asked - 2 < wait <= asked
    assert one(connection, "SELECT status FROM webhooks.endpoints") == "active"


def test_three_blocked_addresses_in_a_row_pause_the_endpoint(
    connection: psycopg.Connection,
) -> None:
    """A target that may not be reached is paused with the reason, and its events are held.

    Refusals of the same minute, which may be of one look-up, count once.
    """
    make_endpoint(connection)
    emit(connection, 9)
    worker_id = register(connection)
    claimed = claim(connection, worker_id)
    blocked = outcome(ErrorClass.BLOCKED_ADDRESS)

    for n in range(3):
        assert one(connection, "SELECT status FROM webhooks.endpoints") == "active"
        settlements = [Settlement(c, blocked, timedelta(1)) for c in claimed[3 * n : 3 * n + 3]]
        deliveries.settle(connection, worker_id, settlements)
        connection.execute("UPDATE webhooks.lanes SET blocked_at = now() - interval '1 min'")

    assert one(connection, "SELECT status FROM webhooks.endpoints") == "paused"
    assert lane(connection)[2]


@pytest.mark.parametrize(
    ("error", "delay", "status"),
    [
        (None, None, "delivered"),
        (ErrorClass.HTTP_4XX, None, "dead_lettered"),
        (ErrorClass.HTTP_5XX, timedelta(hours=1), "scheduled"),
    ],
    ids=["answered 2xx", "refused", "to be tried again"],
)
def test_a_row_that_cannot_even_be_recorded_moves_on(
    connection: psycopg.Connection, error: ErrorClass | None, delay: timedelta | None, status: str
) -> None:
    """It does not stop its batch; its try counts, and it becomes what its verdict says."""
    make_endpoint(connection)
    emit(connection, 3)
    worker_id = register(connection)
    claimed = claim(connection, worker_id)
    connection.execute(
        "ALTER TABLE webhooks.attempts ADD CONSTRAINT poison CHECK "
        f"(delivery_id <> '{claimed[1].delivery_id}')"
    )

    batch = [Settlement(c, outcome(error, 404 if error else 200), delay) for c in claimed]
    held = deliveries.settle(connection, worker_id, batch)

    assert len(held) == 3
    assert statuses(connection) == {status: 3}
    assert one(connection, "SELECT sum(tries) FROM webhooks.deliveries") == 3
    unrecorded = connection.execute(
        "SELECT id FROM webhooks.deliveries WHERE reason = 'its outcome cannot be recorded'"
    ).fetchall()
    assert unrecorded == ([] if delay else [(claimed[1].delivery_id,)])


def close_lane(connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """A settle that closed a lane, whose process died before it said so."""
    make_endpoint(connection)
    emit(connection)
    worker_id = register(connection)
    (claimed,) = claim(connection, worker_id)
    with monkeypatch.context() as patch:
        patch.setattr("webhooks.deliveries.settlement.show_closed", lambda connection: 0)
        gone = Settlement(claimed, outcome(ErrorClass.HTTP_4XX, 410), None)
        deliveries.settle(connection, worker_id, [gone])
    assert one(connection, "SELECT status FROM webhooks.endpoints") == "active"


def test_a_closed_lane_is_shown_even_after_a_crash(
    connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lane that is closed for good never stays behind an endpoint that looks active."""
    close_lane(connection, monkeypatch)

    assert deliveries.show_closed(connection) == 1
    assert one(connection, "SELECT status FROM webhooks.endpoints") == "disabled"
    assert deliveries.show_closed(connection) == 0


def test_an_endpoint_that_was_resumed_meanwhile_stays_active(
    connection: psycopg.Connection, app: Flask
) -> None:
    """The person who resumed saw the newer state: the engine's old verdict is not shown."""
    make_endpoint(connection)
    emit(connection)
    worker_id = register(connection)
    (claimed,) = claim(connection, worker_id)
    with app.app_context():
        endpoint = endpoints.find(None, one(connection, "SELECT id FROM webhooks.endpoints"))
        assert endpoint is not None
        endpoints.pause(endpoint, actor="ana")
        gone = Settlement(claimed, outcome(ErrorClass.HTTP_4XX, 410), None)
        deliveries.settle(connection, worker_id, [gone])
        endpoints.resume(endpoint, actor="ana")

    assert deliveries.show_closed(connection) == 0
    assert one(connection, "SELECT status FROM webhooks.endpoints") == "active"
    assert not lane(connection)[2]


def test_a_table_that_does_not_fit_costs_no_delivery(connection: psycopg.Connection) -> None:
    """A missing column is nobody's poison: nothing is settled, and it is tried again later."""
    make_endpoint(connection)
    emit(connection, 2)
    worker_id = register(connection)
    claimed = claim(connection, worker_id)
    connection.execute("ALTER TABLE webhooks.attempts RENAME detail TO other")
    with pytest.raises(psycopg.ProgrammingError):
        deliveries.settle(connection, worker_id, [delivered(c) for c in claimed])

    connection.execute("ALTER TABLE webhooks.attempts RENAME other TO detail")

    assert len(deliveries.settle(connection, worker_id, [delivered(c) for c in claimed])) == 2
    assert statuses(connection) == {"delivered": 2}
