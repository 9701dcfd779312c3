"""Claim: take pending deliveries for a worker, fairly over lanes, in one short transaction."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any
from uuid import UUID

import psycopg

from webhooks.attempt import Claim
from webhooks.db import INDEXES_ONLY, retry_tx, transaction
from webhooks.deliveries.host_room import HostedLane, HostRoom
from webhooks.deliveries.record import array
from webhooks.deliveries.scan import Cursor, Lane, scan_lanes
from webhooks.deliveries.targets import read_targets
from webhooks.workers import fence

MOST_LANES = 100
MOST_ROWS = 500
MOST_BYTES = 32 * 1024 * 1024
UNLIMITED = HostRoom()

# A lost claim is only a repeat, so its commit need not wait for the disk.
SETTINGS = ("synchronous_commit = off", *INDEXES_ONLY, "enable_sort = off")

# The lane lock comes first and the count of what is in flight in the next statement,
# whose snapshot sees what earlier holders of the lock committed: the cap is exact, and
# so is the rate. Of a lane that the breaker has closed a single probe goes out.
# GCRA (ITU-T I.371): rate_open_at is the theoretical arrival time less the tolerance.
LOCK = """
SELECT l.shard, l.endpoint_id,
       CASE WHEN l.broken_s > 0 THEN 1 ELSE l.max_in_flight END,
       CASE WHEN l.rate_limit > 0 THEN greatest(1, floor(least(l.rate_burst, 1 + l.rate_limit
           * (date_part('epoch', now()) - date_part('epoch', l.rate_open_at)))))::int END
FROM webhooks.lanes l
JOIN unnest(%(shards)s::smallint[], %(endpoints)s::uuid[]) AS wanted (shard, endpoint_id)
    USING (shard, endpoint_id)
WHERE l.open_at <= now() AND l.rate_open_at <= now() AND NOT l.deleted
FOR NO KEY UPDATE OF l SKIP LOCKED
"""

# MATERIALIZED and ctid keep the planner from running the LIMIT more than once. What is
# pending is told without the word in the UPDATE: with statistics of an emptier moment the
# planner would read the whole partial index of it.
PICK = """
WITH lane AS MATERIALIZED (
    SELECT t.shard, t.endpoint_id, least(t.most, t.cap - (
        SELECT count(*) FROM webhooks.deliveries_queue f
        WHERE f.shard = t.shard AND f.endpoint_id = t.endpoint_id
          AND f.status = 'in_flight')) AS room,
        CASE WHEN %(bulk_first)s AND EXISTS (
            SELECT FROM webhooks.deliveries_queue b
            WHERE b.shard = t.shard AND b.endpoint_id = t.endpoint_id AND b.status = 'pending'
              AND b.priority = 1) THEN 1 ELSE 0 END AS lowest
    FROM unnest(%(shards)s::smallint[], %(endpoints)s::uuid[], %(caps)s::int[], %(mosts)s::int[])
        AS t (shard, endpoint_id, cap, most)
), picked AS MATERIALIZED (
    SELECT q.ctid AS row
    FROM lane, LATERAL (
        SELECT d.ctid FROM webhooks.deliveries_queue d
        WHERE d.shard = lane.shard AND d.endpoint_id = lane.endpoint_id
          AND d.status = 'pending' AND d.priority >= lane.lowest
        ORDER BY d.priority, d.id
        LIMIT greatest(lane.room, 0)
        FOR UPDATE SKIP LOCKED) q
)
UPDATE webhooks.deliveries_queue
SET status = 'in_flight', attempts = attempts + 1, worker_id = %(worker)s,
    claimed_at = clock_timestamp()
WHERE ctid = ANY (ARRAY(SELECT row FROM picked)) AND worker_id IS NULL AND due_at IS NULL
RETURNING id, shard, tenant_id, event_id, endpoint_id, event_type, attempts, tries, lost, trigger
"""

# The same now() as LOCK's, for it is the transaction's.
SPEND = """
UPDATE webhooks.lanes l
SET rate_open_at = make_interval(secs => u.taken / l.rate_limit) + greatest(
        l.rate_open_at, now() - make_interval(secs => (l.rate_burst - 1) / l.rate_limit))
