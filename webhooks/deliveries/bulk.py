"""Bulk replay: one chunk of a running replay's deliveries goes back into the queue.

The deliveries, the replay's place and its counts move in one transaction: a crash loses and
repeats nothing. Any number of workers may run it; a replay is at one of them at a time.
"""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import errors
from psycopg.rows import namedtuple_row

from webhooks import ids
from webhooks.attempt import LIVE, Status
from webhooks.db import TRANSIENT, transaction
from webhooks.deliveries import audit

CHUNK = 500
SCANNED = 5_000
FEWEST_SCANNED = 500
CANARY = (1, 10)
# What has not ended by then says nothing; the others are judged.
CANARY_WAIT_S = 600.0
LOOK_AGAIN_S = 1.0
PUT_OFF_S = 60.0

log = logging.getLogger(__name__)

TAKE = """
SELECT *, date_part('epoch', clock_timestamp() - stage_at) AS stage_s FROM webhooks.replays
WHERE state = 'running' AND next_at <= clock_timestamp()
ORDER BY next_at LIMIT 1 FOR UPDATE SKIP LOCKED
"""

# In the order of finishing, along the index of the state or of the endpoint. So many rows are
# looked at and no more, however few of them fit. The first condition prunes partitions, which
# a comparison of pairs does not.
SCAN = """
SELECT d.id, d.finished_at, f.fits, CASE
    WHEN NOT f.fits THEN NULL
    WHEN e.id IS NULL OR e.deleted_at IS NOT NULL THEN 'endpoint deleted'
    WHEN e.status <> 'active' THEN 'endpoint ' || e.status
    WHEN NOT EXISTS (SELECT FROM webhooks.events v
                     WHERE v.id = d.event_id AND v.payload IS NOT NULL)
      OR EXISTS (SELECT FROM webhooks.retired_days r
                 WHERE r.day = (webhooks.uuid7_time(d.event_id) AT TIME ZONE 'UTC')::date)
        THEN 'payload gone' END
FROM (
    SELECT * FROM webhooks.deliveries d
    WHERE d.finished_at >= %(place_at)s AND (d.finished_at, d.id) > (%(place_at)s, %(place_id)s)
      AND d.finished_at < %(finished_to)s AND d.status = {status} {endpoint}
    ORDER BY d.finished_at, d.id LIMIT %(rows)s) d
CROSS JOIN LATERAL (SELECT
    (%(tenant_id)s::uuid IS NULL OR d.tenant_id = %(tenant_id)s)
    AND (%(endpoint_id)s::uuid IS NULL OR d.endpoint_id = %(endpoint_id)s)
    AND (%(event_type)s::text IS NULL OR d.event_type = %(event_type)s)
    AND (%(error_class)s::text IS NULL OR d.error_class IS NOT DISTINCT FROM %(error_class)s)
    AND (%(lowest_code)s::int IS NULL OR coalesce(
        d.status_code BETWEEN %(lowest_code)s AND %(highest_code)s, false)) AS fits) f
LEFT JOIN webhooks.endpoints e ON e.id = d.endpoint_id
ORDER BY d.finished_at, d.id
"""
OF_ENDPOINT = "AND d.endpoint_id = %(endpoint_id)s"

# The row moves back into the queue, with the full ladder of tries before it, behind what is live.
# Who replayed it alone meanwhile was first.
REPLAY = """
UPDATE webhooks.deliveries
SET status = 'pending', finished_at = 'infinity', tries = 0, lost = 0, trigger = 'bulk',
    reason = NULL, priority = 1
WHERE finished_at >= %(first)s AND finished_at <= %(last)s AND id = ANY (%(ids)s)
RETURNING id
"""

# In the queue first: these are few, and a look over all days would cost more.
STAGE = """
SELECT d.status, d.tries FROM webhooks.deliveries d
WHERE d.id = ANY (%(ids)s) AND d.finished_at >= %(since)s
"""

ADVANCE = """
UPDATE webhooks.replays
SET place_at = %(place_at)s, place_id = %(place_id)s, replayed = replayed + %(replayed)s,
    skipped = %(skipped)s, stage_ids = %(stage_ids)s, stage_at = clock_timestamp(),
    next_at = clock_timestamp() + make_interval(secs => %(wait_s)s),
    state = %(state)s, ended_at = CASE WHEN %(state)s <> 'running' THEN clock_timestamp() END
WHERE id = %(id)s
"""
LATER = """
UPDATE webhooks.replays SET next_at = clock_timestamp() + make_interval(secs => %(wait_s)s)
WHERE id = %(id)s
"""
NEXT_STAGE = """
UPDATE webhooks.replays SET stage = stage + 1, stage_ids = '{}' WHERE id = %(id)s
"""
STOP = """
UPDATE webhooks.replays
SET state = 'stopped', reason = %(reason)s, ended_at = clock_timestamp() WHERE id = %(id)s
"""


class Look(NamedTuple):
    """A delivery that was looked at: whether the filter fits it, and why it is not replayed."""

    id: UUID
    finished_at: datetime
    fits: bool
    skip: str | None


