"""Stories of queues that others have told, on ours: one worker, real sockets."""

from __future__ import annotations

import logging
import re
import time

import psycopg
import pytest
from flask import Flask

from tests import queue
from tests.dispatching import dispatching, make_target
from tests.queue import emit, one, register, statuses
from tests.rawserver import RawServer, raw, silent
from tests.recorder import Received, Recorder
from tests.stack import eventually, free_port
from webhooks import endpoints, ids
from webhooks.settings import Settings


class Capacity:
    """Answers 429 past ``per_second`` requests within a second; notes what came when."""

    def __init__(self, per_second: int) -> None:
        self.per_second = per_second
        self.times: list[float] = []
        self.refused = 0

    def __call__(self, nth: int, request: Received) -> int:
        self.times.append(request.at)
        lately = sum(1 for at in self.times if at > request.at - 1)
        if lately > self.per_second:
            self.refused += 1
        return 429 if lately > self.per_second else 200


def test_a_backlog_does_not_fall_upon_an_endpoint_that_returns(
    connection: psycopg.Connection, settings: Settings
) -> None:
    """After an outage the rate limit and the cap hold, oldest first, each once (W095)."""
    events, rate, burst, cap = 240, 60, 10, 5
    port = free_port()
    make_target(connection, f"http://127.0.0.1:{port}/hook", cap=cap)
    connection.execute("UPDATE webhooks.lanes SET rate_limit = %s, rate_burst = %s", [rate, burst])
    emit(connection, events)
    with dispatching(settings, breaker_first_s=0.5, breaker_longest_s=0.5, retry_attempts=50):
        eventually(lambda: one(connection, "SELECT broken_s > 0 FROM webhooks.lanes"))
        capacity = Capacity(rate + burst)
        with Recorder(capacity, port=port, delay_s=0.02) as receiver:
            eventually(lambda: statuses(connection) == {"delivered": events}, 30)

    assert capacity.refused == 0
    assert set(receiver.counts().values()) == {1}
    assert receiver.most_at_once <= cap
    first = [r.id for r in receiver.requests if r.headers["webhook-attempt"] == "1"]
    assert len(first) > events / 2
    # Those that are in flight together may arrive in any order.
    moved = (abs(place - rank) for rank, place in enumerate(map(sorted(first).index, first)))
    assert max(moved) < cap


def test_endpoints_of_one_event_are_independent(
    connection: psycopg.Connection, settings: Settings
) -> None:
    """One hangs, one answers nonsense, the third gets its delivery at once (W098)."""
    nonsense = raw(b"HTTP/1.1 200 OK\r\nno colon here\x00\r\n\x01: \xff\r\n\r\n")
    with RawServer(silent) as hangs, RawServer(nonsense) as odd, Recorder() as good:
        for url in (hangs.url(), odd.url(), good.url):
            make_target(connection, url)
        connection.execute("UPDATE webhooks.endpoints SET timeout_s = 1")
        begun = time.time()
        with dispatching(settings, retry_attempts=1):
            emit(connection)
            eventually(lambda: good.requests)
            eventually(lambda: not statuses(connection).keys() & {"pending", "in_flight"}, 30)

    assert good.requests[0].at - begun < 2
    assert sum(statuses(connection).values()) == 3
    assert "timeout" in dict(
        connection.execute("SELECT error_class, 1 FROM webhooks.attempts").fetchall()
    )


def test_the_id_tells_the_order_of_acceptance_when_retries_do_not(
    connection: psycopg.Connection, settings: Settings
) -> None:
    """The first fails once and arrives second; its webhook-id still is the smaller (W124)."""
    with Recorder(lambda nth, _: 500 if nth == 1 else 200) as receiver:
        make_target(connection, receiver.url, cap=1)
        with connection.transaction():
            first, second = (
                one(connection, "SELECT webhooks.emit('default', 'a', '{}')") for _ in range(2)
            )
        with dispatching(settings, retry_base_s=0.5):
            eventually(lambda: statuses(connection) == {"delivered": 2})

    arrived = [r.id for r in receiver.requests]
    expected = [ids.encode(ids.EVENT, event) for event in (first, second)]
    assert arrived == [expected[0], expected[1], expected[0]]
    assert sorted(arrived[1:]) == expected


@pytest.mark.parametrize("url", ["database_url", "old_database_url"], ids=["newest", "15"])
def test_ids_grow_within_a_millisecond(url: str, request: pytest.FixtureRequest) -> None:
    """500 emits in a row get growing ids, on servers older than 18 too (W124)."""
    with psycopg.connect(request.getfixturevalue(url), autocommit=True) as connection:
        made = one(
            connection,
            "SELECT array_agg(webhooks.emit('default', 'a', '{}') ORDER BY n) "
            "FROM generate_series(1, 500) AS n",
        )

    assert made == sorted(made)
    milliseconds = {made_id.int >> 80 for made_id in made}
    assert len(milliseconds) < len(made), "so slow that milliseconds alone tell them apart"


