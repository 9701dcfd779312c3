"""Erasure on request: contents go at once, the record that something happened stays."""

from __future__ import annotations

from uuid import UUID

import psycopg
from sqlalchemy import Select, delete, func, select, update

from webhooks import audit, deliveries, endpoints, ids, payloads
from webhooks.db import transaction
from webhooks.deliveries import audit as delivery_audit
from webhooks.models import ApiKey, Endpoint, SigningSecret, Tenant, db
from webhooks.web_database import psycopg_connection

ERASED = "erased"

EVENT = "UPDATE webhooks.events SET payload = NULL WHERE id = %(event)s RETURNING tenant_id"
# They quote what receivers said.
GROUPS = "DELETE FROM webhooks.failure_groups WHERE tenant_id = %(tenant)s"
# What was done when, and by whom, stays.
AUDIT = "UPDATE webhooks.audit_log SET detail = '{}' WHERE tenant_id = %(tenant)s"
KEYS = """
DELETE FROM webhooks.idempotency_keys
WHERE shard = webhooks.shard_of(%(tenant)s) AND tenant_id = %(tenant)s
"""


def erase_event(connection: psycopg.Connection, event_id: UUID, *, actor: str) -> UUID | None:
    """Erase one event's payload and the answers to it; its tenant's id, None: there is none.

    What is in flight at this moment arrives; what waits is cancelled.
    """
    with transaction(connection):
        row = connection.execute(EVENT, {"event": event_id}).fetchone()
        if row is None:
            return None
        about = ids.encode(ids.EVENT, event_id)
        delivery_audit.record(connection, row[0], actor, "event.erase", about)
    deliveries.cancel_event(connection, event_id, ERASED)
    payloads.forget_answers(connection, event_id)
    return UUID(str(row[0]))


def erase_tenant(tenant: Tenant, *, actor: str) -> int:
    """Erase a tenant's endpoints, secrets, payloads, answers and keys; how many payloads.

    Its row stays, so that what is on record has an owner.
    """
    tenant_id = tenant.id
    _revoke(tenant_id)
    for endpoint in db.session.scalars(_endpoints(tenant_id)).all():
        endpoints.delete(endpoint, actor=actor)
    _empty(tenant_id)
    audit.record("tenant.erase", ids.encode(ids.TENANT, tenant_id), actor=actor,
                 tenant_id=tenant_id)  # fmt: skip
    db.session.commit()
    with psycopg_connection() as connection:
        with transaction(connection, "statement_timeout = '60s'", "webhooks.retention = 'on'"):
            connection.execute(KEYS, {"tenant": tenant_id})
            connection.execute(AUDIT, {"tenant": tenant_id})
            connection.execute(GROUPS, {"tenant": tenant_id})
        return payloads.erase(connection, tenant_id)


def _endpoints(tenant_id: UUID) -> Select[Endpoint]:
    return select(Endpoint).where(Endpoint.tenant_id == tenant_id, Endpoint.deleted_at.is_(None))


def _revoke(tenant_id: UUID) -> None:
    """First of all: nothing new comes in."""
    mine = ApiKey.tenant_id == tenant_id, ApiKey.revoked_at.is_(None)
    db.session.execute(update(ApiKey).where(*mine).values(revoked_at=func.now()))
    db.session.commit()


def _empty(tenant_id: UUID) -> None:
    db.session.execute(delete(SigningSecret).where(SigningSecret.tenant_id == tenant_id))
    blank = {"url": "https://erased.invalid/", "description": "", "headers": None, "ca_pem": None}
    db.session.execute(update(Endpoint).where(Endpoint.tenant_id == tenant_id).values(**blank))
