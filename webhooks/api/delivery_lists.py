"""Lists of deliveries, page by page, in time that does not depend on how many there are.

The order is (finished_at, id), newest first; what is live counts as finished at infinity
and so comes first. Only its own tenant's rows are ever looked at for a tenant's key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import RowMapping, and_, func, select, text

from webhooks import ids, lanes
from webhooks.api import pages
from webhooks.api.bodies import timestamp
from webhooks.api.pages import Place
from webhooks.attempt import FINISHED, LIVE, Status
from webhooks.db import FOREVER
from webhooks.models import Endpoint, Lane, Tenant, db

# Up to so many endpoints a tenant's history is merged from theirs, each by its own index.
# A tenant with more is a large part of all traffic, and filtering the whole is quicker.
FEW_ENDPOINTS = 200

COLUMNS = (
    "d.id, d.tenant_id, d.event_id, d.endpoint_id, d.event_type, d.status, d.reason, "
    "d.trigger, d.attempts, d.status_code, d.error_class, d.created_at, d.due_at, "
    "d.finished_at"
)

_LIVE = """
SELECT {columns} FROM webhooks.deliveries d
WHERE d.finished_at = 'infinity' {conditions} ORDER BY d.id DESC LIMIT :rows
"""
_FINISHED = """
SELECT {columns} FROM webhooks.deliveries d
WHERE d.finished_at < 'infinity' {conditions}
ORDER BY d.finished_at DESC, d.id DESC LIMIT :rows
"""
_FINISHED_BY_ENDPOINT = """
SELECT d.* FROM webhooks.endpoints e CROSS JOIN LATERAL (
    SELECT {columns} FROM webhooks.deliveries d
    WHERE d.endpoint_id = e.id AND d.finished_at < 'infinity' {conditions}
    ORDER BY d.finished_at DESC, d.id DESC LIMIT :rows) d
