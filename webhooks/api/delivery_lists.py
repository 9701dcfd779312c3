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

import msgspec
from sqlalchemy import RowMapping, and_, func, select, text

from webhooks import ids, lanes
from webhooks.api import pages
from webhooks.api.bodies import Timestamp, rfc3339, timestamp
from webhooks.api.pages import FIRST_PAGE, Cursor, Page, Place
from webhooks.attempt import FINISHED, LIVE, ErrorClass, Status, Trigger
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
WHERE d.finished_at = 'infinity' {conditions} ORDER BY d.id {order} LIMIT :rows
"""
_FINISHED = """
SELECT {columns} FROM webhooks.deliveries d
WHERE d.finished_at < 'infinity' {conditions}
ORDER BY d.finished_at {order}, d.id {order} LIMIT :rows
"""
_FINISHED_BY_ENDPOINT = """
SELECT d.* FROM webhooks.endpoints e CROSS JOIN LATERAL (
    SELECT {columns} FROM webhooks.deliveries d
    WHERE d.endpoint_id = e.id AND d.finished_at < 'infinity' {conditions}
    ORDER BY d.finished_at {order}, d.id {order} LIMIT :rows) d
WHERE e.tenant_id = :tenant
ORDER BY d.finished_at {order}, d.id {order} LIMIT :rows
"""
_ENDPOINTS = """
SELECT count(*) FROM (SELECT FROM webhooks.endpoints WHERE tenant_id = :tenant LIMIT :most) e
"""

_OF_TENANT = " AND d.tenant_id = :tenant AND d.shard = webhooks.shard_of(:tenant)"
# The first condition prunes partitions, which a comparison of pairs does not.
_AFTER = " AND d.finished_at <= :at AND (d.finished_at, d.id) < (:at, :id)"
_BEFORE = " AND d.finished_at >= :at AND (d.finished_at, d.id) > (:at, :id)"
_SINCE = " AND d.finished_at >= webhooks.uuid7_time(:event_id) - interval '1 day'"


@dataclass(frozen=True, slots=True)
class Filter:
    """What a list shows; None, or empty: all. Times are those of finishing, from on and before."""

    tenant_id: UUID | None = None
    statuses: tuple[str, ...] = ()
    endpoint_id: UUID | None = None
    event_id: UUID | None = None
    event_type: str | None = None
    codes: tuple[int, int] | None = None
    error_class: str | None = None
    finished_from: datetime | None = None
    finished_to: datetime | None = None

    @property
    def wants_live(self) -> bool:
        """Whether anything live may be among it."""
        timed = self.finished_from is not None or self.finished_to is not None
        return not timed and (not self.statuses or bool({*self.statuses} & {*LIVE}))

    @property
    def wants_finished(self) -> bool:
        return not self.statuses or bool({*self.statuses} & {*FINISHED})


class Delivery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A delivery. ``held``: why it waits though it is pending; the status code and the error
    class are those of its last attempt.
    """

    id: str
    tenant: str
    event: str
    event_type: str
    endpoint: str
    status: Status
    reason: str | None
    held: str | None
    trigger: Trigger
    attempt_count: int
    status_code: int | None
    error_class: ErrorClass | None
    created_at: Timestamp
    due_at: Timestamp | None
    finished_at: Timestamp | None


def page(wanted: Filter, size: int, begins: Cursor = FIRST_PAGE) -> Page[Delivery]:
    """The page of ``size`` deliveries that begins there."""
    rows = _backwards(wanted, size + 1, begins) if begins.backwards else (
        _forwards(wanted, size + 1, begins.place)
    )  # fmt: skip
    keys, closed = tenant_keys(rows), closed_endpoints(rows)
    return pages.page(
        rows,
        size,
        lambda row: (row["finished_at"], row["id"]),
        lambda row: shown(row, keys, closed),
        begins,
        context(wanted),
    )


def context(wanted: Filter) -> str:
    """What its cursors belong to."""
    return pages.context_of("deliveries", wanted)


def _forwards(wanted: Filter, size: int, after: Place | None) -> list[RowMapping]:
    """What is live, newest first, then what has finished."""
    rows: list[RowMapping] = []
    in_history = after is not None and after[0] != FOREVER
    if wanted.wants_live and not in_history:
        rows += _live(wanted, size, after)
    if wanted.wants_finished and len(rows) < size:
        rows += _finished(wanted, size - len(rows), after if in_history else None)
    return rows


