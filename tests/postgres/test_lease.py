"""A worker's lease on what it claimed, by its own clock."""

from __future__ import annotations

import psycopg
import pytest

from tests.queue import expire, one
from webhooks import deliveries
from webhooks.dispatcher import lease as module
from webhooks.dispatcher.lease import Lease


class Clock:
    """Seconds that pass only when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(module, "now_s", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_worker_that_cannot_beat_stops_before_others_take_over(
    connection: psycopg.Connection, clock: Clock
) -> None:
    """Of a lease of 30 s it trusts 25: nothing is sent in the last five."""
    lease = Lease(10, 30)
    lease.begin(connection)

    clock.now += 24.9
    assert lease.current is not None
    clock.now += 0.2
    assert lease.current is None

    assert lease.renew(connection, 0)
    assert lease.current is not None


def test_a_lease_whose_row_is_gone_begins_anew(
    connection: psycopg.Connection, clock: Clock
) -> None:
    """Another incarnation has another id; the old one never comes back."""
    lease = Lease(10, 30)
    lease.begin(connection)
    before = lease.current
    assert before is not None
    expire(connection, before)
    deliveries.reclaim(connection)

    assert not lease.renew(connection, 0)
    lease.lose()
    assert lease.current is None

    lease.begin(connection)
    assert lease.current not in (None, before)
    assert one(connection, "SELECT count(*) FROM webhooks.workers") == 1


def test_only_a_steady_worker_may_judge_others(
    connection: psycopg.Connection, clock: Clock
) -> None:
    """It reclaims after a whole lease of unbroken beats, and again only after another one."""
    lease = Lease(10, 30)
    lease.begin(connection)
    assert not lease.steady

    for _ in range(6):
        clock.now += 5
        assert lease.renew(connection, 0)
    assert lease.steady

    clock.now += 26
    assert lease.renew(connection, 0)
    assert not lease.steady
