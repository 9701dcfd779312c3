"""Stats and backlog: what is counted, for whom, and that it costs no more than it must."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import psycopg
import pytest

from tests.queue import claim, emit, make_endpoint, make_endpoints, one, register
from webhooks import backlog, stats
from webhooks.db import INDEXES_ONLY, transaction

OTHERS = 100_000
READ = """
SELECT pg_stat_get_xact_tuples_returned(indexrelid) + pg_stat_get_xact_tuples_returned(indrelid)
FROM pg_index WHERE indexrelid = 'webhooks.ix_deliveries_queue_pending'::regclass
"""
ADD = """
INSERT INTO webhooks.delivery_counts
    (shard, tenant_id, endpoint_id, width, at, event_type, delivered, failed, dead_lettered,
     durations)
SELECT webhooks.shard_of(tenant_id), tenant_id, id, %(width)s,
       date_bin(make_interval(mins => %(width)s), now() - %(ago)s::interval, 'epoch'), %(type)s,
       %(delivered)s, %(failed)s, %(dead)s, array_fill(0, ARRAY[41])
FROM webhooks.endpoints WHERE id = %(endpoint)s
"""


@pytest.fixture
def endpoint_id(connection: psycopg.Connection) -> UUID:
    return make_endpoint(connection)


@pytest.fixture
def tenant_id(connection: psycopg.Connection) -> UUID:
    found: UUID = one(connection, "SELECT id FROM webhooks.tenants WHERE key = 'default'")
    return found


def count(
    connection: psycopg.Connection, endpoint: UUID, ago: str, width: int = 60, type: str = "a",
    delivered: int = 0, failed: int = 0, dead: int = 0,
) -> None:  # fmt: skip
    connection.execute(
        ADD,
        {"endpoint": endpoint, "ago": ago, "width": width, "type": type, "delivered": delivered,
         "failed": failed, "dead": dead},
    )  # fmt: skip


def test_a_period_begins_with_its_first_whole_hour(
    connection: psycopg.Connection, endpoint_id: UUID, tenant_id: UUID
) -> None:
    """What is older is not counted, and the answer says where it begins; types are added up."""
    count(connection, endpoint_id, "25 hours", delivered=100)
    count(connection, endpoint_id, "1 hour", type="a", delivered=2, failed=1, dead=1)
    count(connection, endpoint_id, "1 hour", type="b", delivered=3)
    count(connection, endpoint_id, "0 hours", width=1, delivered=1000)

    found = stats.outcomes(connection, tenant_id, endpoint_id, timedelta(days=1))

    now: datetime = one(connection, "SELECT now()")
    assert (found.delivered, found.failed, found.dead_lettered) == (5, 1, 1)
    assert (found.since.minute, found.since.second) == (0, 0)
    assert timedelta(hours=23) - timedelta(minutes=1) < now - found.since <= timedelta(hours=24)
    assert found.success_share == pytest.approx(5 / 6)
    assert found.p50_ms is None


def test_short_periods_are_counted_by_the_minute(
    connection: psycopg.Connection, endpoint_id: UUID, tenant_id: UUID
) -> None:
    """The rate is per second of what was looked at, not of what was asked for."""
    count(connection, endpoint_id, "6 minutes", width=1, delivered=100)
    count(connection, endpoint_id, "2 minutes", width=1, delivered=8, failed=3, dead=1)

    found = stats.outcomes(connection, tenant_id, endpoint_id, timedelta(minutes=5))

    assert (found.delivered, found.failed) == (8, 3)
    assert 240 <= found.seconds <= 300
    assert found.finished_per_s == pytest.approx(9 / found.seconds)


def test_the_last_success_is_known_as_well_as_it_is_kept(
    connection: psycopg.Connection, endpoint_id: UUID, tenant_id: UUID
) -> None:
    """To the minute, else to the hour, else to the day; None for what never was."""
    place = connection, tenant_id, endpoint_id
    assert stats.last_times(*place) == (None, None)

    count(connection, endpoint_id, "90 days", width=1440, failed=1)
    count(connection, endpoint_id, "10 days", width=1440, delivered=1)
    count(connection, endpoint_id, "10 days", width=60, delivered=1)

    success, failure = stats.last_times(*place)
    assert success == one(connection, "SELECT at FROM webhooks.delivery_counts WHERE width = 60")
    assert failure == one(
        connection, "SELECT at FROM webhooks.delivery_counts WHERE width = 1440 AND failed > 0"
    )

    count(connection, endpoint_id, "3 minutes", width=1, delivered=1)
    assert stats.last_times(*place)[0] == one(
        connection, "SELECT at FROM webhooks.delivery_counts WHERE width = 1"
    )


def test_the_oldest_pending_is_one_that_could_go(
    connection: psycopg.Connection, tenant_id: UUID
) -> None:
    """Not one that is held, that was tried before, or whose lane makes it wait by itself."""
    for whose in (tenant_id, None):
        assert backlog.first_in_line(connection, whose) is None
    held, limited, tried, ready, newer = (make_endpoint(connection) for _ in range(5))
    emit(connection)
    for n, endpoint in enumerate((held, limited, tried, ready, newer)):
        connection.execute(
            "UPDATE webhooks.deliveries_queue SET created_at = now() - make_interval(mins => %s), "
            "attempts = %s WHERE endpoint_id = %s", [50 - 10 * n, int(endpoint == tried), endpoint]
        )  # fmt: skip
    connection.execute(
        "UPDATE webhooks.lanes SET open_at = 'infinity' WHERE endpoint_id = %s", [held]
    )
    connection.execute(
        "UPDATE webhooks.lanes SET rate_limit = 1, rate_burst = 1 WHERE endpoint_id = %s", [limited]
    )

    for whose in (tenant_id, None):
        first = backlog.first_in_line(connection, whose)
        assert first is not None
        assert first.endpoint_id == ready
        assert first.seconds == pytest.approx(20 * 60, abs=30)


def test_a_backlog_is_counted_by_state_up_to_a_limit(
    connection: psycopg.Connection, endpoint_id: UUID, tenant_id: UUID,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Of this endpoint alone; where the limit is met nobody knows when it will be drained."""
    make_endpoint(connection)
    emit(connection, 6)
    claim(connection, register(connection), room=2)
    connection.execute(
        "UPDATE webhooks.deliveries_queue SET status = 'scheduled', due_at = now() + '1 h' "
        "WHERE id = (SELECT min(id::text)::uuid FROM webhooks.deliveries_queue "
        "WHERE status = 'pending' AND endpoint_id = %s)", [endpoint_id]
    )  # fmt: skip
    count(connection, endpoint_id, "1 minute", width=1, delivered=60)

    found = backlog.of_endpoint(connection, tenant_id, endpoint_id)

    expected = dict(connection.execute(
        "SELECT status, count(*)::int FROM webhooks.deliveries_queue WHERE endpoint_id = %s "
        "GROUP BY 1", [endpoint_id]
    ).fetchall())  # fmt: skip
    assert (found.pending, found.in_flight, found.scheduled) == (
        expected["pending"], expected.get("in_flight", 0), 1,
    )  # fmt: skip
    assert found.drains_in_s is not None
    whole = dict(connection.execute(
        "SELECT status, count(*)::int FROM webhooks.deliveries_queue GROUP BY 1"
    ).fetchall())  # fmt: skip
    for whose in (tenant_id, None):
        assert backlog.live(connection, whose) == whole

    monkeypatch.setattr(backlog, "MOST_COUNTED", 2)
    capped = backlog.of_endpoint(connection, tenant_id, endpoint_id)
    assert (capped.pending, capped.drains_in_s) == (2, None)
    for whose in (tenant_id, None):
        assert backlog.live(connection, whose)["pending"] == 2


