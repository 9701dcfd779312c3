"""GET /events: what was accepted, newest first."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec
from flask import Blueprint, Response, request
from sqlalchemy import Row, func, select

from webhooks import ids
from webhooks.api import delivery_filters, pages
from webhooks.api.authentication import tenant_to_read
from webhooks.api.bodies import Timestamp, answer, rfc3339
from webhooks.api.operations import Parameter, operation
from webhooks.api.pages import Page
from webhooks.models import Event, Tenant
from webhooks.scopes import Scope

blueprint = Blueprint("event_lists", __name__)

PARAMETERS = (
    Parameter("event_type", "Those of this event type"),
    Parameter("tenant", "Those of this tenant; for a key of all tenants"),
    Parameter("from", "Accepted at this time (RFC 3339) or later"),
    Parameter("to", "Accepted before this time"),
)


class EventSummary(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An event without its payload. ``payload_bytes`` null: that is not kept any more."""

    id: str
    tenant: str
    type: str
    created_at: Timestamp
    payload_bytes: int | None


@blueprint.get("/events")
@operation(
    Scope.DELIVERIES_READ,
    answer=Page[EventSummary],
    parameters=(*PARAMETERS, *pages.PARAMETERS),
)
def list_() -> Response:
    """Events without their payloads. One that is committed late may lie below one that was
    listed before: who follows events reads some seconds twice.
    """
    pages.check_parameters(*(each.name for each in PARAMETERS), "limit", "cursor")
    query = select(
        Event.id, Event.type, Event.created_at, func.length(Event.payload), Tenant.key
    ).join(Tenant, Tenant.id == Event.tenant_id)
    tenant_id = tenant_to_read(request.args.get("tenant"))
    if tenant_id is not None:
        # The shard is in the primary key: others' events are passed over within the index.
        query = query.where(
            Event.tenant_id == tenant_id, Event.shard == func.webhooks.shard_of(tenant_id)
        )
    if (event_type := delivery_filters.event_type()) is not None:
        query = query.where(Event.type == event_type)
    for name, condition in (("from", Event.id.__ge__), ("to", Event.id.__lt__)):
        at = delivery_filters.time_parameter(name)
        if at is not None:
            query = query.where(condition(func.webhooks.uuid7_floor(at)))
    with pages.search():
        return answer(pages.by_id(query, Event.id, _shown))


def _shown(row: Row[UUID, str, datetime, int | None, str]) -> EventSummary:
    event_id, event_type, created_at, payload_bytes, tenant = row
    return EventSummary(
        id=ids.encode(ids.EVENT, event_id),
        tenant=tenant,
        type=event_type,
        created_at=rfc3339(created_at),
        payload_bytes=payload_bytes,
    )
