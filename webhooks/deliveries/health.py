"""What a settle does to lanes and endpoints: counters, throttles, closing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias
from uuid import UUID

import psycopg

from webhooks import ids, lanes
from webhooks.db import retry_tx, transaction
from webhooks.deliveries import audit
from webhooks.deliveries.record import Settlement, array
from webhooks.lanes import Change, Lane, Rules

ByLane: TypeAlias = dict[tuple[int, UUID], list[Settlement]]

# A healthy lane that stays healthy is not even locked.
LANE_LOCK = """
SELECT l.shard, l.endpoint_id, l.tenant_id, l.failures, l.blocked, l.strikes, l.broken_s,
       coalesce(date_part('epoch', now() - l.failing_since), 0),
       date_part('epoch', clock_timestamp()) - date_part('epoch', l.open_at),
       coalesce(date_part('epoch', now() - l.blocked_at), 'infinity'),
       date_part('epoch', now() - l.throttled_at), l.warned_at IS NOT NULL
FROM webhooks.lanes l
JOIN unnest(%(shards)s::smallint[], %(endpoints)s::uuid[], %(failed)s::bool[])
    AS u (shard, endpoint_id, failed) USING (shard, endpoint_id)
WHERE u.failed OR l.failures > 0 OR l.throttled_at IS NOT NULL
ORDER BY l.shard, l.endpoint_id
FOR NO KEY UPDATE OF l
"""

# Who paused a lane by hand keeps his reason, whatever comes back meanwhile. What the receiver
# asked for outlasts the breaker's wait.
LANE_WRITE = """
UPDATE webhooks.lanes l
SET failures = u.failures, blocked = u.blocked, strikes = u.strikes, broken_s = u.broken_s,
    failing_since = CASE WHEN u.failures = 0 THEN NULL
                         WHEN u.recovered THEN now()
                         ELSE coalesce(l.failing_since, now()) END,
    failed_at = CASE WHEN u.failed THEN now() ELSE l.failed_at END,
    last_error = coalesce(u.error, l.last_error),
    last_status_code = CASE WHEN u.failed THEN u.code ELSE l.last_status_code END,
    last_delivery_id = coalesce(u.delivery, l.last_delivery_id),
    blocked_at = CASE WHEN u.blocked > l.blocked THEN now() ELSE l.blocked_at END,
    warned_at = CASE WHEN u.warned THEN coalesce(l.warned_at, now()) END,
    throttled_at = CASE WHEN u.noted THEN coalesce(l.throttled_at, now()) END,
    throttle_until = greatest(l.throttle_until, now() + make_interval(secs => u.throttle_s)),
    open_at = CASE WHEN u.status > '' THEN timestamptz 'infinity'
                   ELSE greatest(CASE WHEN u.reopened AND l.open_at < 'infinity'
                                      THEN timestamptz '-infinity' ELSE l.open_at END,
                                 l.throttle_until,
                                 now() + make_interval(secs => u.throttle_s),
                                 now() + make_interval(secs => u.close_s)) END,
    closed_reason = CASE WHEN u.status > '' THEN u.reason
                         WHEN l.open_at = 'infinity' THEN l.closed_reason
                         WHEN u.reason > '' THEN u.reason
                         WHEN u.failures > 0 AND NOT u.reopened THEN l.closed_reason
                         WHEN l.throttle_until > now() OR u.throttle_s > 0 THEN %(goes_on)s END,
    closed_status = coalesce(u.status, l.closed_status)
FROM unnest(%(shards)s::smallint[], %(endpoints)s::uuid[], %(failures)s::int[],
            %(blocked)s::int[], %(strikes)s::int[], %(broken_s)s::float8[],
            %(recovered)s::bool[], %(reopened)s::bool[], %(failed)s::bool[], %(errors)s::text[],
            %(codes)s::int[], %(deliveries)s::uuid[], %(warned)s::bool[], %(noted)s::bool[],
            %(close_s)s::float8[], %(throttle_s)s::float8[], %(statuses)s::text[],
            %(reasons)s::text[])
    AS u (shard, endpoint_id, failures, blocked, strikes, broken_s, recovered, reopened, failed,
          error, code, delivery, warned, noted, close_s, throttle_s, status, reason)
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
    updated_at = now(), status_evidence = jsonb_build_object(
        'failures', l.failures, 'failing_since', l.failing_since, 'failed_at', l.failed_at,
        'last_error', l.last_error, 'last_status_code', l.last_status_code,
        'last_delivery_id', l.last_delivery_id)
