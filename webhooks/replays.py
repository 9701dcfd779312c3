"""Bulk replays: made, planned, started, paused and ended by a person; workers advance them
(``deliveries.bulk``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from webhooks import ids
from webhooks.attempt import Status
from webhooks.db import transaction
from webhooks.deliveries import audit, bulk

NO_ID = UUID(int=0)
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
STOP_SHARE = 0.5
# So often a plan looks at bulk.SCANNED deliveries.
MOST_SCANS = 10
SAMPLE = 10

ADD = """
INSERT INTO webhooks.replays
    (tenant_id, state, created_by, started_at, status, endpoint_id, event_type, error_class,
     lowest_code, highest_code, finished_from, finished_to, place_at, per_second, stop_share,
     stage)
VALUES (%(tenant_id)s, %(state)s, %(actor)s,
        CASE WHEN %(state)s = 'running' THEN clock_timestamp() END, %(status)s,
        %(endpoint_id)s, %(event_type)s, %(error_class)s, %(lowest_code)s, %(highest_code)s,
        %(finished_from)s, least(%(finished_to)s::timestamptz, clock_timestamp()),
        %(finished_from)s, %(per_second)s, %(stop_share)s,
        CASE WHEN %(stop_share)s::float8 IS NULL THEN 2 ELSE 0 END)
RETURNING *
"""
FIND = """
SELECT * FROM webhooks.replays
WHERE id = %(id)s AND (%(tenant)s::uuid IS NULL OR tenant_id = %(tenant)s) {lock}
"""
SET = """
UPDATE webhooks.replays
SET state = %(state)s, started_at = coalesce(started_at, %(started)s::timestamptz),
    ended_at = CASE WHEN %(state)s = 'cancelled' THEN clock_timestamp() END, reason = NULL,
    stage_at = CASE WHEN %(state)s = 'running' THEN clock_timestamp() ELSE stage_at END,
    -- Who resumes one that its canary has stopped wants the next ones tried.
    stage_ids = CASE WHEN state = 'stopped' THEN '{}' ELSE stage_ids END
WHERE id = %(id)s RETURNING *
"""

# From which states a verb leads where.
VERBS: Mapping[str, tuple[str, frozenset[str]]] = {
    "start": ("running", frozenset({"planned"})),
    "pause": ("paused", frozenset({"running"})),
    "resume": ("running", frozenset({"paused", "stopped"})),
    "cancel": ("cancelled", frozenset({"planned", "running", "paused", "stopped"})),
}

Job = dict[str, Any]


class Missing(LookupError):
    """No such replay, or it is another tenant's."""


class Refused(RuntimeError):
    """Its state does not allow it; the text says which it is."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which deliveries, of those that have finished before the replay is made; None is any."""

    tenant_id: UUID | None
    status: str = Status.DEAD_LETTERED.value
    endpoint_id: UUID | None = None
    event_type: str | None = None
    error_class: str | None = None
    lowest_code: int | None = None
    highest_code: int | None = None
    finished_from: datetime = LONG_AGO
    finished_to: datetime | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a replay would do as of now; not ``complete``: there is more to look at."""

    matching: int
    replayed: int
    skipped: Mapping[str, int]
    sample: list[UUID]
    complete: bool


def plan(connection: psycopg.Connection, wanted: Wanted) -> Plan:
    """Look, and change nothing: at so many deliveries as one request can."""
    with transaction(connection, "enable_seqscan = off"):
        row = connection.execute("SELECT clock_timestamp()").fetchone()
        now = row[0] if row else datetime.now(UTC)
        job = {
            **asdict(wanted), "finished_to": min(wanted.finished_to or now, now),
            "place_at": wanted.finished_from, "place_id": NO_ID,
        }  # fmt: skip
        fitting: list[bulk.Look] = []
        for _ in range(MOST_SCANS):
            found = bulk.scan(connection, job)
            fitting += [each for each in found if each.fits]
            if len(found) < bulk.SCANNED:
                return _planned(fitting, complete=True)
            job |= {"place_at": found[-1].finished_at, "place_id": found[-1].id}
    return _planned(fitting, complete=False)


def _planned(fitting: list[bulk.Look], *, complete: bool) -> Plan:
    good = [each.id for each in fitting if each.skip is None]
    skipped = Counter(each.skip for each in fitting if each.skip)
    return Plan(len(fitting), len(good), skipped, good[:SAMPLE], complete)


def create(
    connection: psycopg.Connection,
    wanted: Wanted,
    *,
    start: bool,
    per_second: float | None,
    stop_share: float | None,
    actor: str,
) -> Job:
    """Make a replay, running at once or planned; ``stop_share`` None: without a canary."""
    values = asdict(wanted) | {
        "state": "running" if start else "planned", "actor": actor, "per_second": per_second,
        "stop_share": stop_share,
    }  # fmt: skip
    with transaction(connection), connection.cursor(row_factory=dict_row) as cursor:
        job = cursor.execute(ADD, values).fetchone()
        assert job is not None  # noqa: S101 - INSERT … RETURNING answers one row
        _audit(connection, job, actor, "replay.create", state=job["state"])
    return job


def find(connection: psycopg.Connection, replay_id: UUID, tenant_id: UUID | None) -> Job:
    """A replay of this tenant (None: of whoever); raises Missing."""
    values = {"id": replay_id, "tenant": tenant_id}
    with connection.cursor(row_factory=dict_row) as cursor:
        job = cursor.execute(FIND.format(lock=""), values).fetchone()
    if job is None:
        raise Missing("no such replay")
    return job


def act(
    connection: psycopg.Connection,
    verb: str,
    replay_id: UUID,
    tenant_id: UUID | None,
    *,
    actor: str,
) -> Job:
    """Start, pause, resume or cancel it; done before, it is answered as it is.

    What is in the queue already goes on. Raises Missing, or Refused in another state.
    """
    state, allowed = VERBS[verb]
    values = {"id": replay_id, "tenant": tenant_id}
    with transaction(connection), connection.cursor(row_factory=dict_row) as cursor:
        job = cursor.execute(FIND.format(lock="FOR UPDATE"), values).fetchone()
        if job is None:
            raise Missing("no such replay")
        if job["state"] == state:
            return job
        if job["state"] not in allowed:
            raise Refused(f"it is {job['state']}, and cannot be {state}")
        started = "now" if state == "running" else None
        changed = cursor.execute(SET, {"id": replay_id, "state": state, "started": started})
        job = changed.fetchone()
        assert job is not None  # noqa: S101 - it is locked
        _audit(connection, job, actor, f"replay.{verb}")
    return job


def _audit(
    connection: psycopg.Connection, job: Job, actor: str, action: str, **detail: str
) -> None:
    about = ids.encode(ids.REPLAY, job["id"])
    audit.record(connection, job["tenant_id"], actor, action, about, **detail)
