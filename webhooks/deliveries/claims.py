"""Claim: take pending deliveries for a worker, fairly over lanes, in one short transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from webhooks.attempt import Claim, Target
from webhooks.db import INDEXES_ONLY, retry_tx, transaction
from webhooks.deliveries.record import array
from webhooks.workers import fence

MOST_LANES = 100
MOST_PROBES = 2_000
MOST_ROWS = 500
MOST_BYTES = 32 * 1024 * 1024

# A lost claim is only a repeat, so its commit need not wait for the disk.
SETTINGS = ("synchronous_commit = off", *INDEXES_ONLY, "enable_sort = off")

# A loose index scan: one probe per lane that has a pending row, however many rows it
# has. Lanes that are closed cost a probe and are not counted; a lane that is missing
# or deleted is an orphan, whose rows somebody must cancel.
SCAN = """
WITH RECURSIVE scan AS (
    (SELECT q.shard, q.endpoint_id, 1 AS probes,
            coalesce(l.open_at <= now() AND NOT l.deleted, false)::int AS opened,
            coalesce(l.open_at <= now() AND NOT l.deleted, false) AS open,
            coalesce(l.deleted, true) AS orphan
     FROM (SELECT shard, endpoint_id FROM webhooks.deliveries_queue
           WHERE status = 'pending' AND (shard, endpoint_id) > (%(shard)s, %(endpoint)s)
           ORDER BY shard, endpoint_id LIMIT 1) q
     LEFT JOIN webhooks.lanes l USING (shard, endpoint_id))
    UNION ALL
    SELECT q.shard, q.endpoint_id, scan.probes + 1,
           scan.opened + coalesce(l.open_at <= now() AND NOT l.deleted, false)::int,
           coalesce(l.open_at <= now() AND NOT l.deleted, false),
           coalesce(l.deleted, true)
    FROM scan
    CROSS JOIN LATERAL (
        SELECT d.shard, d.endpoint_id FROM webhooks.deliveries_queue d
        WHERE d.status = 'pending'
          AND (d.shard, d.endpoint_id) > (scan.shard, scan.endpoint_id)
        ORDER BY d.shard, d.endpoint_id LIMIT 1) q
    LEFT JOIN webhooks.lanes l ON l.shard = q.shard AND l.endpoint_id = q.endpoint_id
    WHERE scan.opened < %(lanes)s AND scan.probes < %(probes)s
)
SELECT shard, endpoint_id, open, orphan FROM scan
"""

# The lane lock comes first and the count of what is in flight in the next statement,
# whose snapshot sees what earlier holders of the lock committed: the cap is exact.
LOCK = """
SELECT l.shard, l.endpoint_id, l.max_in_flight
FROM webhooks.lanes l
JOIN unnest(%(shards)s::smallint[], %(endpoints)s::uuid[]) AS wanted (shard, endpoint_id)
    USING (shard, endpoint_id)
WHERE l.open_at <= now() AND NOT l.deleted
FOR NO KEY UPDATE OF l SKIP LOCKED
"""

# MATERIALIZED and ctid keep the planner from running the LIMIT more than once.
PICK = """
WITH lane AS MATERIALIZED (
    SELECT t.shard, t.endpoint_id, least(%(per_lane)s, t.cap - (
        SELECT count(*) FROM webhooks.deliveries_queue f
        WHERE f.shard = t.shard AND f.endpoint_id = t.endpoint_id
          AND f.status = 'in_flight')) AS room
    FROM unnest(%(shards)s::smallint[], %(endpoints)s::uuid[], %(caps)s::int[])
        AS t (shard, endpoint_id, cap)
), picked AS MATERIALIZED (
    SELECT q.ctid AS row
    FROM lane, LATERAL (
        SELECT d.ctid FROM webhooks.deliveries_queue d
        WHERE d.shard = lane.shard AND d.endpoint_id = lane.endpoint_id
          AND d.status = 'pending'
        ORDER BY d.priority, d.id
        LIMIT greatest(lane.room, 0)
        FOR UPDATE SKIP LOCKED) q
)
UPDATE webhooks.deliveries_queue
SET status = 'in_flight', attempts = attempts + 1, worker_id = %(worker)s,
    claimed_at = clock_timestamp()
WHERE ctid = ANY (ARRAY(SELECT row FROM picked)) AND status = 'pending'
RETURNING id, shard, tenant_id, event_id, endpoint_id, event_type, attempts, tries, lost, trigger
"""

# Told by worker_id, not by status, so that the ids are looked up (see HOLD in settlement.py).
GIVE_BACK = """
UPDATE webhooks.deliveries_queue q
SET status = 'pending', worker_id = NULL
FROM (
    SELECT d.ctid AS row FROM webhooks.deliveries_queue d
    JOIN unnest(%(ids)s::uuid[], %(attempts)s::int[]) AS mine (id, attempt) USING (id)
    WHERE d.worker_id = %(worker)s AND d.attempts = mine.attempt
    ORDER BY d.id FOR UPDATE OF d) AS held
WHERE q.ctid = held.row
"""

# Cheap: the payload is stored uncompressed, apart from its row.
SIZES = "SELECT id, octet_length(payload) FROM webhooks.events WHERE id = ANY (%s::uuid[])"

PAYLOADS = "SELECT id, payload FROM webhooks.events WHERE id = ANY (%s::uuid[])"

TARGETS = """
SELECT e.id, e.tenant_id, e.url, e.timeout_s, e.retry_policy,
       ARRAY(SELECT s.id FROM webhooks.signing_secrets s
             WHERE s.endpoint_id = e.id AND s.valid_until > now() ORDER BY s.id DESC),
       ARRAY(SELECT s.ciphertext FROM webhooks.signing_secrets s
             WHERE s.endpoint_id = e.id AND s.valid_until > now() ORDER BY s.id DESC)
