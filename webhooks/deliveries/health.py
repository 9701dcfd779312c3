"""What a settle does to lanes and endpoints: counters, throttles, closing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import psycopg

from webhooks import ids, lanes
from webhooks.attempt import Outcome
from webhooks.db import retry_tx, transaction
from webhooks.deliveries import audit
from webhooks.deliveries.record import Settlement, array
from webhooks.lanes import Lane

THROTTLED = "throttled by the receiver"

# A healthy lane that stays healthy is not even locked.
LANE_LOCK = """
SELECT l.shard, l.endpoint_id, l.failures, l.blocked FROM webhooks.lanes l
JOIN unnest(%(shards)s::smallint[], %(endpoints)s::uuid[], %(failed)s::bool[])
    AS u (shard, endpoint_id, failed) USING (shard, endpoint_id)
WHERE u.failed OR l.failures > 0
ORDER BY l.shard, l.endpoint_id
FOR NO KEY UPDATE OF l
"""

LANE_WRITE = """
UPDATE webhooks.lanes l
SET failures = u.failures, blocked = u.blocked,
    failing_since = CASE WHEN u.failures = 0 THEN NULL
                         WHEN u.recovered THEN now()
                         ELSE coalesce(l.failing_since, now()) END,
    open_at = greatest(l.open_at, now() + u.throttle,
                       CASE WHEN u.status > '' THEN timestamptz 'infinity' END),
    closed_reason = coalesce(u.reason, l.closed_reason),
    closed_status = coalesce(u.status, l.closed_status)
FROM unnest(%(shards)s::smallint[], %(endpoints)s::uuid[], %(failures)s::int[],
            %(blocked)s::int[], %(recovered)s::bool[], %(throttles)s::interval[],
            %(statuses)s::text[], %(reasons)s::text[])
    AS u (shard, endpoint_id, failures, blocked, recovered, throttle, status, reason)
WHERE l.shard = u.shard AND l.endpoint_id = u.endpoint_id
"""

UNSHOWN = """
SELECT e.id FROM webhooks.lanes l JOIN webhooks.endpoints e ON e.id = l.endpoint_id
WHERE l.closed_status IS NOT NULL AND e.status = 'active' AND e.deleted_at IS NULL
"""

LOCK_ENDPOINT = "SELECT 1 FROM webhooks.endpoints WHERE id = %s FOR NO KEY UPDATE"

# After the endpoint's lock, which whoever pauses or resumes takes first.
SHOW_CLOSED = """
UPDATE webhooks.endpoints e
SET status = l.closed_status, status_reason = l.closed_reason, status_changed_at = now(),
    updated_at = now()
FROM webhooks.lanes l
WHERE e.id = %s AND e.status = 'active' AND e.deleted_at IS NULL
  AND l.shard = webhooks.shard_of(e.tenant_id) AND l.endpoint_id = e.id
  AND l.closed_status IS NOT NULL
RETURNING e.tenant_id, e.status, e.status_reason
"""


def write_lanes(connection: psycopg.Connection, mine: Sequence[Settlement]) -> bool:
    """Update the lanes that change; answers whether one was closed for good."""
    outcomes = _by_lane(mine)
    wanted = {
        "shards": array(lane[0] for lane in outcomes),
        "endpoints": array(lane[1] for lane in outcomes),
        "failed": [any(not o.delivered for o in those) for those in outcomes.values()],
    }
    locked = connection.execute(LANE_LOCK, wanted).fetchall()
    if not locked:
        return False
    changed = {
        (shard, endpoint): lanes.after(Lane(failures, blocked), outcomes[shard, endpoint])
        for shard, endpoint, failures, blocked in locked
    }
    connection.execute(LANE_WRITE, _lane_columns(changed))
    return any(lane.status is not None for lane in changed.values())


def _by_lane(mine: Sequence[Settlement]) -> dict[tuple[int, UUID], list[Outcome]]:
    outcomes: dict[tuple[int, UUID], list[Outcome]] = {}
    for settlement in sorted(mine, key=lambda s: s.outcome.finished):
        lane = settlement.claim.shard, settlement.claim.endpoint_id
        outcomes.setdefault(lane, []).append(settlement.outcome)
    return outcomes


def _lane_columns(changed: dict[tuple[int, UUID], Lane]) -> dict[str, list[Any]]:
    states = changed.values()
    return {
        "shards": [lane[0] for lane in changed],
        "endpoints": [lane[1] for lane in changed],
        "failures": [lane.failures for lane in states],
        "blocked": [lane.blocked for lane in states],
        "recovered": [lane.recovered for lane in states],
        "throttles": [
            None if lane.throttle_s is None else timedelta(seconds=lane.throttle_s)
            for lane in states
        ],
        "statuses": [lane.status for lane in states],
        "reasons": [
            lane.reason or (THROTTLED if lane.throttle_s is not None else None) for lane in states
        ],
    }


def show_closed(connection: psycopg.Connection) -> int:
    """Give endpoints whose lane the engine has closed their status; answers how many.

    In transactions of their own, endpoint first: within a settle it would deadlock with
    a pause. What a crash leaves undone, the next call finds.
    """
    with transaction(connection):
        unshown = [row[0] for row in connection.execute(UNSHOWN).fetchall()]
    return sum(retry_tx(partial(_show, connection, endpoint_id)) for endpoint_id in unshown)


def _show(connection: psycopg.Connection, endpoint_id: UUID) -> int:
    with transaction(connection):
        connection.execute(LOCK_ENDPOINT, [endpoint_id])
        row = connection.execute(SHOW_CLOSED, [endpoint_id]).fetchone()
        if row is None:
            return 0
        tenant_id, status, reason = row
        about = ids.encode(ids.ENDPOINT, endpoint_id)
        audit.record(connection, tenant_id, "engine", f"endpoint.{status}", about, reason=reason)
        return 1