def test_a_tenants_numbers_cost_nothing_of_the_others(
    connection: psycopg.Connection, tenant_id: UUID
) -> None:
    """A hundred thousand of another tenant's wait in the same shard: they are not looked at."""
    connection.execute("INSERT INTO webhooks.tenants (key, name) VALUES ('big', 'Big')")
    make_endpoints(connection, 1, tenant="big")
    make_endpoints(connection, 3)
    # In one shard, whichever theirs would be.
    connection.execute("UPDATE webhooks.lanes SET shard = webhooks.shard_of(%s)", [tenant_id])
    connection.execute(
        "INSERT INTO webhooks.deliveries (shard, tenant_id, event_id, endpoint_id, event_type) "
        "SELECT webhooks.shard_of(%s), l.tenant_id, webhooks.uuid7(), l.endpoint_id, 'a' "
        "FROM webhooks.lanes l JOIN webhooks.tenants t ON t.id = l.tenant_id, "
        "generate_series(1, %s) WHERE t.key = 'big'", [tenant_id, OTHERS]
    )  # fmt: skip
    connection.execute("ANALYZE webhooks.deliveries_queue, webhooks.lanes")

    with transaction(connection, *INDEXES_ONLY):
        assert set(backlog.live(connection, tenant_id).values()) == {0}
        assert backlog.first_in_line(connection, tenant_id) is None
        assert one(connection, READ) < 100
        assert backlog.live(connection, None)["pending"] == backlog.MOST_COUNTED
        assert one(connection, READ) > 100
