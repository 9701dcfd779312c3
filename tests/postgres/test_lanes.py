"""Lanes: rate limit, breaker, throttle and auto-disable as the queue lives them."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest

from tests.queue import claim, delivered, emit, make_endpoint, one, outcome, register
from webhooks import deliveries
from webhooks.attempt import Claim, ErrorClass
from webhooks.db import connect
from webhooks.deliveries import NO_CURSOR, Settlement
from webhooks.lanes import Rules

RULES = Rules(breaker_failures=3, breaker_first_s=30, breaker_longest_s=600)
REFUSED = outcome(ErrorClass.CONNECT)


def limit_rate(connection: psycopg.Connection, per_second: float, burst: int) -> None:
    connection.execute(
        "UPDATE webhooks.lanes SET rate_limit = %s, rate_burst = %s", [per_second, burst]
    )


def fail(connection: psycopg.Connection, worker_id: UUID, claims: tuple[Claim, ...]) -> None:
    refused = outcome(ErrorClass.CONNECT)
    settlements = [Settlement(each, refused, timedelta(hours=1)) for each in claims]
    deliveries.settle(connection, worker_id, settlements, RULES)


def reopen(connection: psycopg.Connection) -> None:
    """The wait is over."""
    connection.execute("UPDATE webhooks.lanes SET open_at = now()")


def audited(connection: psycopg.Connection) -> list[str]:
    rows = connection.execute("SELECT action FROM webhooks.audit_log ORDER BY id").fetchall()
    return [row[0] for row in rows]


def test_a_rate_limit_is_exact_over_all_workers(
    connection: psycopg.Connection, database_url: str
) -> None:
    """Four workers claim what GCRA allows in two seconds, the burst once and then the rate."""
    make_endpoint(connection, cap=1000)
    emit(connection, 400)
    limit_rate(connection, 50, 10)
    taken: list[float] = []
    begun = time.monotonic()

    def work() -> None:
        with connect(database_url, "w") as mine:
            worker_id = register(mine)
            while time.monotonic() - begun < 2:
                got = claim(mine, worker_id)
                taken.extend([time.monotonic() - begun] * len(got))
                time.sleep(0.005)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    last = max(taken)
    # 10 at once, then one each 20 ms; the clocks of a claim and of this test differ by little.
    assert 10 + 50 * (last - 0.1) - 3 <= len(taken) <= 10 + 50 * (last + 0.05) + 1
    assert sum(1 for at in taken if at < 0.3) <= 10 + 50 * 0.3 + 1


def test_a_burst_is_what_a_pause_saves_up(connection: psycopg.Connection) -> None:
    """However long nothing was sent, the burst is the most that goes out at once."""
    make_endpoint(connection)
    emit(connection, 50)
    limit_rate(connection, 0.001, 7)
    worker_id = register(connection)

    assert len(claim(connection, worker_id)) == 7
    assert claim(connection, worker_id) == ()
    batch = deliveries.claim(connection, worker_id, NO_CURSOR, 100)
    assert (batch.claims, batch.ended) == ((), True)
    assert 900 < batch.opens_in_s <= 1000


def test_what_a_claim_gives_back_for_its_size_is_not_charged(
    connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of 100 kB fit into a claim; the burst of seven goes out all the same, by four claims."""
    monkeypatch.setattr("webhooks.deliveries.claims.MOST_BYTES", 250_000)
    make_endpoint(connection)
    connection.execute(
        "SELECT webhooks.emit('default', 'big', to_json(repeat('x', 100000))::text) "
        "FROM generate_series(1, 9)"
    )
    limit_rate(connection, 0.001, 7)
    worker_id = register(connection)

    assert [len(claim(connection, worker_id)) for _ in range(5)] == [2, 2, 2, 1, 0]


def test_a_rate_limited_lane_takes_nothing_from_others(connection: psycopg.Connection) -> None:
    """Its neighbour is claimed in full while it waits."""
    make_endpoint(connection)
    limit_rate(connection, 0.001, 1)
    make_endpoint(connection)
    emit(connection, 20)
    worker_id = register(connection)

    first = claim(connection, worker_id, 40)
    rest = claim(connection, worker_id, 40)

    assert (len(first), len(rest)) == (21, 0)


def test_a_broken_lane_sends_one_probe_and_charges_nobody_meanwhile(
    connection: psycopg.Connection,
) -> None:
    """Closed after three failures; then exactly one goes out, and its failure doubles the wait."""
    make_endpoint(connection)
    emit(connection, 20)
    worker_id = register(connection)
    fail(connection, worker_id, claim(connection, worker_id, 3))

    assert claim(connection, worker_id) == ()
    assert one(connection, "SELECT closed_reason FROM webhooks.lanes") == (
        "breaker: 3 failures in a row"
    )
    reopen(connection)
    probe = claim(connection, worker_id)
    assert len(probe) == 1
    assert claim(connection, worker_id) == ()
    fail(connection, worker_id, probe)
    wait = one(connection, "SELECT extract(epoch FROM open_at - now()) FROM webhooks.lanes")
    assert 58 < wait <= 60
    assert one(connection, "SELECT sum(tries) FROM webhooks.deliveries") == 4
    assert audited(connection) == ["lane.broken", "lane.still_broken"]


