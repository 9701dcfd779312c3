"""/subscriptions: which events an endpoint wants."""

from __future__ import annotations

import msgspec
from flask import Blueprint, Response, request, url_for
from msgspec import UNSET, UnsetType
from sqlalchemy import select

from webhooks import filters, ids, subscriptions
from webhooks.api import bodies, endpoint_rows, pages
from webhooks.api.authentication import credential, tenant_to_read
from webhooks.api.bodies import Timestamp, answer, rfc3339
from webhooks.api.operations import Parameter, operation
from webhooks.api.pages import Page
from webhooks.api.problems import Problem, not_found
from webhooks.endpoint_fields import EndpointError
from webhooks.filters import FilterError
from webhooks.models import Endpoint, Subscription
from webhooks.scopes import Scope
from webhooks.web_database import psycopg_connection

MOST_BYTES = bodies.ENVELOPE_BYTES + 262_144

blueprint = Blueprint("subscriptions", __name__)


class NewSubscription(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``event_type``: a type, a prefix such as ``invoice.*``, or ``*``; ``filter``: a condition
    on the payload, such as ``$.amount > 100``.
    """

    endpoint: str
    event_type: str
    filter: str | None = None


class SubscriptionChange(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``filter`` null: every event of the type."""

    filter: str | UnsetType | None = UNSET


class FilterTrial(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A filter and a payload to hold against it."""

    filter: str
    payload: msgspec.Raw


class FilterVerdict(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``matches`` null: it could not be told, and the delivery would be a filter_error."""

    matches: bool | None


class ShownSubscription(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One pattern of an endpoint."""

    id: str
    endpoint: str
    event_type: str
    filter: str | None
    created_at: Timestamp


_new = msgspec.json.Decoder(NewSubscription)
_change = msgspec.json.Decoder(SubscriptionChange)
_trial = msgspec.json.Decoder(FilterTrial)


@blueprint.post("/subscriptions")
@operation(Scope.ENDPOINTS_WRITE, body=NewSubscription, answer=ShownSubscription, status=201)
def create() -> Response:
    """Subscribe an endpoint to one more event type, or pattern of them."""
    wanted = bodies.read_struct(_new)
    endpoint = _endpoint(wanted.endpoint)
    try:
        made = subscriptions.add(
            endpoint, wanted.event_type, wanted.filter, actor=credential().actor
        )
    except EndpointError as error:
        raise Problem.of_field(422, error.field, error.message) from error
    shown = _shown(made)
    return answer(shown, 201, {"Location": url_for(".read", subscription_id=shown.id)})


@blueprint.get("/subscriptions")
@operation(
    Scope.ENDPOINTS_READ,
    answer=Page[ShownSubscription],
    parameters=(
        Parameter("endpoint", "Those of this endpoint (ep_…)"),
        Parameter("tenant", "Those of this tenant; for a key of all tenants"),
        *pages.PARAMETERS,
    ),
)
def list_() -> Response:
    """Subscriptions, newest first."""
    pages.check_parameters("endpoint", "tenant", "limit", "cursor")
    query = (
        select(Subscription)
        .join(Endpoint, Endpoint.id == Subscription.endpoint_id)
        .where(Endpoint.deleted_at.is_(None))
    )
    tenant_id = tenant_to_read(request.args.get("tenant"))
    if tenant_id is not None:
        query = query.where(Subscription.tenant_id == tenant_id)
    endpoint_id = pages.id_parameter("endpoint", ids.ENDPOINT)
    if endpoint_id is not None:
        query = query.where(Subscription.endpoint_id == endpoint_id)
    return answer(pages.by_id(query, Subscription.id, lambda row: _shown(row[0])))


@blueprint.get("/subscriptions/<subscription_id>")
@operation(Scope.ENDPOINTS_READ, answer=ShownSubscription)
def read(subscription_id: str) -> Response:
    """One subscription."""
    return answer(_shown(_find(subscription_id)))


@blueprint.patch("/subscriptions/<subscription_id>")
@operation(Scope.ENDPOINTS_WRITE, body=SubscriptionChange, answer=ShownSubscription)
def update(subscription_id: str) -> Response:
    """Change its filter; events that are emitted from now on follow it."""
    row, change = _find(subscription_id), bodies.read_struct(_change)
    try:
        if change.filter is not UNSET:
            subscriptions.set_filter(row, change.filter, actor=credential().actor)
    except EndpointError as error:
        raise Problem.of_field(422, error.field, error.message) from error
    return answer(_shown(row))


@blueprint.delete("/subscriptions/<subscription_id>")
@operation(Scope.ENDPOINTS_WRITE, status=204)
def delete(subscription_id: str) -> tuple[str, int]:
    """Unsubscribe; 409 for an endpoint's last."""
    try:
        subscriptions.delete(_find(subscription_id), actor=credential().actor)
    except EndpointError as error:
        raise Problem(409, error.message) from error
    return "", 204


@blueprint.post("/subscriptions/dry-run")
@operation(Scope.ENDPOINTS_READ, body=FilterTrial, answer=FilterVerdict)
def dry_run() -> Response:
    """Whether a payload passes a filter, as emit would see it; nothing is stored."""
    wanted = bodies.read_struct(_trial, MOST_BYTES)
    try:
        with psycopg_connection() as connection:
            filters.check(connection, wanted.filter)
            matches = filters.passes(connection, wanted.filter, bytes(wanted.payload))
    except FilterError as error:
        raise Problem.of_field(422, "filter", str(error)) from error
    return answer(FilterVerdict(matches=matches))


def _endpoint(endpoint_id: str) -> Endpoint:
    """In a body it is a field that is wrong, not a path that leads nowhere."""
    try:
        return endpoint_rows.find(endpoint_id)
    except Problem as error:
        raise Problem.of_field(422, "endpoint", "there is no endpoint of this id") from error


def _find(subscription_id: str) -> Subscription:
    try:
        value = ids.decode(ids.SUBSCRIPTION, subscription_id)
        found = subscriptions.find(credential().only_tenant, value)
    except ValueError:
        found = None
    if found is None:
        raise not_found("subscription")
    return found


def _shown(row: Subscription) -> ShownSubscription:
    return ShownSubscription(
        id=ids.encode(ids.SUBSCRIPTION, row.id),
        endpoint=ids.encode(ids.ENDPOINT, row.endpoint_id),
        event_type=row.pattern,
        filter=row.filter,
        created_at=rfc3339(row.created_at),
    )
