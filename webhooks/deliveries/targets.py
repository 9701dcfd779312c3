"""Targets: endpoints as a claim brings them, with the secrets that sign now."""

from __future__ import annotations

from collections import defaultdict
from uuid import UUID

import psycopg

from webhooks.attempt import Target
from webhooks.deliveries.record import array

TARGETS = """
SELECT e.id, e.tenant_id, e.url, e.timeout_s, coalesce(e.retry_policy, t.retry_policy),
       e.schemes, e.headers, e.ca_pem
FROM webhooks.endpoints e JOIN webhooks.tenants t ON t.id = e.tenant_id
WHERE e.id = ANY (%s::uuid[]) AND e.deleted_at IS NULL
"""

# Not ordered here: with sorting switched off the planner would walk the primary key for it.
SECRETS = """
SELECT endpoint_id, id, ciphertext FROM webhooks.signing_secrets
WHERE endpoint_id = ANY (%s::uuid[]) AND valid_until > now()
"""


def target(connection: psycopg.Connection, endpoint_id: UUID) -> Target | None:
    """An endpoint as a claim would bring it now, or None when it is gone."""
    return read_targets(connection, array([endpoint_id])).get(endpoint_id)


def read_targets(connection: psycopg.Connection, endpoints: str) -> dict[UUID, Target]:
    """The endpoints of these ids that exist; ``endpoints`` is an array literal."""
    secrets: dict[UUID, list[tuple[UUID, str]]] = defaultdict(list)
    for endpoint_id, row_id, ciphertext in connection.execute(SECRETS, [endpoints], binary=True):
        secrets[endpoint_id].append((row_id, ciphertext))
    return {
        endpoint_id: Target(
            endpoint_id, tenant_id, url, timeout_s,
            # Ids are in the order of time: the newest first.
            tuple(sorted(secrets[endpoint_id], reverse=True)), policy, tuple(schemes),
            headers, ca_pem,
        )
        for endpoint_id, tenant_id, url, timeout_s, policy, schemes, headers, ca_pem
        in connection.execute(TARGETS, [endpoints])
    }  # fmt: skip
