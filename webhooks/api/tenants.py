"""GET and PATCH /tenant: the key's own one, or what ?tenant names to a key of all tenants."""

from __future__ import annotations

from typing import Any

import msgspec
from flask import Blueprint, Response, request
from msgspec import UNSET, UnsetType

from webhooks import backoff, ids, tenants
from webhooks.api import bodies, pages, retry_policies
from webhooks.api.authentication import credential, tenant_to_change
from webhooks.api.bodies import answer, timestamp
from webhooks.api.operations import operation
from webhooks.api.problems import Problem
from webhooks.models import Tenant
from webhooks.scopes import Scope
from webhooks.tenants import TenantError

blueprint = Blueprint("tenants", __name__)


class Change(msgspec.Struct, forbid_unknown_fields=True):
    """What to change. ``retry_policy`` null: the installation's again."""

    retry_policy: dict[str, Any] | UnsetType | None = UNSET


_change = msgspec.json.Decoder(Change)


@blueprint.get("/tenant")
@operation(Scope.ENDPOINTS_READ)
def read() -> Response:
    """One tenant, with the retry policy of its endpoints that have none of their own."""
    return answer(_shown(_tenant()))


@blueprint.patch("/tenant")
@operation(Scope.ADMIN)
def update() -> Response:
    """Change what is given."""
    tenant, change = _tenant(), bodies.read_struct(_change)
    if change.retry_policy is not UNSET:
        try:
            tenants.set_retry_policy(tenant, change.retry_policy, actor=credential().actor)
        except TenantError as error:
            raise Problem.of_field(422, error.field, error.message) from error
    return answer(_shown(tenant))


def _tenant() -> Tenant:
    pages.check_parameters("tenant")
    return tenant_to_change(request.args.get("tenant"))


def _shown(tenant: Tenant) -> dict[str, Any]:
    in_force = backoff.in_force(None, tenant.retry_policy, bodies.settings())
    return {
        "id": ids.encode(ids.TENANT, tenant.id),
        "key": tenant.key,
        "name": tenant.name,
        "retry_policy": tenant.retry_policy,
        "retry_ladder": retry_policies.shown(*in_force),
        "created_at": timestamp(tenant.created_at),
    }
