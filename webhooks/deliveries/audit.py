"""Audit entries of the engine and of what a person does to deliveries."""

from __future__ import annotations

import json
from uuid import UUID

import psycopg

AUDIT = """
INSERT INTO webhooks.audit_log (tenant_id, actor, action, object, detail)
VALUES (%s, %s, %s, %s, %s)
"""


def record(
    connection: psycopg.Connection,
    tenant_id: UUID | None,
    actor: str,
    action: str,
    about: str,
    **detail: str,
) -> None:
    """Add an entry in the caller's transaction; ``about`` is a public id."""
    connection.execute(AUDIT, [tenant_id, actor, action, about, json.dumps(detail)])
