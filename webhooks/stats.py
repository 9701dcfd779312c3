"""Stats: what the roll-ups say of a period, in time that does not depend on how much there was.

They lag by up to five seconds (``rollups.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from webhooks import latency
from webhooks.rollups import ALL, WIDTHS_MIN

# By minutes as long as those are few, then by hours.
LONGEST_BY_MINUTE = timedelta(hours=2)

# Whole minutes or hours: what lies before the first one of the period is left out.
_COUNTS = """
WITH period AS (
    SELECT date_bin(make_interval(mins => %(width)s), now() - %(period)s, 'epoch')
           + make_interval(mins => %(width)s) AS since
), counted AS MATERIALIZED (
    SELECT delivered, failed, dead_lettered, durations FROM webhooks.delivery_counts
    WHERE shard = {shard} AND tenant_id = %(tenant)s AND endpoint_id = %(endpoint)s
      AND width = %(width)s AND at >= (SELECT since FROM period)
)
SELECT (SELECT since FROM period), date_part('epoch', now() - (SELECT since FROM period)),
       coalesce(sum(delivered), 0)::bigint, coalesce(sum(failed), 0)::bigint,
       coalesce(sum(dead_lettered), 0)::bigint,
       ARRAY(SELECT sum(count)::bigint
             FROM counted, unnest(durations) WITH ORDINALITY AS bucket (count, n)
             GROUP BY n ORDER BY n)
FROM counted
"""
COUNTS = _COUNTS.format(shard="webhooks.shard_of(%(tenant)s)")
COUNTS_OF_ALL = _COUNTS.format(shard="0")

_LAST = """(
    SELECT at FROM webhooks.delivery_counts
    WHERE shard = webhooks.shard_of(%(tenant)s) AND tenant_id = %(tenant)s
      AND endpoint_id = %(endpoint)s AND width = %(width)s AND {counted} > 0
    ORDER BY at DESC LIMIT 1)"""
LAST = f"SELECT {_LAST.format(counted='delivered')}, {_LAST.format(counted='failed')}"


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Attempts since a time, and the deliveries that died since; durations in ms."""

    since: datetime
    seconds: float
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

    @property
    def finished_per_s(self) -> float:
        """Deliveries that left the queue, delivered or given up."""
        return (self.delivered + self.dead_lettered) / self.seconds


def outcomes(
    connection: psycopg.Connection, tenant_id: UUID | None, endpoint_id: UUID, period: timedelta
) -> Outcomes:
    """Of an endpoint; ``rollups.ALL`` for a tenant's whole, tenant None for the installation's."""
    width = 1 if period <= LONGEST_BY_MINUTE else 60
    values: dict[str, Any] = {
        "tenant": tenant_id or ALL, "endpoint": endpoint_id, "width": width, "period": period,
    }  # fmt: skip
    statement = COUNTS_OF_ALL if tenant_id is None else COUNTS
    row = connection.execute(statement, values).fetchone()
    assert row is not None  # noqa: S101 - an aggregate answers one row
    *counts, durations = row
    return Outcomes(*counts, *(latency.quantile(durations, share) for share in (0.5, 0.95)))


def last_times(
    connection: psycopg.Connection, tenant_id: UUID, endpoint_id: UUID
) -> tuple[datetime | None, datetime | None]:
    """When an endpoint's last success and last failure were; None: none is on record.

    To the minute, or to the hour or the day where that is what is still kept.
    """
    success: datetime | None = None
    failure: datetime | None = None
    for width in WIDTHS_MIN:
        values = {"tenant": tenant_id, "endpoint": endpoint_id, "width": width}
        row = connection.execute(LAST, values).fetchone() or (None, None)
        success, failure = success or row[0], failure or row[1]
        if success and failure:
            break
    return success, failure
