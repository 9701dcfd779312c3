"""Scan: which lanes have something pending, from a worker's cursor on, round robin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from webhooks.db import INDEXES_ONLY, transaction

MOST_PROBES = 2_000

# A loose index scan: one probe per lane that has a pending row, however many rows it
# has. Lanes that are closed cost a probe and are not counted; a lane that is missing
# or deleted is an orphan, whose rows somebody must cancel.
SCAN = """
WITH RECURSIVE scan (shard, endpoint_id, opens_in, orphan, opened, probes) AS (
    SELECT %(shard)s::smallint, %(endpoint)s::uuid, 'infinity'::float8, false, 0, 0
    UNION ALL
    SELECT next.shard, next.endpoint_id, lane.opens_in, lane.orphan,
           scan.opened + (lane.opens_in <= 0)::int, scan.probes + 1
    FROM scan
    CROSS JOIN LATERAL (
        SELECT d.shard, d.endpoint_id FROM webhooks.deliveries_queue d
        WHERE d.status = 'pending'
          AND (d.shard, d.endpoint_id) > (scan.shard, scan.endpoint_id)
        ORDER BY d.shard, d.endpoint_id LIMIT 1) next
    LEFT JOIN webhooks.lanes l ON l.shard = next.shard AND l.endpoint_id = next.endpoint_id
    CROSS JOIN LATERAL (
        SELECT CASE WHEN l.deleted IS FALSE
                    THEN date_part('epoch', greatest(l.open_at, l.rate_open_at))
                         - date_part('epoch', now())
                    ELSE 'infinity' END AS opens_in,
               coalesce(l.deleted, true) AS orphan) lane
    WHERE scan.opened < %(lanes)s AND scan.probes < %(probes)s
)
SELECT shard, endpoint_id, opens_in, orphan FROM scan WHERE probes > 0
"""


@dataclass(frozen=True, slots=True)
class Cursor:
    """The lane after which a worker's next scan starts."""

    shard: int
    endpoint_id: UUID


NO_CURSOR = Cursor(-1, UUID(int=0))

Lane = tuple[int, UUID]


class Scan(NamedTuple):
    """Open lanes and orphans, when a closed one opens, where to go on, whether the round ended."""

    lanes: list[Lane]
    orphans: tuple[Lane, ...]
    opens_in_s: float
    following: Cursor
    ended: bool


def scan_lanes(connection: psycopg.Connection, cursor: Cursor, lanes: int) -> Scan:
    """At most ``lanes`` open lanes after ``cursor``, in one read."""
    with transaction(connection, *INDEXES_ONLY):
        found = _probe(connection, cursor, lanes)
        opened = sum(1 for row in found if row[2] <= 0)
        if opened == lanes or len(found) == MOST_PROBES:
            return _as_scan(found, Cursor(*found[-1][:2]), ended=False)
        # The end of the round: go on from its start, up to where this one began.
        begun = _probe(connection, NO_CURSOR, lanes - opened) if cursor != NO_CURSOR else []
    until = (cursor.shard, cursor.endpoint_id)
    again = [row for row in begun if (row[0], row[1]) <= until]
    following = Cursor(*again[-1][:2]) if again else NO_CURSOR
    ended = len(begun) < MOST_PROBES or tuple(begun[-1][:2]) >= until
    return _as_scan(found + again, following, ended=ended)


def _as_scan(found: Sequence[Any], following: Cursor, *, ended: bool) -> Scan:
    opened = [(shard, endpoint) for shard, endpoint, opens_in, _ in found if opens_in <= 0]
    orphans = tuple((shard, endpoint) for shard, endpoint, _, orphan in found if orphan)
    opens_in_s = min((row[2] for row in found if row[2] > 0), default=float("inf"))
    return Scan(opened, orphans, opens_in_s, following, ended)


def _probe(connection: psycopg.Connection, after: Cursor, lanes: int) -> list[Any]:
    values = {
        "shard": after.shard,
        "endpoint": after.endpoint_id,
        "lanes": lanes,
        "probes": MOST_PROBES,
    }
    return connection.execute(SCAN, values).fetchall()
