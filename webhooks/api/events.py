"""POST /events, POST /events/batch, GET /events/<id> and its payload."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any
from uuid import UUID

import msgspec
from flask import Blueprint, Response, current_app, request, url_for
from msgspec import UNSET
from sqlalchemy import func, select

from webhooks import events, fanouts, ids
from webhooks.api import bodies, delivery_lists, pages
from webhooks.api.authentication import acting_tenant, credential
from webhooks.api.bodies import BYTE_ORDER_MARK, Invalid, Malformed, answer, rfc3339
from webhooks.api.delivery_lists import Delivery, Filter
from webhooks.api.event_answers import (
    AcceptedEvent,
    BatchItem,
    BatchItems,
    EventDetails,
    Fanout,
)
from webhooks.api.operations import operation
from webhooks.api.pages import Page
from webhooks.api.problems import FieldError, Problem, not_found
from webhooks.attempt import ATTEMPT_HEADER
from webhooks.catalog import Catalog, Unfit
from webhooks.events import Accepted, Conflict, EventError, NewEvent
from webhooks.group_commit import GroupCommit
from webhooks.models import Event, Tenant, db
from webhooks.scopes import Scope
from webhooks.web_database import psycopg_connection

BATCH_BYTES = 8 * 1024 * 1024
BATCH_ITEMS = 1000
NDJSON = "application/x-ndjson"

blueprint = Blueprint("events", __name__)


class Envelope(msgspec.Struct, forbid_unknown_fields=True):
    """What is posted. The payload stays the bytes that were sent."""

    type: str
    payload: msgspec.Raw
    tenant: str | None = None
    idempotency_key: str | None = None


_envelope = msgspec.json.Decoder(Envelope)
_array = msgspec.json.Decoder(list[msgspec.Raw])


@blueprint.post("/events")
@operation(Scope.EVENTS_WRITE, body=Envelope, answer=AcceptedEvent, status=202, own_keys=True)
def emit() -> Response:
    """Accept one event. 202: it is durable, and so is a delivery for each matching endpoint."""
    _refuse_delivery()
    try:
        body = bodies.read(bodies.settings().max_payload_bytes + bodies.ENVELOPE_BYTES)
        envelope = _decode(body)
        key = _idempotency_key(envelope)
        event = NewEvent(
            acting_tenant(envelope.tenant), envelope.type, bytes(envelope.payload), key
        )
        _check(event)
        accepted = _group_commit().store(event)
    except EventError as error:
        raise Problem.of_field(422, error.field, error.message) from error
    except Unfit as error:
        raise _unfit(error) from error
    except Conflict as error:
        raise Problem.of_field(409, "idempotency_key", str(error)) from error
    _wake([accepted])
    return answer(_shown(accepted), 202)


@blueprint.post("/events/batch")
@operation(Scope.EVENTS_WRITE, body=list[Envelope], answer=BatchItems, own_keys=True)
def emit_batch() -> Response:
    """Accept up to 1,000 events; one answer each, in the order sent.

    The valid ones are stored in one transaction; the others are reported and do not
    keep the valid ones back, so the whole is 200 and each item has its own status.
    """
    _refuse_delivery()
    bodies.refuse_idempotency_key("give idempotency_key in each item instead")
    items = _items(bodies.read(BATCH_BYTES, bodies.JSON, NDJSON))
    tenant_of = cache(acting_tenant)
    checked = [_check_item(tenant_of, item) for item in items]
    with psycopg_connection() as connection:
        stored = events.emit_many(connection, [e for e in checked if isinstance(e, NewEvent)])
    _wake(stored)
    verdicts = iter(stored)
    data = [
        _shown_item(next(verdicts)) if isinstance(item, NewEvent) else _refused_item(item)
        for item in checked
    ]
    return answer(BatchItems(data=data))


@blueprint.get("/events/<event_id>")
@operation(Scope.DELIVERIES_READ, answer=EventDetails)
def read(event_id: str) -> Response:
    """An event without its payload, and the first page of its deliveries.

    ``fanout`` tells how many deliveries have been made, as long as some are still to come.
    """
    columns = (
        Event.id,
        Event.tenant_id,
        Event.type,
        Event.created_at,
        func.length(Event.payload).label("payload_bytes"),
        Tenant.key.label("tenant"),
    )
    row = _find(event_id, *columns)
    with psycopg_connection() as connection:
        fanout = fanouts.progress(connection, row.tenant_id, row.id)
    return answer(
        EventDetails(
            id=event_id,
            tenant=row.tenant,
            type=row.type,
            created_at=rfc3339(row.created_at),
            payload_bytes=row.payload_bytes,
            payload_url=url_for(".payload", event_id=event_id),
            fanout=Fanout(expanded=fanout.expanded, of=fanout.of) if fanout else UNSET,
            deliveries=_deliveries(row.id),
        )
    )


@blueprint.get("/events/<event_id>/payload")
@operation(Scope.DELIVERIES_READ, answer=msgspec.Raw)
def payload(event_id: str) -> Response:
    """The payload, byte for byte as it was accepted; 410 when it is not kept any more."""
    found: bytes | None = _find(event_id, Event.payload).payload
    if found is None:
        raise Problem(410, "its payload is past its retention, or was erased")
    return Response(found, content_type=bodies.JSON)


def _deliveries(event_id: UUID) -> Page[Delivery]:
    """The first page of GET /deliveries?event=…, whose cursors they are."""
    wanted = Filter(event_id=event_id, tenant_id=credential().only_tenant)
    return delivery_lists.page(wanted, pages.DEFAULT_LIMIT)


def _refuse_delivery() -> None:
    """Problem 422 for a delivery of any installation: an endpoint that is an emit address would
    make events without end, perhaps round several installations.
    """
    if ATTEMPT_HEADER in request.headers:
        raise Problem.of_field(
            422, ATTEMPT_HEADER, "this request is itself a delivery: its endpoint's URL is an "
            "emit address, which would go round for ever; receive it, and emit what follows"
        )  # fmt: skip


def _find(event_id: str, *columns: Any) -> Any:
    try:
        value = ids.decode(ids.EVENT, event_id)
    except ValueError as error:
        raise not_found("event") from error
    query = select(*columns).join(Tenant, Tenant.id == Event.tenant_id).where(Event.id == value)
    scope = credential().only_tenant
    if scope is not None:
        query = query.where(Event.tenant_id == scope)
    row = db.session.execute(query).one_or_none()
    if row is None:
        raise not_found("event")
    return row


def _decode(body: bytes | msgspec.Raw) -> Envelope:
    """An envelope whose payload is JSON in UTF-8 and not too long; Problem otherwise."""
    try:
        envelope = bodies.decode(_envelope, bytes(body))
    except Malformed as error:
        raise Problem.of_field(400, "body", str(error)) from error
    except Invalid as error:
        raise Problem(422, errors=[error.error]) from error
    size, limit = len(memoryview(envelope.payload)), bodies.settings().max_payload_bytes
    if size > limit:
        raise Problem.of_field(413, "payload", f"it has {size} bytes; send at most {limit}")
    try:
        str(envelope.payload, "utf-8")  # the decoder skips over it without looking
    except UnicodeDecodeError as error:
        raise Problem.of_field(400, "payload", f"it is not UTF-8: {error.reason}") from error
    return envelope


def _idempotency_key(envelope: Envelope) -> str | None:
    """The key of the header or the field, which mean the same."""
    header = request.headers.get("Idempotency-Key")
    if header is None:
        return envelope.idempotency_key
    if envelope.idempotency_key not in (None, header):
        raise Problem.of_field(
            422, "idempotency_key", "it differs from the header Idempotency-Key; send one of them"
        )
    return header


def _items(body: bytes) -> list[Any]:
    if request.mimetype == NDJSON:
        if body.startswith(BYTE_ORDER_MARK):
            raise Problem.of_field(400, "body", "it begins with a byte order mark; leave it out")
        items: list[Any] = [line for line in body.split(b"\n") if line.strip()]
    else:
        try:
            items = bodies.decode(_array, body)
        except Malformed as error:
            raise Problem.of_field(400, "body", str(error)) from error
        except Invalid as error:
            raise Problem(422, errors=[error.error]) from error
    if len(items) > BATCH_ITEMS:
        raise Problem.of_field(
            413, "body", f"it has {len(items)} items; send at most {BATCH_ITEMS}"
        )
    return items


def _check_item(
    tenant_of: Callable[[str | None], UUID], item: bytes | msgspec.Raw
) -> NewEvent | Problem:
    try:
        envelope = _decode(item)
        event = NewEvent(
            tenant_of(envelope.tenant),
            envelope.type,
            bytes(envelope.payload),
            envelope.idempotency_key,
        )
        _check(event)
        return event
    except EventError as error:
        return Problem.of_field(422, error.field, error.message)
    except Unfit as error:
        return _unfit(error)
    except Problem as problem:
        return problem


def _check(event: NewEvent) -> None:
    """Raise EventError or Unfit for what cannot be accepted."""
    events.check(event)
    catalog: Catalog = current_app.extensions["webhooks_catalog"]
    catalog.check(psycopg_connection, event.tenant_id, event.type, event.payload)


def _unfit(error: Unfit) -> Problem:
    return Problem(422, errors=[FieldError(field, message) for field, message in error.errors])


def _group_commit() -> GroupCommit:
    found: GroupCommit = current_app.extensions["webhooks_group_commit"]
    return found


def _wake(stored: Iterable[Accepted | Conflict]) -> None:
    new = [s.deliveries for s in stored if isinstance(s, Accepted) and not s.duplicate]
    if any(new):
        is_large = max(new) > fanouts.IN_EMIT
        current_app.extensions["webhooks_notifier"].notify(fan_out=is_large)


def _shown(accepted: Accepted) -> AcceptedEvent:
    return AcceptedEvent(
        id=ids.encode(ids.EVENT, accepted.id),
        deliveries=accepted.deliveries,
        duplicate=accepted.duplicate,
    )


def _shown_item(verdict: Accepted | Conflict) -> BatchItem:
    if isinstance(verdict, Accepted):
        return BatchItem(
            status=202,
            id=ids.encode(ids.EVENT, verdict.id),
            deliveries=verdict.deliveries,
            duplicate=verdict.duplicate,
        )
    return _refused_item(Problem.of_field(409, "idempotency_key", str(verdict)))


def _refused_item(problem: Problem) -> BatchItem:
    errors = list(problem.errors) or [FieldError("body", str(problem))]
    return BatchItem(status=problem.status, errors=errors)
