"""What a person edits or reads, as Flask-SQLAlchemy models.

The hot statements of the queue are plain SQL in ``deliveries.py``; the models of the
hot tables below are for reading only.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import REAL, BigInteger, Double, ForeignKey, MetaData, SmallInteger, Text, text
from sqlalchemy.dialects.postgresql import ARRAY, JSON, JSONB, TIMESTAMP
from sqlalchemy.dialects.postgresql import UUID as PG_UUID
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, registry, relationship

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """Every timestamp is timezone-aware; every table lies in the schema webhooks."""

    registry = registry(
        metadata=MetaData(schema="webhooks", naming_convention=NAMING),
        type_annotation_map={
            datetime: TIMESTAMP(timezone=True),
            UUID: PG_UUID(as_uuid=True),
            str: Text(),
            float: REAL(),
        },
    )
    __abstract__ = True


db = SQLAlchemy(model_class=Base)

NEW_ID = text("webhooks.uuid7()")
NOW = text("now()")


class Tenant(Base):
    __tablename__ = "tenants"

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    key: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    retry_policy: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    payload_days: Mapped[int | None]
    payloads_gone_until: Mapped[datetime] = mapped_column(server_default="-infinity")
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)


class EventType(Base):
    __tablename__ = "event_types"

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("webhooks.tenants.id"))
    name: Mapped[str]
    description: Mapped[str] = mapped_column(server_default="")
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)


class Endpoint(Base):
    """A customer's URL. ``status`` is active, paused or disabled; ``deleted_at`` a tombstone."""

    __tablename__ = "endpoints"

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("webhooks.tenants.id"))
    url: Mapped[str]
    description: Mapped[str] = mapped_column(server_default="")
    status: Mapped[str] = mapped_column(server_default="active")
    status_reason: Mapped[str | None]
    status_changed_at: Mapped[datetime] = mapped_column(server_default=NOW)
    status_evidence: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    timeout_s: Mapped[float]
    max_in_flight: Mapped[int]
    retry_policy: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    rate_limit: Mapped[float | None] = mapped_column(Double)
    rate_burst: Mapped[int | None]
    schemes: Mapped[list[str]] = mapped_column(ARRAY(Text), server_default="{standard}")
    headers: Mapped[str | None]
    ca_pem: Mapped[str | None]
    proven_url: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    updated_at: Mapped[datetime] = mapped_column(server_default=NOW)
    deleted_at: Mapped[datetime | None]

    tenant: Mapped[Tenant] = relationship()
    subscriptions: Mapped[list[Subscription]] = relationship(
        order_by="Subscription.pattern",
        cascade="all, delete-orphan",
        primaryjoin="Endpoint.id == foreign(Subscription.endpoint_id)",
    )


class SigningSecret(Base):
    """One signing secret of an endpoint, encrypted (see ``secrets.py``).

    ``kind`` is hmac, ed25519 or text; ``revoked``: taken back at once, not replaced.
    """

    __tablename__ = "signing_secrets"

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    tenant_id: Mapped[UUID]
    endpoint_id: Mapped[UUID] = mapped_column(index=True)
    kind: Mapped[str] = mapped_column(server_default="hmac")
    ciphertext: Mapped[str]
    public_key: Mapped[bytes | None]
    revoked: Mapped[bool] = mapped_column(server_default="false")
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    valid_until: Mapped[datetime] = mapped_column(server_default="infinity")


class Subscription(Base):
    """``pattern`` is an event type, a prefix such as ``invoice.*``, or ``*``."""

    __tablename__ = "subscriptions"

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    tenant_id: Mapped[UUID]
    endpoint_id: Mapped[UUID]
    pattern: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)


class ApiKey(Base):
    """``tenant_id`` None: the key is bound to all tenants."""

    __tablename__ = "api_keys"

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    tenant_id: Mapped[UUID | None] = mapped_column(
        ForeignKey("webhooks.tenants.id"), comment="NULL: the key is bound to all tenants"
    )
    name: Mapped[str]
    public_id: Mapped[str] = mapped_column(unique=True)
    key_hash: Mapped[bytes]
    last_four: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    last_used_at: Mapped[datetime | None]
    scopes: Mapped[list[str]] = mapped_column(ARRAY(Text), server_default="{admin}")
    expires_at: Mapped[datetime | None]
    created_by: Mapped[str] = mapped_column(server_default="")
    revoked_at: Mapped[datetime | None]

    tenant: Mapped[Tenant | None] = relationship()


class User(Base):
    """``role`` is owner, admin, developer or viewer."""

    __tablename__ = "users"

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    username: Mapped[str] = mapped_column(unique=True)
    password_hash: Mapped[str]
    role: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)


class Session(Base):
    """A signed-in browser; only the hash of its token is stored."""

    __tablename__ = "sessions"

    token_hash: Mapped[bytes] = mapped_column(primary_key=True)
    user_id: Mapped[UUID] = mapped_column(
        ForeignKey("webhooks.users.id", ondelete="CASCADE"), index=True
    )
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    seen_at: Mapped[datetime] = mapped_column(server_default=NOW)
    address: Mapped[str | None]
    user_agent: Mapped[str | None]

    user: Mapped[User] = relationship()


class AuditEntry(Base):
    __tablename__ = "audit_log"

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    tenant_id: Mapped[UUID | None]
    at: Mapped[datetime] = mapped_column(server_default=NOW)
    actor: Mapped[str]
    action: Mapped[str]
    object: Mapped[str]
    detail: Mapped[dict[str, Any]] = mapped_column(JSONB, server_default="{}")


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
