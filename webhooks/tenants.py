"""Tenants: whose endpoints, events and deliveries they are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from uuid import UUID

import psycopg
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from webhooks import audit, ids
from webhooks.field_error import FieldError
from webhooks.models import Tenant, db

DEFAULT = "default"
LONGEST_NAME = 200

_KEY = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


class TenantError(FieldError):
    """A tenant's key or name cannot be taken; ``field`` names which."""


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
