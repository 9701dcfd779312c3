"""Endpoints with their lanes, read together, and as answers show them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias
from uuid import UUID

import msgspec
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
from webhooks.api.bodies import Timestamp, rfc3339, timestamp
from webhooks.api.problems import not_found
from webhooks.api.retry_policies import LadderInForce
from webhooks.evidence import Evidence
from webhooks.lanes import State
from webhooks.models import Endpoint, Lane, db

# An endpoint, its lane, the database's time, and how its signing secrets begin.
EndpointRow: TypeAlias = Row[Endpoint, Lane, datetime, list[str] | None]


class RateLimit(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How many deliveries a second, and how many at once after a pause."""

    per_second: float
    burst: int


class Certificate(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A certificate of the endpoint's own authorities."""

    subject: str
    expires_at: Timestamp
    sha256: str


class StatusEvidence(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The failures that made the engine change the status."""

    failures: int | None
    failing_since: Timestamp | None
    failed_at: Timestamp | None
    last_error: str | None
    last_status_code: int | None
    last_delivery: str | None


class ShownLane(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Whether anything is sent now, and why not; its failures in a row, and what they lead to."""

    state: State
    open_at: Timestamp | None
    reason: str | None
    failures: int
    failing_since: Timestamp | None
    failed_at: Timestamp | None
    last_error: str | None
    last_status_code: int | None
    last_delivery: str | None
    broken_s: float
    warned_at: Timestamp | None
    disable_at: Timestamp | None


class ShownEndpoint(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An endpoint. A secret header's value is null; ``missing_key``: why nothing can be signed."""

    id: str
    tenant: str
    url: str
    description: str
    event_types: list[str]
    status: Literal["active", "paused", "disabled"]
    status_reason: str | None
    status_changed_at: Timestamp
    status_evidence: StatusEvidence | None
    max_in_flight: int
    rate_limit: RateLimit | None
    timeout_s: float
    retry_policy: dict[str, Any] | None
    retry_ladder: LadderInForce
    schemes: list[str]
    headers: dict[str, str | None] | None
    ca_certificates: list[Certificate] | None
    missing_key: str | None
    lane: ShownLane
    created_at: Timestamp
    updated_at: Timestamp


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


def read(endpoint_id: UUID) -> EndpointRow:
    """An endpoint that was there a moment ago, with its lane; Problem 404 when it is gone."""
    row = db.session.execute(query().where(Endpoint.id == endpoint_id)).first()
    if row is None:
        raise not_found("endpoint")
    return row


def shown(row: EndpointRow) -> ShownEndpoint:
    """An endpoint as the API shows it."""
    endpoint, _, _, signed_with = row
    keyring = current_app.extensions["webhooks_keyring"]
    in_force = backoff.in_force(
        endpoint.retry_policy, endpoint.tenant.retry_policy, bodies.settings()
    )
    return ShownEndpoint(
        id=ids.encode(ids.ENDPOINT, endpoint.id),
        tenant=endpoint.tenant.key,
        url=endpoint.url,
        description=endpoint.description,
        event_types=sorted(s.pattern for s in endpoint.subscriptions),
        status=endpoint.status,  # type: ignore[arg-type]
        status_reason=endpoint.status_reason,
        status_changed_at=rfc3339(endpoint.status_changed_at),
        status_evidence=_evidence(endpoint.status_evidence),
        max_in_flight=endpoint.max_in_flight,
        rate_limit=_rate(endpoint),
        timeout_s=endpoint.timeout_s,
        retry_policy=endpoint.retry_policy,
        retry_ladder=retry_policies.in_force(*in_force),
        schemes=endpoint.schemes,
        headers=endpoint_headers.shown(endpoint, keyring),
        ca_certificates=_certificates(endpoint.ca_pem),
        missing_key=missing_keys.explain(keyring, endpoint.schemes, signed_with, endpoint.headers),
        lane=shown_lane(row),
        created_at=rfc3339(endpoint.created_at),
        updated_at=rfc3339(endpoint.updated_at),
    )


def _certificates(pem: str | None) -> list[Certificate] | None:
    if pem is None:
        return None
    return [
        Certificate(subject=each.subject, expires_at=rfc3339(each.expires_at), sha256=each.sha256)
        for each in ca_certificates.describe(pem)
    ]


def _rate(endpoint: Endpoint) -> RateLimit | None:
    if endpoint.rate_limit is None or endpoint.rate_burst is None:
        return None
    return RateLimit(per_second=endpoint.rate_limit, burst=endpoint.rate_burst)


def shown_lane(row: EndpointRow) -> ShownLane:
    """Its lane as the API shows it."""
    endpoint, lane, now, _ = row
    state = lanes.state(endpoint.status, lane.open_at, lane.rate_open_at, lane.broken_s, now)
    opens = max(lane.open_at, lane.rate_open_at)
    disable_at = lanes.disable_at(
        endpoint.status, lane.failing_since, lane.warned_at, bodies.settings().disable_after_s
    )
    return ShownLane(
        state=state,
        open_at=timestamp(opens) if opens > now else None,
        reason=_reason(state, endpoint, lane),
        failures=lane.failures,
        failing_since=timestamp(lane.failing_since),
        failed_at=timestamp(lane.failed_at),
        last_error=lane.last_error,
        last_status_code=lane.last_status_code,
        last_delivery=_delivery(lane.last_delivery_id),
        broken_s=lane.broken_s,
        warned_at=timestamp(lane.warned_at),
        disable_at=timestamp(disable_at),
    )


def _reason(state: State, endpoint: Endpoint, lane: Lane) -> str | None:
    if state in (State.PAUSED, State.DISABLED):
        return endpoint.status_reason
    return lane.closed_reason if state in (State.THROTTLED, State.BROKEN) else None


def _evidence(stored: dict[str, Any] | None) -> StatusEvidence | None:
    if stored is None:
        return None
    found = Evidence.read(stored)
    return StatusEvidence(
        failures=found.failures,
        failing_since=timestamp(found.failing_since),
        failed_at=timestamp(found.failed_at),
        last_error=found.last_error,
        last_status_code=found.last_status_code,
        last_delivery=_delivery(found.last_delivery_id),
    )


def _delivery(delivery_id: UUID | None) -> str | None:
    return None if delivery_id is None else ids.encode(ids.DELIVERY, delivery_id)
