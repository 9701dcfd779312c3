"""POST, GET, PATCH and DELETE /endpoints."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
from flask import Blueprint, Response, current_app, request, url_for
from msgspec import UNSET, UnsetType

from webhooks import ca_certificates, endpoints, target_check
from webhooks.api import bodies, endpoint_rows, pages
from webhooks.api.authentication import credential, tenant_to_change, tenant_to_read
from webhooks.api.bodies import answer
from webhooks.api.endpoint_rows import ShownEndpoint
from webhooks.api.operations import Parameter, operation
from webhooks.api.pages import Page
from webhooks.api.problems import Problem
from webhooks.endpoints import EndpointError
from webhooks.models import Endpoint
from webhooks.release import Release, Unfinished
from webhooks.scopes import Scope

blueprint = Blueprint("endpoints", __name__)

# Room for the certificates beside the other fields.
MOST_BYTES = bodies.ENVELOPE_BYTES + ca_certificates.MOST_BYTES


class NewEndpoint(msgspec.Struct, forbid_unknown_fields=True):
    """An endpoint to make; what is null or left out takes the installation's value."""

    url: str
    event_types: list[str]
    description: str = ""
    tenant: str | None = None
    max_in_flight: int | None = None
    timeout_s: float | None = None
    retry_policy: dict[str, Any] | None = None
    rate_limit: dict[str, Any] | None = None
    schemes: list[str] | None = None
    headers: dict[str, Any] | None = None
    ca_pem: str | None = None
    secret: str | None = None


class EndpointChange(msgspec.Struct, forbid_unknown_fields=True):
    """What to change; the rest stays.

    ``retry_policy`` null: the tenant's or the installation's again; ``rate_limit``, ``headers``
    and ``ca_pem`` null: none. ``headers`` are all of them; a secret one's null keeps its value.
    ``release`` says what is sent of what was held, where the status becomes active.
    """

    url: str | UnsetType = UNSET
    event_types: list[str] | UnsetType = UNSET
    description: str | UnsetType = UNSET
    max_in_flight: int | UnsetType = UNSET
    timeout_s: float | UnsetType = UNSET
    retry_policy: dict[str, Any] | UnsetType | None = UNSET
    rate_limit: dict[str, Any] | UnsetType | None = UNSET
    schemes: list[str] | UnsetType = UNSET
    headers: dict[str, Any] | UnsetType | None = UNSET
    ca_pem: str | UnsetType | None = UNSET
    status: str | UnsetType = UNSET
    status_reason: str | UnsetType = UNSET
    release: dict[str, Any] | UnsetType = UNSET


class EndpointChanged(ShownEndpoint, forbid_unknown_fields=True, kw_only=True):
    """The endpoint. ``warnings``: what is not wrong with its URL, but is worth a look."""

    warnings: list[str] | UnsetType = UNSET


class EndpointMade(EndpointChanged, forbid_unknown_fields=True, kw_only=True):
    """The endpoint with the signing secret that was made for it, which is shown this once."""

    secret: str | None


_new = msgspec.json.Decoder(NewEndpoint)
_change = msgspec.json.Decoder(EndpointChange)


@blueprint.post("/endpoints")
@operation(Scope.ENDPOINTS_WRITE, body=NewEndpoint, answer=EndpointMade, status=201)
def create() -> Response:
    """Add an endpoint. The answer alone shows the signing secret that was made for it."""
    fields = msgspec.structs.asdict(bodies.read_struct(_new, MOST_BYTES))
    tenant = tenant_to_change(fields.pop("tenant"))
    keyring = current_app.extensions["webhooks_keyring"]
    try:
        endpoint, secret = endpoints.create(
            tenant, bodies.settings(), keyring, actor=credential().actor, **fields
        )
    except EndpointError as error:
        raise Problem.of_field(422, error.field, error.message) from error
    fields = _fields(endpoint.id)
    made = EndpointMade(**fields, secret=secret, warnings=_warnings(endpoint))
    return answer(made, 201, {"Location": url_for(".read", endpoint_id=made.id)})


@blueprint.get("/endpoints")
@operation(
    Scope.ENDPOINTS_READ,
    answer=Page[ShownEndpoint],
    parameters=(
        Parameter("tenant", "Those of this tenant; for a key of all tenants"), *pages.PARAMETERS,
    ),
)  # fmt: skip
def list_() -> Response:
    """Endpoints, newest first."""
    pages.check_parameters("tenant", "limit", "cursor")
    tenant_id = tenant_to_read(request.args.get("tenant"))
    query = endpoint_rows.query()
    if tenant_id is not None:
        query = query.where(Endpoint.tenant_id == tenant_id)
    return answer(pages.by_id(query, Endpoint.id, endpoint_rows.shown))


@blueprint.get("/endpoints/<endpoint_id>")
@operation(Scope.ENDPOINTS_READ, answer=ShownEndpoint)
def read(endpoint_id: str) -> Response:
    """One endpoint; its secret is not shown again."""
    found = endpoint_rows.find(endpoint_id)
    return answer(endpoint_rows.shown(endpoint_rows.read(found.id)))


@blueprint.patch("/endpoints/<endpoint_id>")
@operation(Scope.ENDPOINTS_WRITE, body=EndpointChange, answer=EndpointChanged)
def update(endpoint_id: str) -> Response:
    """Change the fields that are given; pause, disable or resume by ``status``."""
    endpoint = endpoint_rows.find(endpoint_id)
    given = msgspec.structs.asdict(bodies.read_struct(_change, MOST_BYTES))
    fields = {name: value for name, value in given.items() if value is not UNSET}
    try:
        if "release" in fields:
            fields["release"] = Release.parse(fields["release"])
        endpoints.update(endpoint, bodies.settings(), actor=credential().actor, **fields)
    except EndpointError as error:
        raise Problem.of_field(422, error.field, error.message) from error
    except Unfinished as error:
        raise Problem(409, str(error)) from error
    endpoint = endpoint_rows.find(endpoint_id)
    warnings = _warnings(endpoint) if "url" in fields else UNSET
    return answer(EndpointChanged(**_fields(endpoint.id), warnings=warnings))


@blueprint.delete("/endpoints/<endpoint_id>")
@operation(Scope.ENDPOINTS_WRITE, status=204)
def delete(endpoint_id: str) -> tuple[str, int]:
    """Remove an endpoint: what waits for it is cancelled, its history stays."""
    endpoints.delete(endpoint_rows.find(endpoint_id), actor=credential().actor)
    return "", 204


def _warnings(endpoint: Endpoint) -> list[str] | UnsetType:
    """What is not wrong, but is worth a look; the name's answer is remembered from the check."""
    found = target_check.check(endpoint.url)
    return UNSET if found is None else [found]


def _fields(endpoint_id: UUID) -> dict[str, Any]:
    return msgspec.structs.asdict(endpoint_rows.shown(endpoint_rows.read(endpoint_id)))
