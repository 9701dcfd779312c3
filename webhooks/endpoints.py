"""Endpoints: where a tenant's events go. Made, changed, paused and deleted here alone.

Lock order: the endpoint's row first, then its lane (the engine follows it too).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from flask import current_app
from sqlalchemy import select, text
from sqlalchemy.orm import joinedload, selectinload

from webhooks import audit, deliveries, ids, signing
from webhooks.endpoint_fields import EndpointError, checked
from webhooks.models import Endpoint, SigningSecret, Subscription, Tenant, db
from webhooks.secrets import Keyring, Place
from webhooks.settings import Settings
from webhooks.web_database import psycopg_connection

__all__ = ["EndpointError", "create", "delete", "find", "pause", "resume", "update"]

DELETED = "endpoint deleted"

_MAKE_LANE = text("""
INSERT INTO webhooks.lanes (shard, endpoint_id, tenant_id, max_in_flight)
VALUES (webhooks.shard_of(:tenant), :endpoint, :tenant, :max_in_flight)
""")
_SET_LANE_CAP = text("""
UPDATE webhooks.lanes SET max_in_flight = :max_in_flight
WHERE shard = webhooks.shard_of(:tenant) AND endpoint_id = :endpoint
""")
_CLOSE_LANE = text("""
UPDATE webhooks.lanes
SET open_at = 'infinity', closed_reason = :reason, closed_status = NULL,
    deleted = deleted OR :deleted
WHERE shard = webhooks.shard_of(:tenant) AND endpoint_id = :endpoint
""")
_OPEN_LANE = text("""
UPDATE webhooks.lanes
SET open_at = '-infinity', closed_reason = NULL, closed_status = NULL, failures = 0,
    blocked = 0, failing_since = NULL
WHERE shard = webhooks.shard_of(:tenant) AND endpoint_id = :endpoint
""")


def create(
    tenant: Tenant,
    settings: Settings,
    keyring: Keyring,
    *,
    url: str,
    event_types: list[str],
    description: str = "",
    retry_policy: dict[str, Any] | None = None,
    max_in_flight: int | None = None,
    timeout_s: float | None = None,
    actor: str,
) -> tuple[Endpoint, str]:
    """Add an endpoint with its lane, subscriptions and signing secret.

    Answers it and, only now, the secret (``whsec_…``). None takes the installation's
    value. Raises EndpointError and stores nothing when a value is wrong.
    """
    given = {"max_in_flight": max_in_flight, "timeout_s": timeout_s}
    values = checked(
        settings,
        {
            "url": url,
            "event_types": event_types,
            "description": description,
            "retry_policy": retry_policy,
            "max_in_flight": settings.endpoint_max_in_flight,
            "timeout_s": settings.attempt_timeout_s,
            **{name: value for name, value in given.items() if value is not None},
        },
    )
    patterns = values.pop("event_types")
    endpoint = Endpoint(tenant=tenant, **values)
    db.session.add(endpoint)
    db.session.flush()
    endpoint.subscriptions = [_subscription(endpoint, pattern) for pattern in patterns]
    db.session.execute(_MAKE_LANE, _lane(endpoint, max_in_flight=endpoint.max_in_flight))
    secret = _add_secret(endpoint, keyring)
    _audit(
        "endpoint.create", endpoint, actor, url=_logged("url", endpoint.url), event_types=patterns
    )
    db.session.commit()
    return endpoint, secret


def update(endpoint: Endpoint, settings: Settings, *, actor: str, **fields: Any) -> None:
    """Change some of url, event_types, description, retry_policy, max_in_flight, timeout_s.

    Values that it has already leave no trace. Raises EndpointError and changes nothing
    when a value is wrong.
    """
    values = checked(settings, fields)
    if not _lock(endpoint):
        return
    before = {name: _value(endpoint, name) for name in values}
    changes = {n: new for n, new in values.items() if before[n] != new}
    if not changes:
        db.session.rollback()
        return
    for name, new in changes.items():
        if name == "event_types":
            _subscribe(endpoint, new)
        else:
            setattr(endpoint, name, new)
    endpoint.updated_at = datetime.now(UTC)
    detail = {n: [_logged(n, before[n]), _logged(n, new)] for n, new in changes.items()}
    _audit("endpoint.update", endpoint, actor, **detail)
    db.session.flush()
    if "max_in_flight" in changes:
        db.session.execute(_SET_LANE_CAP, _lane(endpoint, max_in_flight=endpoint.max_in_flight))
    db.session.commit()


def pause(endpoint: Endpoint, *, actor: str, reason: str | None = None) -> None:
    """Hold its deliveries until ``resume``; what is in flight ends as usual."""
    reason = reason or f"paused by {actor}"
    if _lock(endpoint):
        _set_status(endpoint, "paused", reason)
        _audit("endpoint.pause", endpoint, actor, reason=reason)
        db.session.flush()
        db.session.execute(_CLOSE_LANE, _lane(endpoint, reason=reason, deleted=False))
        db.session.commit()


def resume(endpoint: Endpoint, *, actor: str) -> None:
    """Deliver again, what was held meanwhile too; its count of failures starts anew."""
    if _lock(endpoint):
        _set_status(endpoint, "active", None)
        _audit("endpoint.resume", endpoint, actor)
        db.session.flush()
        db.session.execute(_OPEN_LANE, _lane(endpoint))
        db.session.commit()
        current_app.extensions["webhooks_notifier"].notify()


def delete(endpoint: Endpoint, *, actor: str) -> None:
    """Make it a tombstone and cancel what waits for it; its history stays.

    The lane is closed and committed first, so that no worker claims meanwhile.
    """
    endpoint_id = endpoint.id
    if _lock(endpoint):
        endpoint.deleted_at = datetime.now(UTC)
        _audit("endpoint.delete", endpoint, actor, url=_logged("url", endpoint.url))
        db.session.flush()
        db.session.execute(_CLOSE_LANE, _lane(endpoint, reason=DELETED, deleted=True))
        db.session.commit()
    with psycopg_connection() as connection:
        deliveries.cancel_endpoint(connection, endpoint_id, DELETED)


def find(tenant_id: UUID | None, endpoint_id: UUID) -> Endpoint | None:
    """The endpoint if it is the tenant's (None: anybody's) and not deleted, or None."""
    query = (
        select(Endpoint)
        .options(joinedload(Endpoint.tenant), selectinload(Endpoint.subscriptions))
        .where(Endpoint.id == endpoint_id, Endpoint.deleted_at.is_(None))
    )
    if tenant_id is not None:
        query = query.where(Endpoint.tenant_id == tenant_id)
    return db.session.scalar(query)


def _lock(endpoint: Endpoint) -> bool:
    """Lock the row and see it as it is now; False when it was deleted meanwhile."""
    row = select(Endpoint.id).where(Endpoint.id == endpoint.id)
    db.session.execute(row.with_for_update(key_share=True))
    db.session.expire(endpoint)
    if endpoint.deleted_at is not None:
        db.session.rollback()
        return False
    return True


def _value(endpoint: Endpoint, field: str) -> Any:
    if field == "event_types":
        return [s.pattern for s in endpoint.subscriptions]
    return getattr(endpoint, field)


def _logged(field: str, value: Any) -> Any:
    """A field for the audit log, where a URL's query, often a token, does not belong."""
    return value.partition("?")[0] if field == "url" else value


