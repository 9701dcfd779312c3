"""Lists of deliveries, page by page, in time that does not depend on how many there are.

The order is: what is live, by id, then what has finished, by (finished_at, id), newest
first in both. A page continues from a row (keyset), never from a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text

from webhooks.attempt import FINISHED, LIVE
from webhooks.dashboard.cursors import Cursor
from webhooks.dashboard.queries import Row
from webhooks.models import db

PAGE_ROWS = 50

# The last attempt's duration; its partitions begin where the delivery does.
SHOWN = """
SELECT d.*, e.url, e.retry_policy, t.retry_policy AS tenant_retry_policy,
       e.deleted_at AS endpoint_deleted_at, a.total_ms
FROM ({rows}) d
LEFT JOIN webhooks.endpoints e ON e.id = d.endpoint_id
LEFT JOIN webhooks.tenants t ON t.id = e.tenant_id
LEFT JOIN LATERAL (
    SELECT a.total_ms FROM webhooks.attempts a
    WHERE d.attempts > 0 AND a.delivery_id = d.id AND a.number = d.attempts
      AND a.recorded_at >= d.created_at LIMIT 1) a ON true
ORDER BY d.finished_at {way}, d.id {way}
"""

COLUMNS = (
    "shard, id, event_id, endpoint_id, event_type, status, reason, attempts, tries, "
    "status_code, error_class, created_at, due_at, claimed_at, finished_at"
)

# A branch for each state, because each has an index of its own.
LIVE_ROWS = """
(SELECT {columns} FROM webhooks.deliveries_queue
 WHERE status = '{status}' {conditions} ORDER BY id {way} LIMIT :rows)
"""

FINISHED_ROWS = """
SELECT {columns} FROM webhooks.deliveries
WHERE finished_at < 'infinity' {conditions} ORDER BY finished_at {way}, id {way} LIMIT :rows
"""


@dataclass(frozen=True, slots=True)
class Filter:
    """What a list shows: one state or all, one endpoint or all, one event or all."""

    status: str | None = None
    endpoint_id: UUID | None = None
    event_id: UUID | None = None

    def name(self) -> str:
        """What a cursor of this list is bound to."""
        return f"deliveries {self.status} {self.endpoint_id} {self.event_id}"


@dataclass(frozen=True, slots=True)
class Page:
    """Rows, newest first, and the cursors of the pages beside it, or None at an end."""

    rows: Sequence[Row]
    newer: Cursor | None
    older: Cursor | None


def page(wanted: Filter, cursor: Cursor | None = None, rows: int = PAGE_ROWS) -> Page:
    """The page that a cursor leads to; the first one without a cursor."""
    if cursor is None or not cursor.newer:
        found = _older(wanted, cursor, rows + 1)
        return _page(wanted, found[:rows], newer=cursor is not None, older=len(found) > rows)
    found = _newer(wanted, cursor, rows + 1)
    if len(found) <= rows:
        return page(wanted, None, rows)
    return _page(wanted, found[rows - 1 :: -1], newer=True, older=True)


def latest(rows: int) -> Sequence[Row]:
    """What has finished last."""
    return _finished(Filter(), None, "DESC", rows)


def _page(wanted: Filter, rows: Sequence[Row], *, newer: bool, older: bool) -> Page:
    return Page(
        rows,
        _cursor(wanted, rows[0], newer=True) if newer and rows else None,
        _cursor(wanted, rows[-1], newer=False) if older and rows else None,
    )


def _cursor(wanted: Filter, row: Row, *, newer: bool) -> Cursor:
    finished = row["finished_at"] if row["status"] in FINISHED else None
    return Cursor(newer, finished, row["id"], wanted.name())


def _older(wanted: Filter, cursor: Cursor | None, rows: int) -> list[Row]:
    found: list[Row] = []
    if cursor is None or cursor.finished_at is None:
        found = _live(wanted, cursor, "DESC", rows)
        cursor = None
    if len(found) < rows:
        found += _finished(wanted, cursor, "DESC", rows - len(found))
    return found


def _newer(wanted: Filter, cursor: Cursor, rows: int) -> list[Row]:
    found: list[Row] = []
    after: Cursor | None = cursor
    if cursor.finished_at is not None:
        found = _finished(wanted, cursor, "ASC", rows)
        after = None
    if len(found) < rows:
        found += _live(wanted, after, "ASC", rows - len(found))
    return found


def _live(wanted: Filter, cursor: Cursor | None, way: str, rows: int) -> list[Row]:
    states = [status for status in LIVE if wanted.status in (None, status)]
    if not states:
        return []
    conditions, values = _conditions(wanted)
    if cursor is not None:
        conditions += f" AND id {_beyond(way)} :id"
        values["id"] = cursor.id
    branches = (
        LIVE_ROWS.format(columns=COLUMNS, status=status, conditions=conditions, way=way)
        for status in states
    )
    union = f"SELECT * FROM ({' UNION ALL '.join(branches)}) u ORDER BY id {way} LIMIT :rows"  # noqa: S608 - parts are constants
    return _run(union, way, values | {"rows": rows})


def _finished(wanted: Filter, cursor: Cursor | None, way: str, rows: int) -> list[Row]:
    if wanted.status is not None and wanted.status not in FINISHED:
        return []
    conditions, values = _conditions(wanted)
    if wanted.status is not None:
        # A literal, as the index of failures is partial.
        conditions += f" AND status = '{wanted.status}'"
    if cursor is not None:
        # The first condition prunes partitions, which a comparison of pairs does not.
        beyond = _beyond(way)
        conditions += (
            f" AND finished_at {beyond}= :finished_at AND (finished_at, id) {beyond} "
            "(:finished_at, :id)"
        )
        values |= {"finished_at": cursor.finished_at, "id": cursor.id}
    statement = FINISHED_ROWS.format(columns=COLUMNS, conditions=conditions, way=way)
    return _run(statement, way, values | {"rows": rows})


def _conditions(wanted: Filter) -> tuple[str, dict[str, Any]]:
    conditions, values = "", {}
    for column in ("endpoint_id", "event_id"):
        value = getattr(wanted, column)
        if value is not None:
            conditions += f" AND {column} = :{column}"
            values[column] = value
    return conditions, values


def _beyond(way: str) -> str:
    return "<" if way == "DESC" else ">"


def _run(rows: str, way: str, values: dict[str, Any]) -> list[Row]:
    return list(db.session.execute(text(SHOWN.format(rows=rows, way=way)), values).mappings())
