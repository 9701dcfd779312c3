"""The audit log: who did what to which object."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from webhooks import ids
from webhooks.models import AuditEntry, Endpoint, db


def record(action: str, subject: str, *, actor: str, tenant_id: UUID | None, **detail: Any) -> None:
    """Add an entry to the session's transaction; whoever calls commits. Never pass a secret."""
    db.session.add(
        AuditEntry(tenant_id=tenant_id, actor=actor, action=action, object=subject, detail=detail)
    )


def record_endpoint(action: str, endpoint: Endpoint, actor: str, **detail: Any) -> None:
    """As ``record``, of an endpoint."""
    subject = ids.encode(ids.ENDPOINT, endpoint.id)
    record(action, subject, actor=actor, tenant_id=endpoint.tenant_id, **detail)
