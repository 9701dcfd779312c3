"""What a person edits or reads, as Flask-SQLAlchemy models."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Double, ForeignKey, Text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column, relationship

from webhooks.model_base import NEW_ID, NOW, Base
from webhooks.model_base import db as db
from webhooks.queue_models import Attempt as Attempt
from webhooks.queue_models import Delivery as Delivery
from webhooks.queue_models import Event as Event
from webhooks.queue_models import FailureGroup as FailureGroup
from webhooks.queue_models import Lane as Lane
from webhooks.queue_models import Replay as Replay
from webhooks.queue_models import Worker as Worker


class Tenant(Base):
    __tablename__ = "tenants"

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    key: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    retry_policy: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    unknown_event_types: Mapped[str] = mapped_column(server_default="accept")
    payload_days: Mapped[int | None]
    payloads_gone_until: Mapped[datetime] = mapped_column(server_default="-infinity")
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)


class EventType(Base):
    __tablename__ = "event_types"

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("webhooks.tenants.id"))
    name: Mapped[str]
    description: Mapped[str] = mapped_column(server_default="")
    schema: Mapped[str | None]
    example: Mapped[str | None]
    archived_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    updated_at: Mapped[datetime] = mapped_column(server_default=NOW)


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
    filter: Mapped[str | None]
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