def test_a_probe_that_succeeds_opens_the_lane(connection: psycopg.Connection) -> None:
    """The whole cap is claimed again, the counters are zero and the log says so."""
    make_endpoint(connection)
    emit(connection, 20)
    worker_id = register(connection)
    fail(connection, worker_id, claim(connection, worker_id, 3))
    reopen(connection)
    (probe,) = claim(connection, worker_id)

    deliveries.settle(connection, worker_id, [delivered(probe)], RULES)

    assert len(claim(connection, worker_id)) == 16
    lane = connection.execute(
        "SELECT failures, strikes, broken_s, failing_since, closed_reason FROM webhooks.lanes"
    ).fetchone()
    assert lane == (0, 0, 0, None, None)
    assert audited(connection) == ["lane.broken", "lane.recovered"]


def test_a_late_success_opens_a_lane_that_just_broke(connection: psycopg.Connection) -> None:
    """What was sent before the breaker closed and succeeds after it proves that somebody is there.

    What the receiver asked for meanwhile stays in force.
    """
    make_endpoint(connection)
    emit(connection, 20)
    worker_id = register(connection)
    claims = claim(connection, worker_id, 6)
    fail(connection, worker_id, claims[:3])
    deliveries.settle(connection, worker_id, [delivered(claims[3])], RULES)
    (late,) = claim(connection, worker_id, 1)

    fail(connection, worker_id, claims[4:5])
    busy = outcome(ErrorClass.HTTP_5XX, 503, retry_after_s=60)
    deliveries.settle(connection, worker_id, [Settlement(claims[5], busy, timedelta(1))], RULES)
    connection.execute("UPDATE webhooks.lanes SET broken_s = 90, open_at = now() + interval '90 s'")
    deliveries.settle(connection, worker_id, [delivered(late)], RULES)

    lane = connection.execute(
        "SELECT broken_s, closed_reason, extract(epoch FROM open_at - now()) FROM webhooks.lanes"
    ).fetchone()
    assert lane is not None
    assert lane[:2] == (0, "the receiver asked for a pause")
    assert 55 < lane[2] <= 60


def test_health_is_an_endpoint_s_own(connection: psycopg.Connection) -> None:
    """Two endpoints on one host: one fails, the other's counters stay at zero (W092, W093)."""
    bad = make_endpoint(connection, url="http://127.0.0.1:1/bad")
    good = make_endpoint(connection, url="http://127.0.0.1:1/good")
    emit(connection, 3)
    worker_id = register(connection)
    claims = claim(connection, worker_id)

    fail(connection, worker_id, tuple(c for c in claims if c.endpoint_id == bad))
    others = [delivered(c) for c in claims if c.endpoint_id == good]
    deliveries.settle(connection, worker_id, others, RULES)

    rows = connection.execute("SELECT endpoint_id, failures, broken_s FROM webhooks.lanes")
    assert {row[0]: row[1:] for row in rows} == {bad: (3, 30), good: (0, 0)}


def test_an_endpoint_that_only_fails_is_warned_then_disabled(
    connection: psycopg.Connection,
) -> None:
    """The warning, the reason, the evidence and the time are kept; its deliveries are held."""
    make_endpoint(connection)
    emit(connection, 4)
    rules = Rules(disable_after_s=86_400, disable_attempts=2)
    worker_id = register(connection)
    claims = claim(connection, worker_id)
    missing = outcome(ErrorClass.HTTP_4XX, 404)

    def fail_one(number: int, days: float) -> None:
        connection.execute(
            "UPDATE webhooks.lanes SET failing_since = now() - %s", [timedelta(days=days)]
        )
        settlement = Settlement(claims[number], missing, timedelta(0))
        deliveries.settle(connection, worker_id, [settlement], rules)

    fail_one(0, 0.6)
    assert audited(connection) == ["endpoint.warned"]
    assert one(connection, "SELECT warned_at IS NOT NULL FROM webhooks.lanes")
    fail_one(1, 1.1)

    status, reason, evidence = connection.execute(
        "SELECT status, status_reason, status_evidence FROM webhooks.endpoints"
    ).fetchone() or ("", "", {})
    assert (status, reason) == ("disabled", "every attempt failed for 1.1 days, 2 in a row")
    assert (evidence["failures"], evidence["last_status_code"]) == (2, 404)
    assert evidence["last_delivery_id"] == str(claims[1].delivery_id)
    assert audited(connection) == ["endpoint.warned", "endpoint.disabled"]
    deliveries.promote(connection)
    assert claim(connection, worker_id) == ()
    assert one(connection, "SELECT count(*) FROM webhooks.deliveries_queue") == 4


def test_who_paused_by_hand_keeps_the_reason(connection: psycopg.Connection) -> None:
    """Failures that come back after a pause neither open the lane nor change why it is closed."""
    make_endpoint(connection)
    emit(connection, 3)
    worker_id = register(connection)
    claims = claim(connection, worker_id)
    connection.execute("UPDATE webhooks.lanes SET open_at = 'infinity', closed_reason = 'by hand'")

    fail(connection, worker_id, claims)

    row = connection.execute("SELECT open_at = 'infinity', closed_reason FROM webhooks.lanes")
    assert row.fetchone() == (True, "by hand")


@pytest.mark.parametrize("own", [None, '{"attempts": 7}'], ids=["tenant's", "endpoint's"])
def test_a_claim_carries_the_nearest_retry_policy(
    connection: psycopg.Connection, own: str | None
) -> None:
    """The endpoint's policy, else its tenant's."""
    make_endpoint(connection)
    connection.execute("""UPDATE webhooks.tenants SET retry_policy = '{"attempts": 3}'""")
    connection.execute("UPDATE webhooks.endpoints SET retry_policy = %s", [own])
    emit(connection)

    (claimed,) = claim(connection, register(connection))

    assert claimed.target is not None
    assert claimed.target.retry_policy == {"attempts": 7 if own else 3}