FROM webhooks.lanes l
WHERE e.id = %s AND e.status = 'active' AND e.deleted_at IS NULL
  AND l.shard = webhooks.shard_of(e.tenant_id) AND l.endpoint_id = e.id
  AND l.closed_status IS NOT NULL
RETURNING e.tenant_id, e.status, e.status_reason
"""


def write_lanes(connection: psycopg.Connection, mine: Sequence[Settlement], rules: Rules) -> bool:
    """Update the lanes that change, audit what changed; answers whether one closed for good."""
    by_lane = _by_lane(mine)
    wanted = {
        "shards": array(lane[0] for lane in by_lane),
        "endpoints": array(lane[1] for lane in by_lane),
        "failed": [any(not s.outcome.delivered for s in those) for those in by_lane.values()],
    }
    now = time.monotonic()  # before the lock: an attempt may not look older than it is
    locked = connection.execute(LANE_LOCK, wanted).fetchall()
    if not locked:
        return False
    changed: dict[tuple[int, UUID], Lane] = {}
    for shard, endpoint, tenant, *found in locked:
        outcomes = (s.outcome for s in by_lane[shard, endpoint])
        lane = lanes.after(Lane(*found), outcomes, rules, now)
        changed[shard, endpoint] = lane
        _audit(connection, tenant, endpoint, lane)
    values = _lane_columns(changed, by_lane) | {"goes_on": lanes.THROTTLE_GOES_ON}
    connection.execute(LANE_WRITE, values)
    return any(lane.status is not None for lane in changed.values())


def _by_lane(mine: Sequence[Settlement]) -> ByLane:
    by_lane: ByLane = {}
    for settlement in sorted(mine, key=lambda s: s.outcome.finished):
        lane = settlement.claim.shard, settlement.claim.endpoint_id
        by_lane.setdefault(lane, []).append(settlement)
    return by_lane


def _lane_columns(changed: dict[tuple[int, UUID], Lane], by_lane: ByLane) -> dict[str, Any]:
    states = changed.values()
    failed = [_last_failed(by_lane[lane]) for lane in changed]
    return {
        "shards": [lane[0] for lane in changed],
        "endpoints": [lane[1] for lane in changed],
        "failures": [lane.failures for lane in states],
        "blocked": [lane.blocked for lane in states],
        "strikes": [lane.strikes for lane in states],
        "broken_s": [lane.broken_s for lane in states],
        "recovered": [lane.recovered for lane in states],
        "reopened": [lane.reopened for lane in states],
        "failed": [last is not None for last in failed],
        "errors": [last and str(last.outcome.error) for last in failed],
        "codes": [last and last.outcome.status_code for last in failed],
        "deliveries": [last and last.claim.delivery_id for last in failed],
        "warned": [lane.warned for lane in states],
        "noted": [lane.noted_s is not None for lane in states],
        "close_s": [lane.close_s for lane in states],
        "throttle_s": [lane.throttle_s for lane in states],
        "statuses": [lane.status for lane in states],
        "reasons": [lane.reason for lane in states],
    }


def _last_failed(settlements: Sequence[Settlement]) -> Settlement | None:
    return next((s for s in reversed(settlements) if not s.outcome.delivered), None)


def _audit(connection: psycopg.Connection, tenant_id: UUID, endpoint_id: UUID, lane: Lane) -> None:
    about = ids.encode(ids.ENDPOINT, endpoint_id)
    for change in lane.changes:
        detail = {"failures": str(lane.failures)}
        if change in (Change.BROKEN, Change.STILL_BROKEN):
            detail["wait_s"] = f"{lane.broken_s:g}"
        if lane.reason is not None:
            detail["reason"] = lane.reason
        audit.record(connection, tenant_id, "engine", change, about, **detail)


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
