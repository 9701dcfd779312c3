"""Endpoints: where a tenant's events go. Made, changed, paused and deleted here alone.

Lock order: the endpoint's row first, then its lane (the engine follows it too).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from flask import current_app
from sqlalchemy import select
from sqlalchemy.orm import joinedload, selectinload

from webhooks import (
    audit,
    deliveries,
    endpoint_changes,
    endpoint_headers,
    endpoint_lanes,
    endpoint_secrets,
    endpoint_status,
    ownership,
    target_check,
)
from webhooks.endpoint_fields import EndpointError, checked
from webhooks.models import Endpoint, Tenant, db
from webhooks.release import ALL, LONGEST_S, Release, Unfinished, cancel_rest
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
# With these a receiver that refused may accept: nothing waits for the breaker.
WORTH_A_TRY = frozenset({"headers", "ca_pem"})
LIMITS = {"max_in_flight", "rate_limit", "rate_burst"}


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
    headers: Mapping[str, object] | None = None,
    ca_pem: str | None = None,
    secret: str | None = None,
    actor: str,
) -> tuple[Endpoint, str | None]:
    """Add an endpoint with its lane, subscriptions and signing secret.

    It is paused where the installation wants its owner to prove it first.
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
            "headers": headers,
            "ca_pem": ca_pem,
            "max_in_flight": settings.endpoint_max_in_flight,
            "timeout_s": settings.attempt_timeout_s,
            **{name: value for name, value in given.items() if value is not None},
        },
    )
    target_check.check(values["url"])
    made = endpoint_secrets.first(values.get("schemes", [Scheme.STANDARD.value]), secret)
    own = endpoint_headers.given(values["headers"])
    endpoint = _store(tenant, keyring, {**values, "headers": own}, actor)
    for each in made:
        endpoint_secrets.add(endpoint, keyring, each)
    if unproven := ownership.missing(settings, endpoint.url, None):
        endpoint_status.change(endpoint, "paused", unproven, actor, {})
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

    A new URL, and the status active, open a lane that the breaker or a throttle has closed;
    but a URL that its owner has to prove first pauses it, and keeps it from being resumed.

    ``release`` says what is sent of what was held, where the status becomes active; all of
    it by default. Answers how many deliveries it cancelled. Values that it has already leave
    no trace. Raises EndpointError and changes nothing when a value is wrong, Unfinished when
    there is more to cancel than one request can.
    """
    keyring = current_app.extensions["webhooks_keyring"]
    values = checked(settings, fields)
    endpoint_status.check(status, status_reason, release)
    if values.get("url", endpoint.url) != endpoint.url:
        target_check.check(values["url"])
    _fitted(endpoint, settings, keyring, values, status)
    cancelled = _cancel_rest(endpoint, status, release, actor)
    if not _lock(endpoint):
        return cancelled
    fitted = _fitted(endpoint, settings, keyring, values, status)
    changed = endpoint_changes.apply(endpoint, keyring, fitted, actor)
    if changed & LIMITS:
        endpoint_lanes.limit(endpoint)
    if "url" in changed:
        endpoint_status.follow_url(endpoint, settings, actor)
    elif changed & WORTH_A_TRY and endpoint.status == "active":
        endpoint_lanes.open_again(endpoint)
    released = {"cancelled": cancelled, **(release or ALL).logged()}
    changed_status = _set_status(endpoint, status, status_reason, actor, released)
    if not (changed or changed_status):
        db.session.rollback()
        return cancelled
    db.session.commit()
    if status == "active" or "url" in values:
        _wake()
    return cancelled


def _wake() -> None:
    """A web process wakes the workers; elsewhere they find it at their next look."""
    notifier = current_app.extensions.get("webhooks_notifier")
    if notifier is not None:
        notifier.notify()


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
        url = endpoint_changes.logged("url", endpoint.url)
        audit.record_endpoint("endpoint.delete", endpoint, actor, url=url)
        db.session.flush()
        endpoint_lanes.close(endpoint, DELETED, deleted=True)
        db.session.commit()
    with psycopg_connection() as connection:  # what is left is cancelled by the workers on sight
        deliveries.cancel_endpoint(connection, endpoint_id, DELETED, within_s=LONGEST_S)


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


def _store(tenant: Tenant, keyring: Keyring, values: dict[str, Any], actor: str) -> Endpoint:
    """Its row, subscriptions, lane and audit entry."""
    columns = {n: value for n, value in values.items() if n not in ("event_types", "headers")}
    endpoint = Endpoint(tenant=tenant, **columns)
    db.session.add(endpoint)
    db.session.flush()
    endpoint.headers = endpoint_headers.seal(endpoint, keyring, values["headers"])
    endpoint_changes.subscribe(endpoint, values["event_types"])
    endpoint_lanes.make(endpoint)
    stated = {n: values[n] for n in ("url", "event_types", "headers", "ca_pem") if values[n]}
    detail = {n: endpoint_changes.logged(n, value) for n, value in stated.items()}
    audit.record_endpoint("endpoint.create", endpoint, actor, **detail)
    return endpoint


def _update_status(
    endpoint: Endpoint, actor: str, status: str, reason: str | None, release: Release | None = None
) -> int:
    settings = current_app.extensions["webhooks_settings"]
    return update(
        endpoint, settings, actor=actor, status=status, status_reason=reason, release=release
    )


def _fitted(
    endpoint: Endpoint,
    settings: Settings,
    keyring: Keyring,
    values: dict[str, Any],
    status: str | None,
) -> dict[str, Any]:
    """The values as they are stored; EndpointError when they do not go with the endpoint's."""
    try:
        endpoint_status.check_proven(endpoint, settings, values, status)
        if "schemes" in values:
            endpoint_secrets.check(endpoint, values["schemes"])
        headers = endpoint_headers.changed(endpoint, keyring, values)
    except EndpointError:
        db.session.rollback()
        raise
    return values if headers is None else {**values, "headers": headers}


def _cancel_rest(
    endpoint: Endpoint, status: str | None, release: Release | None, actor: str
) -> int:
    """Cancel what is not released while the lane is still closed."""
    if status != "active" or release in (None, ALL) or not _lock(endpoint):
        return 0
    endpoint_id, is_closed = endpoint.id, endpoint.status != "active"
    db.session.rollback()  # many transactions follow; no lock may be held meanwhile
    if not is_closed or release is None:
        return 0
    try:
        return cancel_rest(endpoint_id, release)
    except Unfinished as unfinished:
        detail = {"cancelled": unfinished.cancelled, **release.logged()}
        audit.record_endpoint("endpoint.release", endpoint, actor, **detail)
        db.session.commit()
        raise


def _lock(endpoint: Endpoint) -> bool:
    """Lock the row and see it as it is now; False when it was deleted meanwhile."""
    row = select(Endpoint.id).where(Endpoint.id == endpoint.id)
    db.session.execute(row.with_for_update(key_share=True))
    db.session.expire(endpoint)
    if endpoint.deleted_at is not None:
        db.session.rollback()
        return False
    return True


def _set_status(
    endpoint: Endpoint,
    status: str | None,
    reason: str | None,
    actor: str,
    released: dict[str, Any],
) -> bool:
    """Whether anything is done for it: active also means a lane that does not wait."""
    if status is None:
        return False
    if released["cancelled"] or endpoint_status.is_new(endpoint, status, reason):
        endpoint_status.change(endpoint, status, reason, actor, released)
        return True
    if status == "active" and endpoint_lanes.waits(endpoint):
        audit.record_endpoint("endpoint.resume", endpoint, actor, lane="opened")
        endpoint_lanes.open_again(endpoint)
        return True
    return False
