"""Endpoints with their lanes, read together, and as answers show them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

from flask import current_app
from sqlalchemy import Row, Select, and_, func, select
from sqlalchemy.orm import joinedload, selectinload

from webhooks import (
    backoff,
    ca_certificates,
    endpoint_headers,
    endpoints,
    ids,
    lanes,
    missing_keys,
)
from webhooks.api import bodies, retry_policies
from webhooks.api.authentication import credential
from webhooks.api.bodies import timestamp
from webhooks.api.problems import not_found
from webhooks.evidence import Evidence
from webhooks.lanes import State
from webhooks.models import Endpoint, Lane

# An endpoint, its lane, the database's time, and how its signing secrets begin.
EndpointRow: TypeAlias = Row[Endpoint, Lane, datetime, list[str] | None]


def query() -> Select[Endpoint, Lane, datetime, list[str] | None]:
    """Endpoints that are not deleted, each with its lane."""
    place = and_(
        Lane.shard == func.webhooks.shard_of(Endpoint.tenant_id), Lane.endpoint_id == Endpoint.id
    )
    return (
        select(Endpoint, Lane, func.now(), missing_keys.SIGNED_WITH)
        .join(Lane, place)
        .options(joinedload(Endpoint.tenant), selectinload(Endpoint.subscriptions))
        .where(Endpoint.deleted_at.is_(None))
    )


def find(endpoint_id: str) -> Endpoint:
    """The caller's endpoint of this public id; Problem 404 when there is none."""
    try:
        found = endpoints.find(credential().only_tenant, ids.decode(ids.ENDPOINT, endpoint_id))
    except ValueError:
        found = None
    if found is None:
        raise not_found("endpoint")
    return found


def shown(row: EndpointRow) -> dict[str, Any]:
    """An endpoint as the API shows it."""
    endpoint, lane, now, signed_with = row
    keyring = current_app.extensions["webhooks_keyring"]
    in_force = backoff.in_force(
        endpoint.retry_policy, endpoint.tenant.retry_policy, bodies.settings()
    )
    return {
        "id": ids.encode(ids.ENDPOINT, endpoint.id),
        "tenant": endpoint.tenant.key,
        "url": endpoint.url,
        "description": endpoint.description,
        "event_types": sorted(s.pattern for s in endpoint.subscriptions),
        "status": endpoint.status,
        "status_reason": endpoint.status_reason,
        "status_changed_at": timestamp(endpoint.status_changed_at),
        "status_evidence": _evidence(endpoint.status_evidence),
        "max_in_flight": endpoint.max_in_flight,
        "rate_limit": _rate(endpoint),
        "timeout_s": endpoint.timeout_s,
        "retry_policy": endpoint.retry_policy,
        "retry_ladder": retry_policies.shown(*in_force),
        "schemes": endpoint.schemes,
        "headers": endpoint_headers.shown(endpoint, keyring),
        "ca_certificates": _certificates(endpoint.ca_pem),
        "missing_key": missing_keys.explain(
            keyring, endpoint.schemes, signed_with, endpoint.headers
        ),
        "lane": _lane(endpoint, lane, now),
        "created_at": timestamp(endpoint.created_at),
        "updated_at": timestamp(endpoint.updated_at),
    }


def _certificates(pem: str | None) -> list[dict[str, Any]] | None:
    if pem is None:
        return None
    return [
        {
            "subject": each.subject,
            "expires_at": timestamp(each.expires_at),
            "sha256": each.sha256,
        }
        for each in ca_certificates.describe(pem)
    ]


def _rate(endpoint: Endpoint) -> dict[str, Any] | None:
    if endpoint.rate_limit is None:
        return None
    return {"per_second": endpoint.rate_limit, "burst": endpoint.rate_burst}


def _lane(endpoint: Endpoint, lane: Lane, now: datetime) -> dict[str, Any]:
    state = lanes.state(endpoint.status, lane.open_at, lane.rate_open_at, lane.broken_s, now)
    opens = max(lane.open_at, lane.rate_open_at)
    disable_at = lanes.disable_at(
        endpoint.status, lane.failing_since, lane.warned_at, bodies.settings().disable_after_s
    )
    return {
        "state": state.value,
        "open_at": timestamp(opens) if opens > now else None,
        "reason": _reason(state, endpoint, lane),
        "failures": lane.failures,
        "failing_since": timestamp(lane.failing_since),
        "failed_at": timestamp(lane.failed_at),
        "last_error": lane.last_error,
        "last_status_code": lane.last_status_code,
        "last_delivery": _delivery(lane.last_delivery_id),
        "broken_s": lane.broken_s,
        "warned_at": timestamp(lane.warned_at),
        "disable_at": timestamp(disable_at),
    }


def _reason(state: State, endpoint: Endpoint, lane: Lane) -> str | None:
    if state in (State.PAUSED, State.DISABLED):
        return endpoint.status_reason
    return lane.closed_reason if state in (State.THROTTLED, State.BROKEN) else None


def _evidence(stored: dict[str, Any] | None) -> dict[str, Any] | None:
    if stored is None:
        return None
    found = Evidence.read(stored)
    return {
        "failures": found.failures,
        "failing_since": timestamp(found.failing_since),
        "failed_at": timestamp(found.failed_at),
        "last_error": found.last_error,
        "last_status_code": found.last_status_code,
        "last_delivery": _delivery(found.last_delivery_id),
    }


def _delivery(delivery_id: UUID | None) -> str | None:
    return None if delivery_id is None else ids.encode(ids.DELIVERY, delivery_id)