def test_a_conflicting_record_costs_its_own_delivery_alone(
    connection: psycopg.Connection, settings: Settings
) -> None:
    """One of ten cannot be recorded: all are delivered, one says so, none is sent again (W127)."""
    with Recorder() as receiver:
        make_target(connection, receiver.url)
        connection.execute("UPDATE webhooks.lanes SET open_at = 'infinity'")
        emit(connection, 10)
        day = one(connection, "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')")
        connection.execute(f"CREATE UNIQUE INDEX ON webhooks.attempts_{day} (delivery_id, number)")
        connection.execute(
            "INSERT INTO webhooks.attempts (shard, delivery_id, number, tenant_id, endpoint_id, "
            "trigger, outcome, started_at) SELECT shard, id, 1, tenant_id, endpoint_id, trigger, "
            "'failed', now() FROM webhooks.deliveries ORDER BY id LIMIT 1"
        )
        connection.execute("UPDATE webhooks.lanes SET open_at = '-infinity'")
        with dispatching(settings):
            eventually(lambda: not statuses(connection).keys() & {"pending", "in_flight"})
            time.sleep(0.5)

    assert statuses(connection) == {"delivered": 10}
    reason = "its outcome cannot be recorded"
    unrecorded = "SELECT count(*) FROM webhooks.deliveries WHERE reason = %s"
    assert one(connection, unrecorded, reason) == 1
    assert (
        one(connection, "SELECT count(*) FROM webhooks.attempts WHERE outcome = 'delivered'") == 9
    )
    assert set(receiver.counts().values()) == {1}


def test_a_deleted_endpoint_leaves_no_rows_and_no_complaints(
    connection: psycopg.Connection, settings: Settings, app: Flask, caplog: pytest.LogCaptureFixture
) -> None:
    """Deleted while its receiver is away: all is cancelled, two restarts find nothing (W119)."""
    target = make_target(connection, f"http://127.0.0.1:{free_port()}/")
    emit(connection, 10)
    with dispatching(settings):
        eventually(lambda: one(connection, "SELECT count(*) FROM webhooks.attempts") > 0)
    with app.app_context():
        endpoint = endpoints.find(None, target)
        assert endpoint is not None
        endpoints.delete(endpoint, actor="ada")
    # What an emit committed that had seen it before it was deleted.
    connection.execute(
        "INSERT INTO webhooks.deliveries_queue (shard, tenant_id, event_id, endpoint_id, "
        "event_type) SELECT shard, tenant_id, event_id, endpoint_id, event_type "
        "FROM webhooks.deliveries LIMIT 1"
    )
    for _ in range(2):
        caplog.clear()
        with dispatching(settings):
            eventually(lambda: not statuses(connection).keys() & {"pending", "in_flight"})
            eventually(
                lambda: one(connection, "SELECT count(*) FROM webhooks.deliveries_queue") == 0
            )

    finished = statuses(connection)
    assert finished.keys() <= {"cancelled", "dead_lettered"}
    assert sum(finished.values()) == 11
    reasons = connection.execute(
        "SELECT DISTINCT reason FROM webhooks.deliveries WHERE status = 'cancelled'"
    ).fetchall()
    assert reasons == [("endpoint deleted",)]
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


def test_each_state_that_is_not_final_has_an_exit(
    connection: psycopg.Connection, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two days old and pending, scheduled, in flight under nobody, the dead or us (W128)."""
    monkeypatch.setattr("webhooks.dispatcher.dispatcher.RECLAIM_EVERY_S", 0.5)
    with Recorder() as receiver, dispatching(settings) as running:
        eventually(lambda: running._lease.current)
        make_target(connection, receiver.url)
        dead = register(connection)
        queue.expire(connection, dead)
        holders = {"nobody": one(connection, "SELECT webhooks.uuid7()"), "the dead": dead}
        holders["us"] = running._lease.current
        with connection.transaction():
            emit(connection, 2 + len(holders))
            rows = [
                r[0] for r in connection.execute("SELECT id FROM webhooks.deliveries").fetchall()
            ]
            connection.execute(
                "UPDATE webhooks.deliveries_queue SET created_at = now() - interval '2 days'"
            )
            connection.execute(
                "UPDATE webhooks.deliveries_queue SET status = 'scheduled', "
                "due_at = now() - interval '2 days' WHERE id = %s", [rows[0]])  # fmt: skip
            for row, holder in zip(rows[1:], holders.values(), strict=False):
                connection.execute(
                    "UPDATE webhooks.deliveries_queue SET status = 'in_flight', worker_id = %s, "
                    "attempts = 1, claimed_at = now() - interval '2 days' WHERE id = %s",
                    [holder, row],
                )
        eventually(lambda: statuses(connection) == {"delivered": len(rows)}, 20)

    assert len(receiver.requests) == len(rows)
    rule = one(
        connection,
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE conname = 'ck_deliveries_finished_at' "
        "AND conrelid = 'webhooks.deliveries'::regclass",
    )
    assert set(re.findall(r"'(\w+)'::text", rule)) == {"pending", "in_flight", "scheduled"}
