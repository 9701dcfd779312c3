"""GET /deliveries, GET /deliveries/<id>, POST /deliveries/<id>/replay, /retry and /cancel."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from uuid import UUID

import msgspec
from flask import Blueprint, Response, current_app
from sqlalchemy import RowMapping, text

from webhooks import deliveries, ids
from webhooks.api import attempts, bodies, delivery_filters, delivery_lists, pages
from webhooks.api.attempts import Attempt
from webhooks.api.authentication import credential
from webhooks.api.bodies import answer
from webhooks.api.delivery_lists import Delivery
from webhooks.api.operations import operation
from webhooks.api.pages import Page
from webhooks.api.problems import Problem, not_found
from webhooks.endpoint_fields import EndpointError, check_reason
from webhooks.models import db
from webhooks.scopes import Scope
from webhooks.web_database import psycopg_connection

# The queue first, by the literal: without it every partition would be looked into.
_FIND = """
SELECT {columns} FROM webhooks.deliveries d
WHERE d.id = :id AND (CAST(:tenant AS uuid) IS NULL OR d.tenant_id = :tenant) AND {where}
"""
_LIVE = _FIND.format(columns=delivery_lists.COLUMNS, where="d.finished_at = 'infinity'")
_FINISHED = _FIND.format(
    columns=delivery_lists.COLUMNS,
    where="d.finished_at < 'infinity' "
    "AND d.finished_at >= webhooks.uuid7_time(:id) - interval '1 day'",
)
CANCELLED = "cancelled by an API key"


class Cancellation(msgspec.Struct, forbid_unknown_fields=True):
    """Why, in at most 500 printable characters."""

    reason: str | None = None


class DeliveryWithAttempts(Delivery, forbid_unknown_fields=True, kw_only=True):
    """A delivery with its last attempts, oldest first."""

    attempts: list[Attempt]


_cancellation = msgspec.json.Decoder(Cancellation)

blueprint = Blueprint("deliveries", __name__)


@blueprint.get("/deliveries")
@operation(
    Scope.DELIVERIES_READ,
    answer=Page[Delivery],
    parameters=(*delivery_filters.PARAMETERS, *pages.PARAMETERS),
)
def list_() -> Response:
    """Deliveries: what is live first, then what has finished, newest first in both."""
    pages.check_parameters(*delivery_filters.NAMES, "limit", "cursor")
    size, wanted = pages.limit(), delivery_filters.read()
    begins = pages.cursor(delivery_lists.context(wanted))
    with pages.search():
        return answer(delivery_lists.page(wanted, size, begins))


@blueprint.get("/deliveries/<delivery_id>")
@operation(Scope.DELIVERIES_READ, answer=DeliveryWithAttempts)
def read(delivery_id: str) -> Response:
    """One delivery with its last 100 attempts, oldest first."""
    return answer(read_with_attempts(decoded(delivery_id)))


@blueprint.post("/deliveries/<delivery_id>/replay")
@operation(Scope.DELIVERIES_REPLAY, answer=Delivery, status=202)
def replay(delivery_id: str) -> Response:
    """Send a finished delivery again; ``held`` says why it waits; 409 where it cannot be sent."""
    return _act(deliveries.replay, delivery_id)


@blueprint.post("/deliveries/<delivery_id>/retry")
@operation(Scope.DELIVERIES_REPLAY, answer=Delivery, status=202)
def retry(delivery_id: str) -> Response:
    """Make a scheduled retry pending at once; ``held`` says why it waits; 409 if it cannot be."""
    return _act(deliveries.retry_now, delivery_id)


@blueprint.post("/deliveries/<delivery_id>/cancel")
@operation(Scope.DELIVERIES_REPLAY, body=Cancellation, answer=Delivery, status=202)
def cancel(delivery_id: str) -> Response:
    """Give a pending or scheduled delivery up, for a reason; it may be replayed."""
    reason = bodies.read_struct(_cancellation).reason
    try:
        check_reason(reason)
    except EndpointError as error:
        raise Problem.of_field(422, "reason", error.message) from error
    return _act(partial(deliveries.cancel, reason=reason or CANCELLED), delivery_id)


def _act(action: Callable[..., object], delivery_id: str) -> Response:
    who, value = credential(), decoded(delivery_id)
    try:
        with psycopg_connection() as connection:
            action(connection, value, who.only_tenant, actor=who.actor)
    except deliveries.Missing as error:
        raise not_found("delivery") from error
    except deliveries.Refused as error:
        raise Problem(409, str(error)) from error
    current_app.extensions["webhooks_notifier"].notify()
    return answer(shown(find(value)), 202)


def decoded(delivery_id: str) -> UUID:
    """The id in a public one; Problem 404 for a malformed one, as for an unknown one."""
    try:
        return ids.decode(ids.DELIVERY, delivery_id)
    except ValueError as error:
        raise not_found("delivery") from error


def find(delivery_id: UUID) -> RowMapping:
    """The caller's delivery; Problem 404 when there is none."""
    values = {"id": delivery_id, "tenant": credential().only_tenant}
    for statement in (_LIVE, _FINISHED, _LIVE):  # it may move between two looks
        row = db.session.execute(text(statement), values).mappings().first()
        if row is not None:
            return row
    raise not_found("delivery")


def read_with_attempts(delivery_id: UUID) -> DeliveryWithAttempts:
    """The caller's delivery with its last attempts; Problem 404 when there is none.

    The attempts first: what they say has happened is then part of the delivery's state.
    """
    found = [attempts.shown(each) for each in reversed(attempts.newest(delivery_id))]
    fields = msgspec.structs.asdict(shown(find(delivery_id)))
    return DeliveryWithAttempts(**fields, attempts=found)


def shown(row: RowMapping) -> Delivery:
    """A delivery that was found, as the API shows it."""
    closed = delivery_lists.closed_endpoints([row])
    return delivery_lists.shown(row, delivery_lists.tenant_keys([row]), closed)