WHERE e.tenant_id = :tenant
ORDER BY d.finished_at DESC, d.id DESC LIMIT :rows
"""
_ENDPOINTS = """
SELECT count(*) FROM (SELECT FROM webhooks.endpoints WHERE tenant_id = :tenant LIMIT :most) e
"""

_OF_TENANT = " AND d.tenant_id = :tenant AND d.shard = webhooks.shard_of(:tenant)"
# The first condition prunes partitions, which a comparison of pairs does not.
_AFTER = " AND d.finished_at <= :at AND (d.finished_at, d.id) < (:at, :id)"
_SINCE = " AND d.finished_at >= webhooks.uuid7_time(:event) - interval '1 day'"


@dataclass(frozen=True, slots=True)
class Filter:
    """What a list shows; None: all."""

    tenant_id: UUID | None = None
    status: str | None = None
    endpoint_id: UUID | None = None
    event_id: UUID | None = None


def page(wanted: Filter, size: int, after: Place | None = None) -> dict[str, Any]:
    """The page of ``size`` deliveries that follows a place (None: the first page)."""
    rows: list[RowMapping] = []
    if wanted.status not in FINISHED and (after is None or after[0] == FOREVER):
        rows += _live(wanted, size + 1, after)
    if wanted.status not in LIVE and len(rows) <= size:
        in_history = after if after and after[0] != FOREVER else None
        rows += _finished(wanted, size + 1 - len(rows), in_history)
    keys, closed = tenant_keys(rows), closed_endpoints(rows)
    return pages.page(
        rows,
        size,
        lambda row: (row["finished_at"], row["id"]),
        lambda row: shown(row, keys, closed),
    )


def tenant_keys(rows: Sequence[RowMapping]) -> dict[UUID, str]:
    """The keys of the tenants whose rows these are."""
    query = select(Tenant).where(Tenant.id.in_({row["tenant_id"] for row in rows}))
    return {tenant.id: tenant.key for tenant in db.session.scalars(query)} if rows else {}


def closed_endpoints(rows: Sequence[RowMapping]) -> dict[UUID, str]:
    """Why pending ones among these are held, of the endpoints whose lane is closed."""
    pending = {row["endpoint_id"] for row in rows if row["status"] == Status.PENDING}
    if not pending:
        return {}
    place = and_(
        Lane.shard == func.webhooks.shard_of(Endpoint.tenant_id), Lane.endpoint_id == Endpoint.id
    )
    query = (
        select(Endpoint.id, Endpoint.status, Lane, func.now())
        .join(Lane, place)
        .where(Endpoint.id.in_(pending))
    )
    reasons = {row[0]: _why_held(*row[1:]) for row in db.session.execute(query)}
    return {endpoint_id: why for endpoint_id, why in reasons.items() if why is not None}


def _why_held(status: str, lane: Lane, now: datetime) -> str | None:
    state = lanes.state(status, lane.open_at, lane.rate_open_at, lane.broken_s, now)
    return lanes.held(state, lane.open_at, now)


def shown(row: RowMapping, keys: Mapping[UUID, str], closed: Mapping[UUID, str]) -> dict[str, Any]:
    """A delivery as the API shows it; ``closed`` are the reasons of ``closed_endpoints``."""
    held = closed.get(row["endpoint_id"]) if row["status"] == Status.PENDING else None
    return {
        "id": ids.encode(ids.DELIVERY, row["id"]),
        "tenant": keys[row["tenant_id"]],
        "event": ids.encode(ids.EVENT, row["event_id"]),
        "event_type": row["event_type"],
        "endpoint": ids.encode(ids.ENDPOINT, row["endpoint_id"]),
        "status": row["status"],
        "reason": row["reason"],
        "held": held,
        "trigger": row["trigger"],
        "attempt_count": row["attempts"],
        "status_code": row["status_code"],
        "error_class": row["error_class"],
        "created_at": timestamp(row["created_at"]),
        "due_at": timestamp(row["due_at"]),
        "finished_at": timestamp(row["finished_at"]),
    }


def _live(wanted: Filter, rows: int, after: Place | None) -> Sequence[RowMapping]:
    conditions, values = _conditions(wanted)
    if after is not None:
        conditions += " AND d.id < :id"
        values["id"] = after[1]
    return _run(_LIVE, conditions, values | {"rows": rows})


def _finished(wanted: Filter, rows: int, after: Place | None) -> Sequence[RowMapping]:
    conditions, values = _conditions(wanted)
    if wanted.event_id is not None:
        conditions += _SINCE
    if after is not None:
        conditions += _AFTER
        values |= {"at": after[0], "id": after[1]}
    statement = _FINISHED_BY_ENDPOINT if _is_merged(wanted) else _FINISHED
    return _run(statement, conditions, values | {"rows": rows})


def _is_merged(wanted: Filter) -> bool:
    """Whether to read a tenant's history endpoint by endpoint; failures have their own index."""
    if wanted.tenant_id is None or wanted.endpoint_id or wanted.event_id:
        return False
    if wanted.status not in (None, Status.DELIVERED):
        return False
    values = {"tenant": wanted.tenant_id, "most": FEW_ENDPOINTS + 1}
    return bool(db.session.scalar(text(_ENDPOINTS), values) <= FEW_ENDPOINTS)


def _conditions(wanted: Filter) -> tuple[str, dict[str, Any]]:
    conditions, values = "", {}
    if wanted.tenant_id is not None:
        conditions += _OF_TENANT
        values["tenant"] = wanted.tenant_id
    if wanted.endpoint_id is not None:
        conditions += " AND d.endpoint_id = :endpoint"
        values["endpoint"] = wanted.endpoint_id
    if wanted.event_id is not None:
        conditions += " AND d.event_id = :event"
        values["event"] = wanted.event_id
    if wanted.status is not None:
        # A literal, as the index of failures is partial.
        conditions += f" AND d.status = '{Status(wanted.status)}'"
    return conditions, values


def _run(statement: str, conditions: str, values: dict[str, Any]) -> Sequence[RowMapping]:
    query = text(statement.format(columns=COLUMNS, conditions=conditions))
    return db.session.execute(query, values).mappings().all()
