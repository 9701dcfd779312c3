"""Endpoints: where a tenant's events go. Made, changed, paused and deleted here alone.

Lock order: the endpoint's row first, then its lane (the engine follows it too).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from flask import current_app
from sqlalchemy import select
from sqlalchemy.orm import joinedload, selectinload

from webhooks import audit, deliveries, endpoint_lanes, endpoint_secrets, ids
from webhooks.endpoint_fields import EndpointError, check_reason, checked
from webhooks.field_error import echo
from webhooks.models import Endpoint, Subscription, Tenant, db
from webhooks.release import ALL, Release, cancel_rest
from webhooks.release import check as check_release
from webhooks.secrets import Keyring
from webhooks.settings import Settings
from webhooks.signing import Scheme
from webhooks.web_database import psycopg_connection

__all__ = [
    "EndpointError",
    "create",
    "delete",
    "disable",
    "find",
    "pause",
    "resume",
    "update",
]

DELETED = "endpoint deleted"

# What each status is called as something that is done.
_ACTIONS = {"active": "resume", "paused": "pause", "disabled": "disable"}


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
    rate_limit: dict[str, Any] | None = None,
    schemes: list[str] | None = None,
    secret: str | None = None,
    actor: str,
) -> tuple[Endpoint, str | None]:
    """Add an endpoint with its lane, subscriptions and signing secret.

    Answers it and, only now, the secret (``whsec_…``) that was made for it; None where
    ``secret`` was imported or its ``schemes`` need a key pair alone. None takes the
    installation's value, and no rate limit. Raises EndpointError and stores nothing when a
    value is wrong.
    """
    given = {"max_in_flight": max_in_flight, "timeout_s": timeout_s, "schemes": schemes}
    values = checked(
        settings,
        {
            "url": url,
            "event_types": event_types,
            "description": description,
            "retry_policy": retry_policy,
            "rate_limit": rate_limit,
            "max_in_flight": settings.endpoint_max_in_flight,
            "timeout_s": settings.attempt_timeout_s,
            **{name: value for name, value in given.items() if value is not None},
        },
    )
    made = endpoint_secrets.first(values.get("schemes", [Scheme.STANDARD.value]), secret)
    patterns = values.pop("event_types")
    endpoint = Endpoint(tenant=tenant, **values)
    db.session.add(endpoint)
    db.session.flush()
    endpoint.subscriptions = [_subscription(endpoint, pattern) for pattern in patterns]
    endpoint_lanes.make(endpoint)
    for each in made:
        endpoint_secrets.add(endpoint, keyring, each)
    _audit(
        "endpoint.create", endpoint, actor, url=_logged("url", endpoint.url), event_types=patterns
    )
    db.session.commit()
    return endpoint, endpoint_secrets.shown(made, secret)


def update(
    endpoint: Endpoint,
    settings: Settings,
    *,
    actor: str,
    status: str | None = None,
    status_reason: str | None = None,
    release: Release | None = None,
    **fields: Any,
) -> int:
    """Change fields (as ``create`` takes them), status, or both: all of it or nothing.

    A new URL, and the status active, open a lane that the breaker or a throttle has closed.

    ``release`` says what is sent of what was held, where the status becomes active; all of
    it by default. Answers how many deliveries it cancelled. Values that it has already leave
    no trace. Raises EndpointError and changes nothing when a value is wrong.
    """
    values = checked(settings, fields)
    _check_status(status, status_reason, release)
    cancelled = _cancel_rest(endpoint, status, release)
    if not _lock(endpoint):
        return cancelled
    if "schemes" in values:
        endpoint_secrets.check(endpoint, values["schemes"])
    changed = _set_fields(endpoint, values, actor)
    if status is not None and (cancelled or _is_new(endpoint, status, status_reason)):
        released = {"cancelled": cancelled, **(release or ALL).logged()}
        _set_status(endpoint, status, status_reason, actor, released)
        changed = True
    elif status == "active" and endpoint_lanes.waits(endpoint):
        _audit("endpoint.resume", endpoint, actor, lane="opened")
        endpoint_lanes.open_again(endpoint)
        changed = True
    if not changed:
        db.session.rollback()
        return cancelled
    db.session.commit()
    if status == "active" or "url" in values:
        current_app.extensions["webhooks_notifier"].notify()
    return cancelled


def pause(endpoint: Endpoint, *, actor: str, reason: str | None = None) -> None:
    """Hold its deliveries until ``resume``; what is in flight ends as usual."""
    _update_status(endpoint, actor, "paused", reason)


def disable(endpoint: Endpoint, *, actor: str, reason: str | None = None) -> None:
    """Hold its deliveries as ``pause`` does, and refuse to replay to it."""
    _update_status(endpoint, actor, "disabled", reason)


def resume(endpoint: Endpoint, *, actor: str, release: Release = ALL) -> int:
    """Deliver again, of what was held what ``release`` says; its failures count anew.

    Answers how many deliveries were cancelled as they were not released.
    """
    return _update_status(endpoint, actor, "active", None, release)


def delete(endpoint: Endpoint, *, actor: str) -> None:
    """Make it a tombstone and cancel what waits for it; its history stays.

    The lane is closed and committed first, so that no worker claims meanwhile.
    """
    endpoint_id = endpoint.id
    if _lock(endpoint):
        endpoint.deleted_at = datetime.now(UTC)
        _audit("endpoint.delete", endpoint, actor, url=_logged("url", endpoint.url))
        db.session.flush()
        endpoint_lanes.close(endpoint, DELETED, deleted=True)
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


def _update_status(
    endpoint: Endpoint, actor: str, status: str, reason: str | None, release: Release | None = None
) -> int:
    settings = current_app.extensions["webhooks_settings"]
    return update(
        endpoint, settings, actor=actor, status=status, status_reason=reason, release=release
    )


def _check_status(status: str | None, reason: str | None, release: Release | None) -> None:
    if status is not None and status not in _ACTIONS:
        raise EndpointError("status", f"{echo(status)} is not one of {', '.join(_ACTIONS)}")
    if reason is not None and status not in ("paused", "disabled"):
        raise EndpointError("status_reason", "give it with the status paused or disabled")
    check_reason(reason)
    if release is not None and status != "active":
        raise EndpointError("release", "give it with the status active")
    check_release(release or ALL)


def _cancel_rest(endpoint: Endpoint, status: str | None, release: Release | None) -> int:
    """Cancel what is not released while the lane is still closed."""
    if status != "active" or release in (None, ALL) or not _lock(endpoint):
        return 0
    endpoint_id, is_closed = endpoint.id, endpoint.status != "active"
    db.session.rollback()  # many transactions follow; no lock may be held meanwhile
    return cancel_rest(endpoint_id, release or ALL) if is_closed else 0


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


def _subscription(endpoint: Endpoint, pattern: str) -> Subscription:
    return Subscription(tenant_id=endpoint.tenant_id, endpoint_id=endpoint.id, pattern=pattern)


def _subscribe(endpoint: Endpoint, patterns: list[str]) -> None:
    """Keep the subscriptions that stay, so that their ids do."""
    kept = [s for s in endpoint.subscriptions if s.pattern in patterns]
    new = set(patterns) - {s.pattern for s in kept}
    endpoint.subscriptions = kept + [_subscription(endpoint, pattern) for pattern in sorted(new)]


def _set_fields(endpoint: Endpoint, values: dict[str, Any], actor: str) -> bool:
    before = {name: _value(endpoint, name) for name in values}
    changes = {n: new for n, new in values.items() if before[n] != new}
    if not changes:
        return False
    for name, new in changes.items():
        if name == "event_types":
            _subscribe(endpoint, new)
        else:
            setattr(endpoint, name, new)
    endpoint.updated_at = datetime.now(UTC)
    detail = {n: [_logged(n, before[n]), _logged(n, new)] for n, new in changes.items()}
    _audit("endpoint.update", endpoint, actor, **detail)
    db.session.flush()
    if changes.keys() & {"max_in_flight", "rate_limit", "rate_burst"}:
        endpoint_lanes.limit(endpoint)
    if "url" in changes and endpoint.status == "active":
        endpoint_lanes.open_again(endpoint)  # its failures were another receiver's
    return True


def _is_new(endpoint: Endpoint, status: str, reason: str | None) -> bool:
    return status != endpoint.status or reason not in (None, endpoint.status_reason)


def _set_status(
    endpoint: Endpoint, status: str, reason: str | None, actor: str, released: dict[str, Any]
) -> None:
    if status != "active":
        reason = reason or f"{status} by {actor}"
    endpoint.status, endpoint.status_reason = status, reason
    endpoint.status_evidence = None
    endpoint.status_changed_at = endpoint.updated_at = datetime.now(UTC)
    detail = released if reason is None else {"reason": reason}
    _audit(f"endpoint.{_ACTIONS[status]}", endpoint, actor, **detail)
    db.session.flush()
    if reason is None:
        endpoint_lanes.open_again(endpoint)
    else:
        endpoint_lanes.close(endpoint, reason)


def _audit(action: str, endpoint: Endpoint, actor: str, **detail: Any) -> None:
    subject = ids.encode(ids.ENDPOINT, endpoint.id)
    audit.record(action, subject, actor=actor, tenant_id=endpoint.tenant_id, **detail)
