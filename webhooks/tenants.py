"""Tenants: whose endpoints, events and deliveries they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import psycopg
from sqlalchemy import select, text
from sqlalchemy.exc import IntegrityError

from webhooks import audit, ids
from webhooks.backoff import Policy, PolicyError
from webhooks.field_error import FieldError
from webhooks.models import Tenant, db

DEFAULT = "default"
LONGEST_NAME = 200
LONGEST_DAYS = 3650
UNKNOWN_TYPES = ("accept", "refuse")

_KEY = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


class TenantError(FieldError):
    """A tenant's key, name or retry policy cannot be taken; ``field`` names which."""


def create(key: str, name: str, *, actor: str = "command line") -> Tenant:
    """Add a tenant; TenantError when the key is malformed or taken, or the name is wrong."""
    if not _KEY.fullmatch(key):
        raise TenantError(
            "key", f"{key[:70]!r} is not 1 to 63 of a-z 0-9 _ -, a letter or digit first"
        )
    tenant = Tenant(key=key, name=_check_name(name))
    db.session.add(tenant)
    try:
        db.session.flush()
    except IntegrityError as error:
        db.session.rollback()
        raise TenantError("key", f"{key!r} is taken; choose another") from error
    _audit("tenant.create", tenant, actor, key=key)
    db.session.commit()
    return tenant


def update(tenant: Tenant, *, actor: str = "command line", **fields: Any) -> None:
    """Change its ``name``, its ``retry_policy`` (None: the installation's), or for how many days
    its payloads are kept (``payload_days``, None: as long as their events).

    What it has already leaves no trace. Raises TenantError for the first that is wrong.
    """
    values = {name: _CHECKS[name](value) for name, value in fields.items()}
    row = select(Tenant.id).where(Tenant.id == tenant.id)
    db.session.execute(row.with_for_update(key_share=True))
    db.session.refresh(tenant)
    before = {name: getattr(tenant, name) for name in values}
    changed = {name: [before[name], new] for name, new in values.items() if before[name] != new}
    if not changed:
        db.session.rollback()
        return
    for name, (_, new) in changed.items():
        setattr(tenant, name, new)
    if "unknown_event_types" in changed:
        db.session.execute(text("UPDATE webhooks.catalog SET version = version + 1"))
    _audit("tenant.update", tenant, actor, **changed)
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


def _check_name(name: str) -> str:
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise TenantError("name", f"{name[:70]!r} is not 1 to {LONGEST_NAME} printable characters")
    return name.strip()


def _check_policy(policy: Mapping[str, Any] | None) -> dict[str, Any] | None:
    try:
        Policy.parse(policy or {})
    except PolicyError as error:
        raise TenantError(f"retry_policy.{error.field}", error.message) from error
    return None if policy is None else dict(policy)


def _check_days(days: int | None) -> int | None:
    if days is not None and not 1 <= days <= LONGEST_DAYS:
        raise TenantError("payload_days", f"{days} is not 1 to {LONGEST_DAYS} days")
    return days


def _check_unknown(answer: str) -> str:
    if answer not in UNKNOWN_TYPES:
        raise TenantError(
            "unknown_event_types", f"{answer[:40]!r} is not {' or '.join(UNKNOWN_TYPES)}"
        )
    return answer


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "name": _check_name,
    "retry_policy": _check_policy,
    "payload_days": _check_days,
    "unknown_event_types": _check_unknown,
}


def _audit(action: str, tenant: Tenant, actor: str, **detail: Any) -> None:
    subject = ids.encode(ids.TENANT, tenant.id)
    audit.record(action, subject, actor=actor, tenant_id=tenant.id, **detail)
