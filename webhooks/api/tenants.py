"""/tenant: the key's own one, or what ?tenant names to a key of all tenants; /tenants: all."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from flask import Blueprint, Response, request, url_for
from msgspec import UNSET, UnsetType
from sqlalchemy import select

from webhooks import backoff, ids, tenants
from webhooks.api import bodies, pages, retry_policies
from webhooks.api.authentication import credential, require_all_tenants, tenant_to_change
from webhooks.api.bodies import Timestamp, answer, rfc3339
from webhooks.api.operations import Parameter, operation
from webhooks.api.pages import Page
from webhooks.api.problems import Problem, not_found
from webhooks.api.retry_policies import LadderInForce
from webhooks.models import Tenant
from webhooks.scopes import Scope
from webhooks.tenants import TenantError

TENANT = Parameter("tenant", "Which; for a key of all tenants")

blueprint = Blueprint("tenants", __name__)


class TenantChange(msgspec.Struct, forbid_unknown_fields=True):
    """What to change. ``retry_policy`` null: the installation's again; ``payload_days`` null:
    payloads are kept as long as their events; ``unknown_event_types``: accept or refuse them.
    """

    name: str | UnsetType = UNSET
    retry_policy: dict[str, Any] | UnsetType | None = UNSET
    payload_days: int | UnsetType | None = UNSET
    unknown_event_types: str | UnsetType = UNSET


class NewTenant(msgspec.Struct, forbid_unknown_fields=True):
    """A tenant to make. ``key``: 1 to 63 of a-z 0-9 _ -; ``name``: the key unless given."""

    key: str
    name: str | None = None


class ShownTenant(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A tenant, with the ladder of its endpoints that have no policy of their own."""

    id: str
    key: str
    name: str
    retry_policy: dict[str, Any] | None
    payload_days: int | None
    unknown_event_types: Literal["accept", "refuse"]
    retry_ladder: LadderInForce
    created_at: Timestamp


_change = msgspec.json.Decoder(TenantChange)
_new = msgspec.json.Decoder(NewTenant)


@blueprint.get("/tenant")
@operation(Scope.ENDPOINTS_READ, answer=ShownTenant, parameters=(TENANT,))
def read() -> Response:
    """One tenant, with the retry policy of its endpoints that have none of their own."""
    return answer(_shown(_tenant()))


@blueprint.patch("/tenant")
@operation(Scope.ADMIN, body=TenantChange, answer=ShownTenant, parameters=(TENANT,))
def update() -> Response:
    """Change what is given."""
    return answer(_shown(_update(_tenant())))


@blueprint.get("/tenants")
@operation(Scope.ADMIN, answer=Page[ShownTenant], parameters=pages.PARAMETERS)
def list_() -> Response:
    """Every tenant, newest first; for a key of all tenants."""
    require_all_tenants()
    pages.check_parameters("limit", "cursor")
    return answer(pages.by_id(select(Tenant), Tenant.id, lambda row: _shown(row[0])))


@blueprint.post("/tenants")
@operation(Scope.ADMIN, body=NewTenant, answer=ShownTenant, status=201)
def create() -> Response:
    """Make a tenant; for a key of all tenants."""
    require_all_tenants()
    wanted = bodies.read_struct(_new)
    name = wanted.key if wanted.name is None else wanted.name
    try:
        made = tenants.create(wanted.key, name, actor=credential().actor)
    except TenantError as error:
        raise Problem.of_field(422, error.field, error.message) from error
    return answer(_shown(made), 201, {"Location": url_for(".read_one", tenant_key=made.key)})


@blueprint.get("/tenants/<tenant_key>")
@operation(Scope.ENDPOINTS_READ, answer=ShownTenant)
def read_one(tenant_key: str) -> Response:
    """One tenant by its key; another's is not there for a key of one tenant."""
    return answer(_shown(_find(tenant_key)))


@blueprint.patch("/tenants/<tenant_key>")
@operation(Scope.ADMIN, body=TenantChange, answer=ShownTenant)
def update_one(tenant_key: str) -> Response:
    """Change what is given of it."""
    return answer(_shown(_update(_find(tenant_key))))


def _find(tenant_key: str) -> Tenant:
    who = credential()
    found = tenants.find(tenant_key)
    if found is None or who.only_tenant not in (None, found.id):
        raise not_found("tenant")
    return found


def _update(tenant: Tenant) -> Tenant:
    change = bodies.read_struct(_change)
    given = msgspec.structs.asdict(change)
    fields = {name: value for name, value in given.items() if value is not UNSET}
    try:
        tenants.update(tenant, actor=credential().actor, **fields)
    except TenantError as error:
        raise Problem.of_field(422, error.field, error.message) from error
    return tenant


def _tenant() -> Tenant:
    pages.check_parameters("tenant")
    return tenant_to_change(request.args.get("tenant"))


def _shown(tenant: Tenant) -> ShownTenant:
    in_force = backoff.in_force(None, tenant.retry_policy, bodies.settings())
    return ShownTenant(
        id=ids.encode(ids.TENANT, tenant.id),
        key=tenant.key,
        name=tenant.name,
        retry_policy=tenant.retry_policy,
        payload_days=tenant.payload_days,
        unknown_event_types=tenant.unknown_event_types,  # type: ignore[arg-type]
        retry_ladder=retry_policies.in_force(*in_force),
        created_at=rfc3339(tenant.created_at),
    )
