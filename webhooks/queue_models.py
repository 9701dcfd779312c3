"""The hot tables as models, for reading only: their statements are plain SQL elsewhere."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import ClassVar
from uuid import UUID

from sqlalchemy import BigInteger, Double, ForeignKey, SmallInteger
from sqlalchemy.dialects.postgresql import ARRAY, JSON, JSONB
from sqlalchemy.dialects.postgresql import UUID as PG_UUID
from sqlalchemy.orm import Mapped, mapped_column

from webhooks.model_base import NEW_ID, Base


class Event(Base):
    """Read only: written by webhooks.accept alone."""

    __tablename__ = "events"
    hot: ClassVar = True

    id: Mapped[UUID] = mapped_column(primary_key=True)
    shard: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    tenant_id: Mapped[UUID]
    type: Mapped[str]
    payload: Mapped[bytes | None]
    created_at: Mapped[datetime]


class Delivery(Base):
    """Read only: its state is written by ``deliveries.py`` alone."""

    __tablename__ = "deliveries"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    shard: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    # db.FOREVER while the delivery is live
    finished_at: Mapped[datetime] = mapped_column(primary_key=True)
    tenant_id: Mapped[UUID]
    event_id: Mapped[UUID]
    endpoint_id: Mapped[UUID]
    event_type: Mapped[str]
    status: Mapped[str]
    reason: Mapped[str | None]
    priority: Mapped[int] = mapped_column(SmallInteger)
    trigger: Mapped[str]
    attempts: Mapped[int]
    tries: Mapped[int]
    lost: Mapped[int]
    status_code: Mapped[int | None] = mapped_column(SmallInteger)
    error_class: Mapped[str | None]
    created_at: Mapped[datetime]
    due_at: Mapped[datetime | None]
    worker_id: Mapped[UUID | None]
    claimed_at: Mapped[datetime | None]


class Attempt(Base):
    """Read only: recorded when a delivery is settled."""

    __tablename__ = "attempts"

    delivery_id: Mapped[UUID] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    shard: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    recorded_at: Mapped[datetime] = mapped_column(primary_key=True)
    tenant_id: Mapped[UUID]
    endpoint_id: Mapped[UUID]
    trigger: Mapped[str]
    outcome: Mapped[str]
    error_class: Mapped[str | None]
    detail: Mapped[str | None]
    status_code: Mapped[int | None] = mapped_column(SmallInteger)
    url: Mapped[str | None]
    peer: Mapped[str | None]
    request_headers: Mapped[list[list[str]] | None] = mapped_column(JSON)
    response_headers: Mapped[list[list[str]] | None] = mapped_column(JSON)
    response_body: Mapped[bytes | None]
    truncated: Mapped[bool]
    dns_ms: Mapped[float | None]
    connect_ms: Mapped[float | None]
    tls_ms: Mapped[float | None]
    first_byte_ms: Mapped[float | None]
    total_ms: Mapped[float | None]
    worker_id: Mapped[UUID | None]
    started_at: Mapped[datetime]


class Replay(Base):
    """Read only: a bulk replay, written by ``replays.py`` and ``deliveries/bulk.py``."""

    __tablename__ = "replays"

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    tenant_id: Mapped[UUID | None] = mapped_column(ForeignKey("webhooks.tenants.id"))
    state: Mapped[str]
    reason: Mapped[str | None]
    created_by: Mapped[str]
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    status: Mapped[str]
    endpoint_id: Mapped[UUID | None]
    event_type: Mapped[str | None]
    error_class: Mapped[str | None]
    lowest_code: Mapped[int | None] = mapped_column(SmallInteger)
    highest_code: Mapped[int | None] = mapped_column(SmallInteger)
    finished_from: Mapped[datetime]
    finished_to: Mapped[datetime]
    per_second: Mapped[float | None] = mapped_column(Double)
    stop_share: Mapped[float | None] = mapped_column(Double)
    stage: Mapped[int] = mapped_column(SmallInteger)
    stage_ids: Mapped[list[UUID]] = mapped_column(ARRAY(PG_UUID(as_uuid=True)))
    stage_at: Mapped[datetime | None]
    place_at: Mapped[datetime]
    place_id: Mapped[UUID]
    next_at: Mapped[datetime]
    replayed: Mapped[int] = mapped_column(BigInteger)
    skipped: Mapped[dict[str, int]] = mapped_column(JSONB)


class Worker(Base):
    """Read only: a worker's row is its lease, written by ``workers.py``."""

    __tablename__ = "workers"

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    host: Mapped[str]
    pid: Mapped[int]
    version: Mapped[str]
    started_at: Mapped[datetime]
    seen_at: Mapped[datetime]
    lease: Mapped[timedelta]
    in_flight: Mapped[int]
    capacity: Mapped[int]


class FailureGroup(Base):
    """Counted by ``rollups.py``; a person changes the state alone."""

    __tablename__ = "failure_groups"

    shard: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    endpoint_id: Mapped[UUID] = mapped_column(primary_key=True)
    fingerprint: Mapped[bytes] = mapped_column(primary_key=True)
    id: Mapped[UUID] = mapped_column(server_default=NEW_ID)
    tenant_id: Mapped[UUID]
    error_class: Mapped[str]
    status_code: Mapped[int | None] = mapped_column(SmallInteger)
    detail: Mapped[str]
    first_at: Mapped[datetime]
    last_at: Mapped[datetime]
    failures: Mapped[int] = mapped_column(BigInteger)
    dead_lettered: Mapped[int] = mapped_column(BigInteger)
    last_delivery_id: Mapped[UUID]
    state: Mapped[str]
    state_by: Mapped[str | None]
    state_at: Mapped[datetime | None]


class Lane(Base):
    """Read only: an endpoint's run-time state, written by the engine."""

    __tablename__ = "lanes"

    shard: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    endpoint_id: Mapped[UUID] = mapped_column(primary_key=True)
    tenant_id: Mapped[UUID]
    open_at: Mapped[datetime]
    throttle_until: Mapped[datetime]
    closed_reason: Mapped[str | None]
    max_in_flight: Mapped[int]
    host: Mapped[int | None] = mapped_column(BigInteger)
    rate_open_at: Mapped[datetime]
    failures: Mapped[int]
    failing_since: Mapped[datetime | None]
    failed_at: Mapped[datetime | None]
    last_error: Mapped[str | None]
    last_status_code: Mapped[int | None] = mapped_column(SmallInteger)
    last_delivery_id: Mapped[UUID | None]
    strikes: Mapped[int]
    broken_s: Mapped[float] = mapped_column(Double)
    warned_at: Mapped[datetime | None]
    deleted: Mapped[bool]
