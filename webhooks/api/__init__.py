"""The JSON API under /api/v1, one module a resource."""

from __future__ import annotations

from flask import Blueprint

from webhooks.api import (
    api_keys,
    deliveries,
    endpoint_secrets,
    endpoints,
    events,
    idempotency,
    ownership,
    retry_policies,
    tenants,
)
from webhooks.api.authentication import authenticate

PREFIX = "/api/v1"

blueprint = Blueprint("api", __name__, url_prefix=PREFIX)
blueprint.before_request(authenticate)
blueprint.before_request(idempotency.begin)
blueprint.after_request(idempotency.finish)
for resource in (
    events, endpoints, endpoint_secrets, ownership, deliveries, retry_policies, tenants, api_keys
):  # fmt: skip
    blueprint.register_blueprint(resource.blueprint)
