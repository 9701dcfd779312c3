"""Failures alike in one group: somebody is at it, or need not hear of it again."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from sqlalchemy import func, select

from webhooks import audit, ids
from webhooks.models import FailureGroup, db


class State(StrEnum):
    """OPEN: nobody has looked yet · ACKNOWLEDGED: somebody is at it; what fails after an hour's
    quiet is open again · MUTED: for good.
    """

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    MUTED = "muted"


def change(group_id: UUID, tenant_id: UUID | None, state: State, *, actor: str) -> bool:
    """Set a group's state; ``tenant_id`` None: of any tenant. False: there is no such group.

    The state that it has already leaves no trace.
    """
    query = select(FailureGroup).where(FailureGroup.id == group_id)
    if tenant_id is not None:
        query = query.where(FailureGroup.tenant_id == tenant_id)
    group = db.session.scalar(query.with_for_update())
    if group is None or group.state == state:
        db.session.rollback()
        return group is not None
    audit.record(
        "failure_group.update", ids.encode(ids.FAILURE_GROUP, group_id), actor=actor,
        tenant_id=group.tenant_id, state=[group.state, state],
    )  # fmt: skip
    group.state, group.state_by, group.state_at = state, actor, func.now()
    db.session.commit()
    return True
