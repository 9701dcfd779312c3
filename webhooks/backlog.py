"""Backlog: what is live, counted up to a limit, for how long it has waited, how long it will take.

All of it by the queue's indexes, within the caller's transaction (``db.INDEXES_ONLY``).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg

from webhooks import stats
from webhooks.attempt import LIVE, Status

# Nobody counts further: it stands for that many or more.
MOST_COUNTED = 10_000
RECENT = timedelta(minutes=5)

_COUNT = "SELECT count(*) FROM (SELECT FROM {rows} LIMIT %(most)s) live"
# The status is a literal: the indexes of the queue are partial.
_ALL = "webhooks.deliveries_queue WHERE status = '{status}'"
_OF_ENDPOINT = (
    f"{_ALL} AND shard = webhooks.shard_of(%(tenant)s) AND endpoint_id = %(endpoint)s"
)  # fmt: skip
# Lane by lane: whatever other tenants have waiting is not looked at.
_OF_TENANT = """webhooks.lanes l CROSS JOIN LATERAL (
    SELECT FROM webhooks.deliveries_queue q
    WHERE q.status = '{status}' AND q.shard = l.shard AND q.endpoint_id = l.endpoint_id
    LIMIT %(most)s) q
WHERE l.shard = webhooks.shard_of(%(tenant)s) AND l.tenant_id = %(tenant)s"""

_OLDEST = """
SELECT date_part('epoch', clock_timestamp() - created_at) FROM webhooks.deliveries_queue
WHERE status = 'pending' AND shard = webhooks.shard_of(%(tenant)s) AND endpoint_id = %(endpoint)s
  AND priority = 0
ORDER BY id LIMIT 1
"""
# Of each lane the first. What was tried before is left out, for when it became pending again
# is not known; so are lanes whose own rate or breaker makes them wait.
_READY = "l.open_at <= now() AND l.broken_s = 0 AND l.rate_limit IS NULL AND next.attempts = 0"
_FIRST_OF_TENANT = f"""
SELECT l.endpoint_id, date_part('epoch', clock_timestamp() - next.created_at) AS waits_s
FROM webhooks.lanes l CROSS JOIN LATERAL (
    SELECT q.created_at, q.attempts FROM webhooks.deliveries_queue q
    WHERE q.status = 'pending' AND q.shard = l.shard AND q.endpoint_id = l.endpoint_id
      AND q.priority = 0
    ORDER BY q.id LIMIT 1) next
WHERE l.shard = webhooks.shard_of(%(tenant)s) AND l.tenant_id = %(tenant)s AND {_READY}
ORDER BY waits_s DESC LIMIT 1
"""  # noqa: S608 - constants
# A loose index scan like a claim's, however many a lane has.
_FIRST_OF_ALL = f"""
WITH RECURSIVE scan (shard, endpoint_id, waits_s, probes) AS (
    SELECT (-1)::smallint, '00000000-0000-0000-0000-000000000000'::uuid, NULL::float8, 0
    UNION ALL
    SELECT next.shard, next.endpoint_id,
           CASE WHEN {_READY} THEN date_part('epoch', clock_timestamp() - next.created_at) END,
           scan.probes + 1
    FROM scan
    CROSS JOIN LATERAL (
        SELECT d.shard, d.endpoint_id, d.created_at, d.attempts FROM webhooks.deliveries_queue d
        WHERE d.status = 'pending' AND d.priority = 0
          AND (d.shard, d.endpoint_id) > (scan.shard, scan.endpoint_id)
        ORDER BY d.shard, d.endpoint_id, d.priority, d.id LIMIT 1) next
    LEFT JOIN webhooks.lanes l ON l.shard = next.shard AND l.endpoint_id = next.endpoint_id
    WHERE scan.probes < 20000
)
SELECT endpoint_id, waits_s FROM scan WHERE waits_s IS NOT NULL ORDER BY waits_s DESC LIMIT 1
"""  # noqa: S608 - constants


@dataclass(frozen=True, slots=True)
class Waiting:
    """The delivery that has waited longest for its first try, though it could go at once."""

    endpoint_id: UUID
    seconds: float


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits for one endpoint, counted up to MOST_COUNTED; times in seconds.

    ``drains_in_s``: at the rate of the last minutes; None where that says nothing.
    """

    pending: int
    in_flight: int
    scheduled: int
    oldest_pending_s: float | None
    drains_in_s: float | None


def live(connection: psycopg.Connection, tenant_id: UUID | None) -> dict[str, int]:
    """How many are in each live state, of a tenant or of all."""
    rows, values = _ALL if tenant_id is None else _OF_TENANT, {"tenant": tenant_id}
    return {status.value: _count(connection, rows, values, status) for status in LIVE}


def first_in_line(connection: psycopg.Connection, tenant_id: UUID | None) -> Waiting | None:
    """Who has waited longest, of a tenant or of all; None when nobody has to."""
    statement = _FIRST_OF_ALL if tenant_id is None else _FIRST_OF_TENANT
    row = connection.execute(statement, {"tenant": tenant_id}).fetchone()
    return Waiting(*row) if row else None


def of_endpoint(connection: psycopg.Connection, tenant_id: UUID, endpoint_id: UUID) -> Backlog:
    """What waits for an endpoint, since when, and how long it will take."""
    values = {"tenant": tenant_id, "endpoint": endpoint_id}
    pending, in_flight, scheduled = (
        _count(connection, _OF_ENDPOINT, values, status) for status in LIVE
    )
    oldest = connection.execute(_OLDEST, values).fetchone()
    per_s = stats.outcomes(connection, tenant_id, endpoint_id, RECENT).finished_per_s
    drains_in_s = pending / per_s if per_s and pending < MOST_COUNTED else None
    return Backlog(pending, in_flight, scheduled, oldest[0] if oldest else None, drains_in_s)


def _count(
    connection: psycopg.Connection, rows: str, values: dict[str, Any], status: Status
) -> int:
    statement = _COUNT.format(rows=rows.format(status=status))
    row = connection.execute(statement, values | {"most": MOST_COUNTED}).fetchone()
    return int(row[0]) if row else 0
