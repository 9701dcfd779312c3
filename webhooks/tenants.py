"""Tenants: whose endpoints, events and deliveries they are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import psycopg
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from webhooks import audit, ids
from webhooks.backoff import Policy, PolicyError
from webhooks.field_error import FieldError
from webhooks.models import Tenant, db

DEFAULT = "default"
LONGEST_NAME = 200
LONGEST_DAYS = 3650

_KEY = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


class TenantError(FieldError):
    """A tenant's key, name or retry policy cannot be taken; ``field`` names which."""


def create(key: str, name: str, *, actor: str = "command line") -> Tenant:
    """Add a tenant; TenantError when the key is malformed or taken, or the name is wrong."""
    if not _KEY.fullmatch(key):
        raise TenantError(
            "key", f"{key[:70]!r} is not 1 to 63 of a-z 0-9 _ -, a letter or digit first"
        )
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise TenantError("name", f"{name[:70]!r} is not 1 to {LONGEST_NAME} printable characters")
    tenant = Tenant(key=key, name=name.strip())
    db.session.add(tenant)
    try:
        db.session.flush()
    except IntegrityError as error:
        db.session.rollback()
        raise TenantError("key", f"{key!r} is taken; choose another") from error
    audit.record(
        "tenant.create",
        ids.encode(ids.TENANT, tenant.id),
        actor=actor,
        tenant_id=tenant.id,
        key=key,
    )
    db.session.commit()
    return tenant


def set_retry_policy(
    tenant: Tenant, policy: Mapping[str, Any] | None, *, actor: str = "command line"
) -> None:
    """What its endpoints without a policy of their own follow; None: the installation's.

    The policy that it has already leaves no trace. Raises TenantError when it is wrong.
    """
    try:
        Policy.parse(policy or {})
    except PolicyError as error:
        raise TenantError(f"retry_policy.{error.field}", error.message) from error
    new = None if policy is None else dict(policy)
    row = select(Tenant.id).where(Tenant.id == tenant.id)
    db.session.execute(row.with_for_update(key_share=True))
    db.session.refresh(tenant)
    before = tenant.retry_policy
    if before == new:
        db.session.rollback()
        return
    tenant.retry_policy = new
    audit.record(
        "tenant.update",
        ids.encode(ids.TENANT, tenant.id),
        actor=actor,
        tenant_id=tenant.id,
        retry_policy=[before, new],
    )
    db.session.commit()


def set_payload_days(tenant: Tenant, days: int | None, *, actor: str = "command line") -> None:
    """For how many days its payloads are kept, 1 to LONGEST_DAYS; None: as long as their events."""
    before = tenant.payload_days
    tenant.payload_days = days
    audit.record(
        "tenant.update",
        ids.encode(ids.TENANT, tenant.id),
        actor=actor,
        tenant_id=tenant.id,
        payload_days=[before, days],
    )
    db.session.commit()


def find(key: str) -> Tenant | None:
    """The tenant of this key, or None."""
    if not _KEY.fullmatch(key):
        return None
    return db.session.scalar(select(Tenant).where(Tenant.key == key))


def find_id(connection: psycopg.Connection, key: str) -> UUID | None:
    """The id of the tenant of this key, or None; for the path of an event."""
    if not _KEY.fullmatch(key):
        return None
    row = connection.execute("SELECT id FROM webhooks.tenants WHERE key = %s", [key]).fetchone()
    return row[0] if row else None


def all_tenants() -> Sequence[Tenant]:
    """Every tenant, by key."""
    return db.session.scalars(select(Tenant).order_by(Tenant.key)).all()
