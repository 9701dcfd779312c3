"""Scan: which lanes have something pending, from a worker's cursor on, round robin."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from webhooks.db import INDEXES_ONLY, transaction
from webhooks.deliveries.host_room import HostedLane

MOST_PROBES = 2_000

# A loose index scan: one probe per lane that has a pending row, however many rows it
# has. Lanes that are closed, or whose host has enough, cost a probe and are not counted; a
# lane that is missing or deleted is an orphan, whose rows somebody must cancel.
SCAN = """
WITH RECURSIVE scan (shard, endpoint_id, host, opens_in, orphan, opened, probes) AS (
    SELECT %(shard)s::smallint, %(endpoint)s::uuid, NULL::bigint, 'infinity'::float8, false, 0, 0
    UNION ALL
    SELECT next.shard, next.endpoint_id, l.host, lane.opens_in, lane.orphan,
           scan.opened + (lane.opens_in <= 0)::int, scan.probes + 1
    FROM scan
    CROSS JOIN LATERAL (
        SELECT d.shard, d.endpoint_id FROM webhooks.deliveries_queue d
        WHERE d.status = 'pending'
          AND (d.shard, d.endpoint_id) > (scan.shard, scan.endpoint_id)
          AND (d.shard, d.endpoint_id) <= (%(last_shard)s::smallint, %(last_endpoint)s::uuid)
        ORDER BY d.shard, d.endpoint_id LIMIT 1) next
    LEFT JOIN webhooks.lanes l ON l.shard = next.shard AND l.endpoint_id = next.endpoint_id
    CROSS JOIN LATERAL (
        SELECT CASE WHEN l.deleted IS FALSE AND (l.host = ANY (%(full)s::bigint[])) IS NOT TRUE
                    THEN date_part('epoch', greatest(l.open_at, l.rate_open_at))
                         - date_part('epoch', now())
                    ELSE 'infinity' END AS opens_in,
               coalesce(l.deleted, true) AS orphan) lane
    WHERE scan.opened < %(lanes)s AND scan.probes < %(probes)s
)
SELECT shard, endpoint_id, host, opens_in, orphan FROM scan WHERE probes > 0
"""


@dataclass(frozen=True, slots=True)
class Cursor:
    """The lane after which a worker's next scan starts."""

    shard: int
    endpoint_id: UUID


NO_CURSOR = Cursor(-1, UUID(int=0))
THE_END = Cursor(32_767, UUID(int=2**128 - 1))

Lane = tuple[int, UUID]


class Scan(NamedTuple):
    """What a worker found from its cursor on.

    Open lanes and orphans, in how many seconds a closed one opens, where to go on;
    ``wrapped``: it went on from the first lane; ``ended``: it saw every lane there is.
    """

    lanes: list[HostedLane]
    orphans: tuple[Lane, ...]
    opens_in_s: float
    following: Cursor
    wrapped: bool
    ended: bool


def random_cursor() -> Cursor:
    """Workers start at different lanes, so that they rarely meet."""
    start = UUID(int=random.getrandbits(128))
    return Cursor(random.randrange(64), start)  # noqa: S311 - the same


def scan_lanes(
    connection: psycopg.Connection, cursor: Cursor, lanes: int, full: Sequence[int] = ()
) -> Scan:
    """At most ``lanes`` open lanes after ``cursor``, then from the first up to it, in one read.

    ``full``: hosts whose lanes do not count as open now.
    """
    with transaction(connection, *INDEXES_ONLY):
        found = _probe(connection, cursor, THE_END, lanes, full)
        if not _is_end(found, lanes):
            return _as_scan(found, _place(found), wrapped=False, ended=False)
        left = lanes - _opened(found)
        begun = _probe(connection, NO_CURSOR, cursor, left, full) if cursor != NO_CURSOR else []
    return _as_scan(found + begun, _place(begun), wrapped=True, ended=_is_end(begun, left))


def _is_end(found: Sequence[Any], lanes: int) -> bool:
    return _opened(found) < lanes and len(found) < MOST_PROBES


def _opened(found: Sequence[Any]) -> int:
    return sum(1 for row in found if row[3] <= 0)


def _place(found: Sequence[Any]) -> Cursor:
    return Cursor(*found[-1][:2]) if found else NO_CURSOR


def _as_scan(found: Sequence[Any], following: Cursor, *, wrapped: bool, ended: bool) -> Scan:
    opened = [row[:3] for row in found if row[3] <= 0]
    orphans = tuple(row[:2] for row in found if row[4])
    opens_in_s = min((row[3] for row in found if row[3] > 0), default=float("inf"))
    return Scan(opened, orphans, opens_in_s, following, wrapped, ended)


def _probe(
    connection: psycopg.Connection, after: Cursor, last: Cursor, lanes: int, full: Sequence[int]
) -> list[Any]:
    values = {
        "shard": after.shard,
        "endpoint": after.endpoint_id,
        "last_shard": last.shard,
        "last_endpoint": last.endpoint_id,
        "lanes": lanes,
        "probes": MOST_PROBES,
        "full": list(full),
    }
    return connection.execute(SCAN, values).fetchall()
