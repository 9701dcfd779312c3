"""Replays as the API shows them."""

from __future__ import annotations

from typing import Literal

import msgspec

from webhooks import ids
from webhooks.api.bodies import Timestamp, rfc3339, timestamp
from webhooks.attempt import ErrorClass, Status
from webhooks.models import Replay, Tenant, db
from webhooks.replays import LONG_AGO, Job


class ReplayPlan(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a replay would do. ``skipped``: how many for each reason; ``complete`` false: there
    are more than were looked at.
    """

    matching: int
    replayed: int
    skipped: dict[str, int]
    sample: list[str]
    complete: bool


class ShownReplay(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A replay: its filter, how far it has come, and what it skipped for which reason.

    ``reached``: the time of finishing up to which it has looked; ``tenant`` null: all tenants.
    """

    id: str
    tenant: str | None
    state: Literal["planned", "running", "paused", "stopped", "finished", "cancelled"]
    reason: str | None
    status: Status
    endpoint: str | None
    event_type: str | None
    error_class: ErrorClass | None
    status_codes: tuple[int, int] | None
    from_: Timestamp | None = msgspec.field(name="from")
    to: Timestamp | None
    per_second: float | None
    stop_share: float | None
    replayed: int
    skipped: dict[str, int]
    reached: Timestamp | None
    created_at: Timestamp
    created_by: str
    started_at: Timestamp | None
    ended_at: Timestamp | None


def job_of(row: Replay) -> Job:
    """A model's columns as the job's statements answer them."""
    return {column.name: getattr(row, column.name) for column in Replay.__table__.columns}


def shown(job: Job) -> ShownReplay:
    """A replay as the API shows it."""
    tenant = db.session.get(Tenant, job["tenant_id"]) if job["tenant_id"] else None
    codes = None if job["lowest_code"] is None else (job["lowest_code"], job["highest_code"])
    endpoint = job["endpoint_id"]
    return ShownReplay(
        id=ids.encode(ids.REPLAY, job["id"]),
        tenant=tenant.key if tenant else None,
        state=job["state"],
        reason=job["reason"],
        status=job["status"],
        endpoint=None if endpoint is None else ids.encode(ids.ENDPOINT, endpoint),
        event_type=job["event_type"],
        error_class=job["error_class"],
        status_codes=codes,
        from_=None if job["finished_from"] == LONG_AGO else timestamp(job["finished_from"]),
        to=timestamp(job["finished_to"]),
        per_second=job["per_second"],
        stop_share=job["stop_share"],
        replayed=job["replayed"],
        skipped=job["skipped"],
        reached=None if job["place_at"] == LONG_AGO else timestamp(job["place_at"]),
        created_at=rfc3339(job["created_at"]),
        created_by=job["created_by"],
        started_at=timestamp(job["started_at"]),
        ended_at=timestamp(job["ended_at"]),
    )