FROM unnest(%(shards)s::smallint[], %(endpoints)s::uuid[], %(taken)s::int[])
    AS u (shard, endpoint_id, taken)
WHERE l.shard = u.shard AND l.endpoint_id = u.endpoint_id
"""

# By worker_id, not by status, and without a join, so that the ids are looked up (see HOLD in
# settlement.py).
RETURN = """
UPDATE webhooks.deliveries_queue q
SET status = 'pending', worker_id = NULL, {number}
FROM (
    SELECT ctid AS row FROM webhooks.deliveries_queue
    WHERE id = ANY (%(ids)s::uuid[]) AND worker_id = %(worker)s
      AND EXISTS (SELECT FROM unnest(array_positions(%(ids)s::uuid[], id)) AS n
                  WHERE attempts = (%(attempts)s::int[])[n])
    ORDER BY id FOR UPDATE) AS held
WHERE q.ctid = held.row
"""

# The number was used, and may have been seen: that is kept.
GIVE_BACK = RETURN.format(number="given_back = array_append(q.given_back, q.attempts)")

# Within the claim's own transaction nobody has seen the number: it is free again.
UNDO = RETURN.format(number="attempts = q.attempts - 1")

# Cheap: the payload is stored uncompressed, apart from its row.
SIZES = (
    "SELECT id, coalesce(octet_length(payload), 0) FROM webhooks.events WHERE id = ANY (%s::uuid[])"
)

PAYLOADS = "SELECT id, payload FROM webhooks.events WHERE id = ANY (%s::uuid[])"


class Fenced(RuntimeError):
    """The worker's row is gone: its lease was lost, and it holds nothing any more."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one claim brought.

    ``opens_in_s``: seconds until the first of the closed lanes opens (infinity: none will by
    itself). ``orphans``: lanes whose rows nobody can send because their endpoint is gone.
    ``contended``: another worker had some of the lanes; ``wrapped``: it went on from the
    first lane; ``ended``: every lane with something pending was seen.
    """

    claims: tuple[Claim, ...]
    cursor: Cursor
    opens_in_s: float = math.inf
    orphans: tuple[Lane, ...] = ()
    contended: bool = False
    wrapped: bool = True
    ended: bool = True


def claim(
    connection: psycopg.Connection,
    worker_id: UUID,
    cursor: Cursor,
    room: int,
    share: Callable[[UUID, int], int] = lambda endpoint_id, askers: MOST_ROWS,
    hosts: HostRoom = UNLIMITED,
    *,
    bulk_first: bool = False,
) -> Batch:
    """Take at most ``room`` pending deliveries, round robin over lanes after ``cursor``.

    ``share`` answers how many more of an endpoint's deliveries this worker may take in hand
    when so many endpoints ask at once; ``hosts`` how many for one host.
    ``bulk_first``: of lanes that have some, bulk replays alone. Raises Fenced when the worker
    has lost its row. An empty queue costs one read and no write.
    """
    room = min(room, MOST_ROWS)
    scan = retry_tx(lambda: scan_lanes(connection, cursor, min(room, MOST_LANES), hosts.full))
    askers = len(scan.lanes)
    mosts = {lane: most for lane in scan.lanes if (most := share(lane[1], askers)) > 0}
    lanes = hosts.share(mosts)
    claims: tuple[Claim, ...] = ()
    locked = 0
    if lanes:
        claims, locked = retry_tx(lambda: _take(connection, worker_id, lanes, room, bulk_first))
    return Batch(
        claims, scan.following, scan.opens_in_s, scan.orphans, locked < len(lanes),
        scan.wrapped, scan.ended,
    )  # fmt: skip


def _take(
    connection: psycopg.Connection,
    worker_id: UUID,
    lanes: Mapping[HostedLane, int],
    room: int,
    bulk_first: bool,
) -> tuple[tuple[Claim, ...], int]:
    """What the lanes give, and how many of them nobody else held."""
    with transaction(connection, *SETTINGS):
        if not fence(connection, worker_id):
            raise Fenced(f"worker {worker_id} has lost its lease")
        locked = connection.execute(LOCK, _columns(lanes)).fetchall()
        if not locked:
            return (), 0
        per_lane = max(1, room // len(lanes))
        mosts = {lane[:2]: min(per_lane, most) for lane, most in lanes.items()}
        rows = _pick(connection, worker_id, locked, mosts, bulk_first)
        kept = _affordable(connection, worker_id, rows)
        _spend(connection, locked, kept)
        hosts = {endpoint_id: host for _, endpoint_id, host in lanes}
        return _claims(connection, worker_id, kept, hosts), len(locked)


def _pick(
    connection: psycopg.Connection,
    worker_id: UUID,
    locked: Sequence[Any],
    mosts: Mapping[Lane, int],
    bulk_first: bool,
) -> Sequence[Any]:
    """Rows of the locked lanes, at most ``mosts`` of each and what its rate allows."""
    pick = {
        "shards": array(row[0] for row in locked),
        "endpoints": array(row[1] for row in locked),
        "caps": array(row[2] for row in locked),
        "mosts": array(min(mosts[row[:2]], row[3] or MOST_ROWS) for row in locked),
        "worker": worker_id,
        "bulk_first": bulk_first,
    }
    return connection.execute(PICK, pick, binary=True).fetchall()


def _affordable(
    connection: psycopg.Connection, worker_id: UUID, rows: Sequence[Any]
) -> Sequence[Any]:
    """What a claim may bring in bytes; the rest becomes pending again."""
    events = array({row[3] for row in rows})
    sizes: dict[UUID, int] = dict(connection.execute(SIZES, [events], binary=True).fetchall())
    if sum(sizes.values()) <= MOST_BYTES:
        return rows
    # At least one, however large: it would wait for ever. An event counts once.
    sums = accumulate(sizes.pop(row[3], 0) for row in rows)
    count = max(1, sum(1 for total in sums if total <= MOST_BYTES))
    surplus = {
        "worker": worker_id,
        "ids": array(row[0] for row in rows[count:]),
        "attempts": array(row[6] for row in rows[count:]),
    }
    connection.execute(UNDO, surplus)
    return rows[:count]


def _spend(connection: psycopg.Connection, locked: Sequence[Any], rows: Sequence[Any]) -> None:
    """Charge the lanes with a rate limit for what is kept, not for what went back."""
    limited = {row[:2] for row in locked if row[3] is not None}
    if limited:
        taken = Counter(lane for row in rows if (lane := (row[1], row[4])) in limited)
        connection.execute(SPEND, {**_columns(taken), "taken": array(taken.values())})


def _columns(lanes: Iterable[Lane | HostedLane]) -> dict[str, str]:
    return {
        "shards": array(lane[0] for lane in lanes),
        "endpoints": array(lane[1] for lane in lanes),
    }


def _claims(
    connection: psycopg.Connection,
    worker_id: UUID,
    rows: Sequence[Any],
    hosts: Mapping[UUID, int | None],
) -> tuple[Claim, ...]:
    """Add what sending needs. A missing event or endpoint is None, not a lost row."""
    events = array({row[3] for row in rows})
    endpoints = array({row[4] for row in rows})
    payloads: dict[UUID, bytes] = {
        row[0]: row[1] for row in connection.execute(PAYLOADS, [events], binary=True)
    }
    targets = read_targets(connection, endpoints)
    return tuple(
        Claim(
            delivery_id, shard, tenant_id, event_id, endpoint_id, event_type, attempt, tries,
            lost, trigger, payloads.get(event_id), targets.get(endpoint_id), worker_id,
            hosts[endpoint_id],
        )
        for (
            delivery_id, shard, tenant_id, event_id, endpoint_id, event_type, attempt, tries,
            lost, trigger,
        ) in rows
    )  # fmt: skip
