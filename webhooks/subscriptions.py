"""Subscriptions: which events an endpoint wants, by event type and by what they say."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import select

from webhooks import audit, filters, ids
from webhooks.endpoint_fields import MOST_EVENT_TYPES, EndpointError, check_pattern
from webhooks.filters import FilterError
from webhooks.models import Endpoint, Subscription, db
from webhooks.web_database import psycopg_connection


def add(endpoint: Endpoint, pattern: str, filter_text: str | None, *, actor: str) -> Subscription:
    """One more pattern for an endpoint; EndpointError when it has it, or when one is wrong."""
    check_pattern("event_type", pattern)
    _check_filter(filter_text)
    _lock(endpoint)
    if any(each.pattern == pattern for each in endpoint.subscriptions):
        db.session.rollback()
        raise EndpointError("event_type", f"the endpoint is subscribed to {pattern} already")
    if len(endpoint.subscriptions) >= MOST_EVENT_TYPES:
        db.session.rollback()
        raise EndpointError("event_type", f"an endpoint has at most {MOST_EVENT_TYPES}")
    row = Subscription(
        tenant_id=endpoint.tenant_id, endpoint_id=endpoint.id, pattern=pattern, filter=filter_text
    )
    db.session.add(row)
    db.session.flush()
    _audit("subscription.create", row, actor, filter=filter_text)
    _touch(endpoint)
    db.session.commit()
    return row


def set_filter(row: Subscription, filter_text: str | None, *, actor: str) -> None:
    """Change what it wants of its event type; None: all. EndpointError when it is wrong."""
    _check_filter(filter_text)
    if row.filter == filter_text:
        return
    _audit("subscription.update", row, actor, filter=[row.filter, filter_text])
    row.filter = filter_text
    db.session.commit()


def delete(row: Subscription, *, actor: str) -> None:
    """Take it away; EndpointError for an endpoint's last one."""
    endpoint = db.session.scalars(select(Endpoint).where(Endpoint.id == row.endpoint_id)).one()
    _lock(endpoint)
    if len(endpoint.subscriptions) <= 1:
        db.session.rollback()
        raise EndpointError(
            "subscription", "it is the endpoint's last; pause or delete the endpoint instead"
        )
    _audit("subscription.delete", row, actor)
    db.session.delete(row)
    _touch(endpoint)
    db.session.commit()


def find(tenant_id: UUID | None, subscription_id: UUID) -> Subscription | None:
    """The tenant's (None: anybody's) subscription of an endpoint that is there, or None."""
    query = (
        select(Subscription)
        .join(Endpoint, Endpoint.id == Subscription.endpoint_id)
        .where(Subscription.id == subscription_id, Endpoint.deleted_at.is_(None))
    )
    if tenant_id is not None:
        query = query.where(Subscription.tenant_id == tenant_id)
    return db.session.scalar(query)


def _check_filter(text: str | None) -> None:
    if text is None:
        return
    try:
        with psycopg_connection() as connection:
            filters.check(connection, text)
    except FilterError as error:
        raise EndpointError("filter", str(error)) from error


def _lock(endpoint: Endpoint) -> None:
    row = select(Endpoint.id).where(Endpoint.id == endpoint.id)
    db.session.execute(row.with_for_update(key_share=True))
    db.session.expire(endpoint)


def _touch(endpoint: Endpoint) -> None:
    endpoint.updated_at = datetime.now(UTC)


def _audit(action: str, row: Subscription, actor: str, **detail: object) -> None:
    audit.record(
        action, ids.encode(ids.SUBSCRIPTION, row.id), actor=actor, tenant_id=row.tenant_id,
        endpoint=ids.encode(ids.ENDPOINT, row.endpoint_id), event_type=row.pattern, **detail,
    )  # fmt: skip