def _lane(endpoint: Endpoint, **values: Any) -> dict[str, Any]:
    return {"tenant": endpoint.tenant_id, "endpoint": endpoint.id, **values}


def _subscription(endpoint: Endpoint, pattern: str) -> Subscription:
    return Subscription(tenant_id=endpoint.tenant_id, endpoint_id=endpoint.id, pattern=pattern)


def _subscribe(endpoint: Endpoint, patterns: list[str]) -> None:
    """Keep the subscriptions that stay, so that their ids do."""
    kept = [s for s in endpoint.subscriptions if s.pattern in patterns]
    new = set(patterns) - {s.pattern for s in kept}
    endpoint.subscriptions = kept + [_subscription(endpoint, pattern) for pattern in sorted(new)]


def _set_status(endpoint: Endpoint, status: str, reason: str | None) -> None:
    endpoint.status = status
    endpoint.status_reason = reason
    endpoint.status_changed_at = endpoint.updated_at = datetime.now(UTC)


def _add_secret(endpoint: Endpoint, keyring: Keyring) -> str:
    secret = signing.new_secret()
    row_id = db.session.scalar(text("SELECT webhooks.uuid7()"))
    place = Place("signing_secrets", endpoint.tenant_id, row_id, "ciphertext")
    db.session.add(
        SigningSecret(
            id=row_id,
            tenant_id=endpoint.tenant_id,
            endpoint_id=endpoint.id,
            ciphertext=keyring.encrypt(place, secret.encode()),
        )
    )
    return secret


def _audit(action: str, endpoint: Endpoint, actor: str, **detail: Any) -> None:
    subject = ids.encode(ids.ENDPOINT, endpoint.id)
    audit.record(action, subject, actor=actor, tenant_id=endpoint.tenant_id, **detail)
