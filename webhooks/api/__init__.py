"""The JSON API under /api/v1, one module a resource."""

from __future__ import annotations

from flask import Blueprint

from webhooks.api import (
    api_keys,
    audit_log,
    deliveries,
    delivery_attempts,
    endpoint_secrets,
    endpoint_stats,
    endpoint_verbs,
    endpoints,
    event_lists,
    event_types,
    events,
    failure_groups,
    idempotency,
    installation,
    limits,
    openapi,
    ownership,
    replays,
    retry_policies,
    subscriptions,
    tenants,
)
from webhooks.api.authentication import authenticate

PREFIX = "/api/v1"

blueprint = Blueprint("api", __name__, url_prefix=PREFIX)
blueprint.before_request(authenticate)
blueprint.before_request(limits.check)
blueprint.after_request(limits.show)
blueprint.before_request(idempotency.begin)
blueprint.after_request(idempotency.finish)
for resource in (
    events, event_lists, event_types, subscriptions, endpoints, endpoint_verbs, endpoint_stats,
    endpoint_secrets, ownership, deliveries, delivery_attempts, replays, retry_policies, tenants,
    api_keys, failure_groups, audit_log, installation, openapi,
):  # fmt: skip
    blueprint.register_blueprint(resource.blueprint)
