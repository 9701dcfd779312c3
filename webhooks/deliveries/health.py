"""What a settle does to lanes and endpoints: counters, throttles, closing."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg

from webhooks import ids, lanes
from webhooks.attempt import Outcome
from webhooks.db import TRANSIENT, retry_tx, transaction
from webhooks.deliveries import audit
from webhooks.deliveries.record import Settlement, array
from webhooks.lanes import Lane

THROTTLED = "throttled by the receiver"

log = logging.getLogger(__name__)

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
                       CASE WHEN u.closed THEN timestamptz 'infinity' END),
    closed_reason = coalesce(u.reason, l.closed_reason)
FROM unnest(%(shards)s::smallint[], %(endpoints)s::uuid[], %(failures)s::int[],
            %(blocked)s::int[], %(recovered)s::bool[], %(throttles)s::interval[],
            %(closed)s::bool[], %(reasons)s::text[])
    AS u (shard, endpoint_id, failures, blocked, recovered, throttle, closed, reason)
WHERE l.shard = u.shard AND l.endpoint_id = u.endpoint_id
"""

# A transaction of its own, endpoint first: within settle it would deadlock with a pause.
CLOSE_ENDPOINT = """
UPDATE webhooks.endpoints
SET status = %(status)s, status_reason = %(reason)s, status_changed_at = now(),
    updated_at = now()
WHERE id = %(id)s AND deleted_at IS NULL AND status = 'active'
RETURNING tenant_id
"""


def write_lanes(
    connection: psycopg.Connection, mine: Sequence[Settlement]
) -> list[tuple[UUID, str, str]]:
    """Update the lanes that change; answers which endpoints to close, how and why."""
    outcomes = _by_lane(mine)
    wanted = {
        "shards": array(lane[0] for lane in outcomes),
        "endpoints": array(lane[1] for lane in outcomes),
        "failed": [any(not o.delivered for o in those) for those in outcomes.values()],
    }
    locked = connection.execute(LANE_LOCK, wanted).fetchall()
    if not locked:
        return []
    changed = {
        (shard, endpoint): lanes.after(Lane(failures, blocked), outcomes[shard, endpoint])
        for shard, endpoint, failures, blocked in locked
    }
    connection.execute(LANE_WRITE, _lane_columns(changed))
    return [
        (endpoint, lane.status, lane.reason or "")
        for (_, endpoint), lane in changed.items()
        if lane.status is not None
    ]


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
        "closed": [lane.status is not None for lane in states],
        "reasons": [
            lane.reason or (THROTTLED if lane.throttle_s is not None else None) for lane in states
        ],
    }


def close_endpoint(
    connection: psycopg.Connection, endpoint_id: UUID, status: str, reason: str
) -> None:
    def write() -> None:
        with transaction(connection):
            values = {"id": endpoint_id, "status": status, "reason": reason}
            row = connection.execute(CLOSE_ENDPOINT, values).fetchone()
            if row is not None:
                about = ids.encode(ids.ENDPOINT, endpoint_id)
                audit.record(
                    connection, row[0], "engine", f"endpoint.{status}", about, reason=reason
                )

    try:
        retry_tx(write)
    except TRANSIENT:
        log.exception("endpoint %s: closed, but its status still shows active", endpoint_id)