FROM webhooks.endpoints e
WHERE e.id = ANY (%s::uuid[]) AND e.deleted_at IS NULL
"""


class Fenced(RuntimeError):
    """The worker's row is gone: its lease was lost, and it holds nothing any more."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """The lane after which a worker's next scan starts."""

    shard: int
    endpoint_id: UUID


NO_CURSOR = Cursor(-1, UUID(int=0))

Lane = tuple[int, UUID]


@dataclass(frozen=True, slots=True)
class Batch:
    """What one claim brought.

    ``idle``: no open lane had a pending row. ``orphans``: lanes whose rows nobody can
    send because their endpoint is gone.
    """

    claims: tuple[Claim, ...]
    cursor: Cursor
    idle: bool
    orphans: tuple[Lane, ...]


def claim(connection: psycopg.Connection, worker_id: UUID, cursor: Cursor, room: int) -> Batch:
    """Take at most ``room`` pending deliveries, round robin over lanes after ``cursor``.

    Raises Fenced when the worker has lost its row. An empty queue costs one read and
    no write.
    """
    room = min(room, MOST_ROWS)
    scan = retry_tx(lambda: _scan(connection, cursor, min(room, MOST_LANES)))
    claims: tuple[Claim, ...] = ()
    if scan.lanes:
        claims = retry_tx(lambda: _take(connection, worker_id, scan.lanes, room))
    return Batch(claims, scan.following, scan.ended and not scan.lanes, scan.orphans)


class Scan(NamedTuple):
    """Open lanes and orphans, where to go on, and whether the round has ended."""

    lanes: list[Lane]
    orphans: tuple[Lane, ...]
    following: Cursor
    ended: bool


def _scan(connection: psycopg.Connection, cursor: Cursor, lanes: int) -> Scan:
    with transaction(connection, *INDEXES_ONLY):
        found = _probe(connection, cursor, lanes)
        opened = sum(1 for row in found if row[2])
        if opened == lanes or len(found) == MOST_PROBES:
            return _as_scan(found, Cursor(*found[-1][:2]), ended=False)
        # The end of the round: go on from its start, up to where this one began.
        begun = _probe(connection, NO_CURSOR, lanes - opened) if cursor != NO_CURSOR else []
    until = (cursor.shard, cursor.endpoint_id)
    again = [row for row in begun if (row[0], row[1]) <= until]
    following = Cursor(*again[-1][:2]) if again else NO_CURSOR
    return _as_scan(found + again, following, ended=len(begun) < MOST_PROBES)


def _as_scan(found: Sequence[Any], following: Cursor, *, ended: bool) -> Scan:
    opened = [(shard, endpoint) for shard, endpoint, is_open, _ in found if is_open]
    orphans = tuple((shard, endpoint) for shard, endpoint, _, orphan in found if orphan)
    return Scan(opened, orphans, following, ended)


def _probe(connection: psycopg.Connection, after: Cursor, lanes: int) -> list[Any]:
    values = {
        "shard": after.shard,
        "endpoint": after.endpoint_id,
        "lanes": lanes,
        "probes": MOST_PROBES,
    }
    return connection.execute(SCAN, values).fetchall()


def _take(
    connection: psycopg.Connection, worker_id: UUID, lanes: Sequence[Lane], room: int
) -> tuple[Claim, ...]:
    with transaction(connection, *SETTINGS):
        if not fence(connection, worker_id):
            raise Fenced(f"worker {worker_id} has lost its lease")
        locked = connection.execute(LOCK, _columns(lanes)).fetchall()
        if not locked:
            return ()
        pick = {
            "shards": array(row[0] for row in locked),
            "endpoints": array(row[1] for row in locked),
            "caps": array(row[2] for row in locked),
            "per_lane": max(1, room // len(lanes)),
            "worker": worker_id,
        }
        rows = connection.execute(PICK, pick, binary=True).fetchall()
        return _claims(connection, worker_id, _affordable(connection, worker_id, rows))


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
    connection.execute(GIVE_BACK, surplus)
    return rows[:count]


def _columns(lanes: Sequence[Lane]) -> dict[str, str]:
    return {
        "shards": array(lane[0] for lane in lanes),
        "endpoints": array(lane[1] for lane in lanes),
    }


def _claims(
    connection: psycopg.Connection, worker_id: UUID, rows: Sequence[Any]
) -> tuple[Claim, ...]:
    """Add what sending needs. A missing event or endpoint is None, not a lost row."""
    events = array({row[3] for row in rows})
    endpoints = array({row[4] for row in rows})
    payloads: dict[UUID, bytes] = {
        row[0]: row[1] for row in connection.execute(PAYLOADS, [events], binary=True)
    }
    targets = {row[0]: _target(row) for row in connection.execute(TARGETS, [endpoints])}
    return tuple(
        Claim(
            delivery_id, shard, tenant_id, event_id, endpoint_id, event_type, attempt, tries,
            lost, trigger, payloads.get(event_id), targets.get(endpoint_id), worker_id,
        )
        for (
            delivery_id, shard, tenant_id, event_id, endpoint_id, event_type, attempt, tries,
            lost, trigger,
        ) in rows
    )  # fmt: skip


def _target(row: Any) -> Target:
    endpoint_id, tenant_id, url, timeout_s, policy, ids, ciphertexts = row
    secrets = tuple(zip(ids, ciphertexts, strict=True))
    return Target(endpoint_id, tenant_id, url, timeout_s, secrets, policy)