def advance(connection: psycopg.Connection) -> int:
    """One chunk of the running replay that is next; how many deliveries went into the queue.

    One whose chunk takes too long is put off, so that others, and this worker's other work, go
    on; what met somebody else's change is tried again in the next round.
    """
    at_work: list[UUID] = []
    try:
        return _advance(connection, at_work)
    except errors.QueryCanceled:
        log.warning("replay %s: a chunk took too long; again in %d s", at_work, PUT_OFF_S)
        for replay_id in at_work:
            with transaction(connection):
                connection.execute(LATER, {"id": replay_id, "wait_s": PUT_OFF_S})
    except TRANSIENT as error:
        log.info("replay %s: again in the next round: %s", at_work, error)
    return 0


def scan(connection: psycopg.Connection, job: Mapping[str, Any], rows: int = SCANNED) -> list[Look]:
    """The deliveries that a replay looks at next, at most so many."""
    status = Status(job["status"])
    # What has failed has an index by its state: the endpoint's would be read past all that it
    # was delivered.
    by_endpoint = job["endpoint_id"] is not None and status is Status.DELIVERED
    # A literal: that index is partial.
    statement = SCAN.format(status=f"'{status}'", endpoint=OF_ENDPOINT if by_endpoint else "")
    return [Look(*row) for row in connection.execute(statement, {**job, "rows": rows})]


def _advance(connection: psycopg.Connection, at_work: list[UUID]) -> int:
    with transaction(connection, "enable_seqscan = off"):
        with connection.cursor(row_factory=namedtuple_row) as cursor:
            job: Any = cursor.execute(TAKE).fetchone()
        if job is None:
            return 0
        at_work.append(job.id)
        if not _passes_canary(connection, job):
            return 0
        return _replay(connection, job)


def _passes_canary(connection: psycopg.Connection, job: Any) -> bool:
    """Whether the chunk may go on now: the canary's deliveries have ended, and well enough."""
    if not job.stage_ids:
        return True
    values = {"ids": job.stage_ids, "since": job.started_at}
    found = connection.execute(STAGE, values).fetchall()
    live = any(status in LIVE for status, _ in found)
    # What was not even tried says nothing, however long that takes: its lane may be closed.
    tried = [status for status, tries in found if status not in LIVE or tries]
    if found and (not tried or (live and job.stage_s < CANARY_WAIT_S)):
        connection.execute(LATER, {"id": job.id, "wait_s": LOOK_AGAIN_S})
        return False
    # By then a ladder of days may still go on: what waits for its next try has failed so far.
    failed = sum(status in LIVE or status == Status.DEAD_LETTERED for status in tried)
    if tried and failed / len(tried) > job.stop_share:
        reason = f"{failed} of the canary's {len(tried)} deliveries failed"
        connection.execute(STOP, {"id": job.id, "reason": reason})
        _audit(connection, job, "replay.stopped", reason=reason)
        return False
    connection.execute(NEXT_STAGE, {"id": job.id})
    return True


def _replay(connection: psycopg.Connection, job: Any) -> int:
    stage = job.stage + bool(job.stage_ids)
    in_canary = job.stop_share is not None and stage < len(CANARY)
    most = CANARY[stage] if in_canary else _rows(job.per_second)
    rows = min(SCANNED, max(FEWEST_SCANNED, 2 * most))
    found = scan(connection, job._asdict(), rows)
    looked, good = _take(found, most)
    moved = _move(connection, good)
    finished = len(looked) == len(found) < rows
    skipped = Counter(job.skipped) + Counter(each.skip for each in looked if each.skip)
    if len(good) > len(moved):
        skipped["already replayed"] += len(good) - len(moved)
    place_at, place_id = looked[-1][1::-1] if looked else (job.place_at, job.place_id)
    connection.execute(ADVANCE, {
        "id": job.id, "place_at": place_at, "place_id": place_id, "replayed": len(moved),
        "skipped": json.dumps(skipped), "stage_ids": moved if in_canary else [],
        "wait_s": len(moved) / job.per_second if job.per_second else 0.0,
        "state": "finished" if finished else "running",
    })  # fmt: skip
    if finished:
        _audit(connection, job, "replay.finished", replayed=str(job.replayed + len(moved)))
    return len(moved)


def _take(found: Sequence[Look], most: int) -> tuple[Sequence[Look], list[Look]]:
    """What is looked at until so many are good, and those."""
    good: list[Look] = []
    for number, each in enumerate(found):
        if each.fits and each.skip is None:
            good.append(each)
            if len(good) == most:
                return found[: number + 1], good
    return found, good


def _rows(per_second: float | None) -> int:
    """So many that the next chunk is due in a second at most, but one at least."""
    return CHUNK if per_second is None else min(CHUNK, max(1, math.floor(per_second)))


def _move(connection: psycopg.Connection, wanted: Sequence[Look]) -> list[UUID]:
    if not wanted:
        return []
    values = {
        "first": wanted[0].finished_at,
        "last": wanted[-1].finished_at,
        "ids": sorted(each.id for each in wanted),
    }
    return [row[0] for row in connection.execute(REPLAY, values)]


def _audit(connection: psycopg.Connection, job: Any, action: str, **detail: str) -> None:
    about = ids.encode(ids.REPLAY, job.id)
    audit.record(connection, job.tenant_id, "engine", action, about, **detail)