def _backwards(wanted: Filter, size: int, begins: Cursor) -> list[RowMapping]:
    """The other way round, from a place on."""
    assert begins.place is not None  # noqa: S101 - only the first page has none
    rows: list[RowMapping] = []
    in_history = begins.place[0] != FOREVER
    if wanted.wants_finished and in_history:
        rows += _finished(wanted, size, begins.place, backwards=True)
    if wanted.wants_live and len(rows) < size:
        edge = None if in_history else begins.place
        rows += _live(wanted, size - len(rows), edge, backwards=True)
    return rows


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


def shown(row: RowMapping, keys: Mapping[UUID, str], closed: Mapping[UUID, str]) -> Delivery:
    """A delivery as the API shows it; ``closed`` are the reasons of ``closed_endpoints``."""
    held = closed.get(row["endpoint_id"]) if row["status"] == Status.PENDING else None
    return Delivery(
        id=ids.encode(ids.DELIVERY, row["id"]),
        tenant=keys[row["tenant_id"]],
        event=ids.encode(ids.EVENT, row["event_id"]),
        event_type=row["event_type"],
        endpoint=ids.encode(ids.ENDPOINT, row["endpoint_id"]),
        status=row["status"],
        reason=row["reason"],
        held=held,
        trigger=row["trigger"],
        attempt_count=row["attempts"],
        status_code=row["status_code"],
        error_class=row["error_class"],
        created_at=rfc3339(row["created_at"]),
        due_at=timestamp(row["due_at"]),
        finished_at=timestamp(row["finished_at"]),
    )


def _live(
    wanted: Filter, rows: int, edge: Place | None, *, backwards: bool = False
) -> Sequence[RowMapping]:
    conditions, values = _conditions(wanted)
    if edge is not None:
        conditions += " AND d.id > :id" if backwards else " AND d.id < :id"
        values["id"] = edge[1]
    return _run(_LIVE, conditions, values | {"rows": rows}, backwards=backwards)


def _finished(
    wanted: Filter, rows: int, edge: Place | None, *, backwards: bool = False
) -> Sequence[RowMapping]:
    conditions, values = _conditions(wanted)
    if wanted.event_id is not None:
        conditions += _SINCE
    if edge is not None:
        conditions += _BEFORE if backwards else _AFTER
        values |= {"at": edge[0], "id": edge[1]}
    statement = _FINISHED_BY_ENDPOINT if _is_merged(wanted) else _FINISHED
    return _run(statement, conditions, values | {"rows": rows}, backwards=backwards)


def _is_merged(wanted: Filter) -> bool:
    """Whether to read a tenant's history endpoint by endpoint; failures have their own index."""
    if wanted.tenant_id is None or wanted.endpoint_id or wanted.event_id:
        return False
    if wanted.statuses and Status.DELIVERED not in wanted.statuses:
        return False
    values = {"tenant": wanted.tenant_id, "most": FEW_ENDPOINTS + 1}
    return bool(db.session.scalar(text(_ENDPOINTS), values) <= FEW_ENDPOINTS)


_SIMPLE = {
    "endpoint_id": " AND d.endpoint_id = :endpoint_id",
    "event_id": " AND d.event_id = :event_id",
    "event_type": " AND d.event_type = :event_type",
    "error_class": " AND d.error_class = :error_class",
    "finished_from": " AND d.finished_at >= :finished_from",
    "finished_to": " AND d.finished_at < :finished_to",
}


def _conditions(wanted: Filter) -> tuple[str, dict[str, Any]]:
    conditions = ""
    values: dict[str, Any] = {}
    if wanted.tenant_id is not None:
        conditions += _OF_TENANT
        values["tenant"] = wanted.tenant_id
    for name, condition in _SIMPLE.items():
        if (value := getattr(wanted, name)) is not None:
            conditions += condition
            values[name] = value
    if wanted.codes is not None:
        conditions += " AND d.status_code BETWEEN :lowest AND :highest"
        values |= {"lowest": wanted.codes[0], "highest": wanted.codes[1]}
    if wanted.statuses:
        # Literals, as the index of failures is partial.
        statuses = ", ".join(f"'{Status(status)}'" for status in wanted.statuses)
        conditions += f" AND d.status IN ({statuses})"
    return conditions, values


def _run(
    statement: str, conditions: str, values: dict[str, Any], *, backwards: bool
) -> Sequence[RowMapping]:
    order = "ASC" if backwards else "DESC"
    query = text(statement.format(columns=COLUMNS, conditions=conditions, order=order))
    return db.session.execute(query, values).mappings().all()
