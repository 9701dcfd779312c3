"""POST, GET, PATCH and DELETE /endpoints."""

from __future__ import annotations

from typing import Any

import msgspec
from flask import Blueprint, Response, current_app, request, url_for
from msgspec import UNSET, UnsetType
from sqlalchemy import select
from sqlalchemy.orm import joinedload, selectinload

from webhooks import endpoints, ids
from webhooks.api import bodies, pages
from webhooks.api.authentication import credential, tenant_to_change, tenant_to_read
from webhooks.api.bodies import answer, timestamp
from webhooks.api.problems import Problem, not_found
from webhooks.db import FOREVER
from webhooks.endpoints import EndpointError
from webhooks.models import Endpoint, db

blueprint = Blueprint("endpoints", __name__)


class New(msgspec.Struct, forbid_unknown_fields=True):
    """An endpoint to make; what is null or left out takes the installation's value."""

    url: str
    event_types: list[str]
    description: str = ""
    tenant: str | None = None
    max_in_flight: int | None = None
    timeout_s: float | None = None
    retry_policy: dict[str, Any] | None = None


class Change(msgspec.Struct, forbid_unknown_fields=True):
    """What to change; the rest stays. ``retry_policy`` null: the installation's again."""

    url: str | UnsetType = UNSET
    event_types: list[str] | UnsetType = UNSET
    description: str | UnsetType = UNSET
    max_in_flight: int | UnsetType = UNSET
    timeout_s: float | UnsetType = UNSET
    retry_policy: dict[str, Any] | UnsetType | None = UNSET
    status: str | UnsetType = UNSET


_new = msgspec.json.Decoder(New)
_change = msgspec.json.Decoder(Change)


@blueprint.post("/endpoints")
def create() -> Response:
    """Add an endpoint. The answer alone shows its signing secret."""
    bodies.refuse_idempotency_key()
    fields = msgspec.structs.asdict(bodies.read_struct(_new))
    tenant = tenant_to_change(fields.pop("tenant"))
    keyring = current_app.extensions["webhooks_keyring"]
    try:
        endpoint, secret = endpoints.create(
            tenant, bodies.settings(), keyring, actor=credential().actor, **fields
        )
    except EndpointError as error:
        raise Problem.of_field(422, error.field, error.message) from error
    shown = _shown(endpoint)
    location = url_for(".read", endpoint_id=shown["id"])
    return answer({**shown, "secret": secret}, 201, {"Location": location})


@blueprint.get("/endpoints")
def list_() -> Response:
    """Endpoints, newest first."""
    pages.check_parameters("tenant", "limit", "cursor")
    size, after = pages.limit(), pages.cursor()
    tenant_id = tenant_to_read(request.args.get("tenant"))
    query = (
        select(Endpoint)
        .options(joinedload(Endpoint.tenant), selectinload(Endpoint.subscriptions))
        .where(Endpoint.deleted_at.is_(None))
        .order_by(Endpoint.id.desc())
        .limit(size + 1)
    )
    if tenant_id is not None:
        query = query.where(Endpoint.tenant_id == tenant_id)
    if after is not None:
        query = query.where(Endpoint.id < after[1])
    rows = db.session.scalars(query).all()
    return answer(pages.page(rows, size, lambda row: (FOREVER, row.id), _shown))


@blueprint.get("/endpoints/<endpoint_id>")
def read(endpoint_id: str) -> Response:
    """One endpoint; its secret is not shown again."""
    return answer(_shown(_find(endpoint_id)))


@blueprint.patch("/endpoints/<endpoint_id>")
def update(endpoint_id: str) -> Response:
    """Change the fields that are given; pause or resume by ``status``."""
    endpoint = _find(endpoint_id)
    given = msgspec.structs.asdict(bodies.read_struct(_change))
    fields = {name: value for name, value in given.items() if value is not UNSET}
    status = fields.pop("status", endpoint.status)
    if status not in (endpoint.status, "active", "paused"):
        raise Problem.of_field(422, "status", f"{status[:40]!r} is not active or paused")
    actor = credential().actor
    if fields:
        try:
            endpoints.update(endpoint, bodies.settings(), actor=actor, **fields)
        except EndpointError as error:
            raise Problem.of_field(422, error.field, error.message) from error
    if status != endpoint.status:
        (endpoints.resume if status == "active" else endpoints.pause)(endpoint, actor=actor)
    return answer(_shown(_find(endpoint_id)))


@blueprint.delete("/endpoints/<endpoint_id>")
def delete(endpoint_id: str) -> tuple[str, int]:
    """Remove an endpoint: what waits for it is cancelled, its history stays."""
    endpoints.delete(_find(endpoint_id), actor=credential().actor)
    return "", 204


def _find(endpoint_id: str) -> Endpoint:
    try:
        found = endpoints.find(credential().scope, ids.decode(ids.ENDPOINT, endpoint_id))
    except ValueError:
        found = None
    if found is None:
        raise not_found("endpoint")
    return found


def _shown(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "id": ids.encode(ids.ENDPOINT, endpoint.id),
        "tenant": endpoint.tenant.key,
        "url": endpoint.url,
        "description": endpoint.description,
        "event_types": sorted(s.pattern for s in endpoint.subscriptions),
        "status": endpoint.status,
        "status_reason": endpoint.status_reason,
        "max_in_flight": endpoint.max_in_flight,
        "timeout_s": endpoint.timeout_s,
        "retry_policy": endpoint.retry_policy,
        "created_at": timestamp(endpoint.created_at),
        "updated_at": timestamp(endpoint.updated_at),
    }
