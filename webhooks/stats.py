"""Stats: what roll-ups and the queue say, in time that does not depend on how much there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg

from webhooks import latency
from webhooks.attempt import LIVE
from webhooks.rollups import ALL

# Nobody counts further: 10,000 stands for that many or more.
MOST_COUNTED = 10_000
# Of whole hours or minutes, whichever are kept for so long.
LONGEST_BY_MINUTE = timedelta(hours=2)

_COUNTS = """
SELECT coalesce(sum(delivered), 0)::bigint, coalesce(sum(failed), 0)::bigint,
       coalesce(sum(dead_lettered), 0)::bigint,
       ARRAY(SELECT sum(count)::bigint FROM (
           SELECT durations FROM webhooks.delivery_counts
           WHERE {where}) each, unnest(durations) WITH ORDINALITY AS u (count, n)
           GROUP BY n ORDER BY n)
FROM webhooks.delivery_counts WHERE {where}
"""
_WHERE = (
    "shard = {shard} AND tenant_id = %(tenant)s AND endpoint_id = %(endpoint)s "
    "AND width = %(width)s AND at >= now() - %(period)s"
)
COUNTS = _COUNTS.format(where=_WHERE.format(shard="webhooks.shard_of(%(tenant)s)"))
COUNTS_OF_ALL = _COUNTS.format(where=_WHERE.format(shard="0"))

LANE = " AND shard = webhooks.shard_of(%(tenant)s) AND endpoint_id = %(endpoint)s"
OLDEST = """
SELECT date_part('epoch', clock_timestamp() - created_at) FROM webhooks.deliveries_queue
WHERE status = 'pending' AND shard = webhooks.shard_of(%(tenant)s) AND endpoint_id = %(endpoint)s
  AND priority = 0
ORDER BY id LIMIT 1
"""
LAST = """
SELECT max(at) FILTER (WHERE delivered > 0), max(at) FILTER (WHERE failed > 0)
FROM webhooks.delivery_counts
WHERE shard = webhooks.shard_of(%(tenant)s) AND tenant_id = %(tenant)s
  AND endpoint_id = %(endpoint)s AND width = 1440
"""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Attempts of a period, and the deliveries that died in it; durations in ms."""

    delivered: int
    failed: int
    dead_lettered: int
    p50_ms: float | None
    p95_ms: float | None

    @property
    def success_share(self) -> float | None:
        """Of the attempts, 0 to 1; None when there were none."""
        attempts = self.delivered + self.failed
        return self.delivered / attempts if attempts else None


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits for one endpoint, counted up to MOST_COUNTED; times in seconds.

    ``drains_in_s``: at the rate of the last minutes; None when that says nothing.
    """

    pending: int
    scheduled: int
    in_flight: int
    oldest_pending_s: float | None
    drains_in_s: float | None


def outcomes(
    connection: psycopg.Connection, tenant_id: UUID | None, endpoint_id: UUID, period: timedelta
) -> Outcomes:
    """Of an endpoint; ``rollups.ALL`` for a tenant's whole, tenant None for the installation's."""
    width = 1 if period <= LONGEST_BY_MINUTE else 60
    values = {
        "tenant": tenant_id or ALL, "endpoint": endpoint_id, "width": width, "period": period,
    }  # fmt: skip
    statement = COUNTS_OF_ALL if tenant_id is None else COUNTS
    row = connection.execute(statement, values).fetchone()
    delivered, failed, dead_lettered, durations = row or (0, 0, 0, [])
    return Outcomes(
        delivered, failed, dead_lettered, *(latency.quantile(durations, q) for q in (0.5, 0.95))
    )


def last_times(connection: psycopg.Connection, tenant_id: UUID, endpoint_id: UUID) -> Sequence[Any]:
    """The days of the last success and of the last failure, or None."""
    values = {"tenant": tenant_id, "endpoint": endpoint_id}
    return connection.execute(LAST, values).fetchone() or (None, None)


def live(connection: psycopg.Connection, tenant_id: UUID | None) -> dict[str, int]:
    """How many are in each live state, of a tenant or of all, up to MOST_COUNTED each."""
    where = "" if tenant_id is None else " AND tenant_id = %(tenant)s"
    return {status.value: _count(connection, status, where, tenant_id) for status in LIVE}


def backlog(connection: psycopg.Connection, tenant_id: UUID, endpoint_id: UUID) -> Backlog:
    """What waits for an endpoint, since when, and how long it will take."""
    values = {"tenant": tenant_id, "endpoint": endpoint_id}
    pending, scheduled, in_flight = (
        _count(connection, status, LANE, tenant_id, endpoint_id)
        for status in ("pending", "scheduled", "in_flight")
    )
    oldest = connection.execute(OLDEST, values).fetchone()
    recent = outcomes(connection, tenant_id, endpoint_id, timedelta(minutes=5))
    per_s = recent.delivered / 300
    drains_in_s = pending / per_s if per_s and pending < MOST_COUNTED else None
    oldest_s = oldest[0] if oldest else None
    return Backlog(pending, scheduled, in_flight, oldest_s, drains_in_s)


def _count(
    connection: psycopg.Connection,
    status: str,
    where: str,
    tenant_id: UUID | None,
    endpoint_id: UUID = ALL,
) -> int:
    values = {"tenant": tenant_id, "endpoint": endpoint_id, "most": MOST_COUNTED}
    # A literal: the indexes of the queue are partial.
    statement = (
        f"SELECT count(*) FROM (SELECT FROM webhooks.deliveries_queue "  # noqa: S608 - a constant
        f"WHERE status = '{status}'{where} LIMIT %(most)s) live"
    )
    row = connection.execute(statement, values).fetchone()
    return int(row[0]) if row else 0
