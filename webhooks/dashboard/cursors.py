"""Where a list's next page begins, in a form that only this server can write."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from flask import current_app
from itsdangerous import BadData, URLSafeSerializer


@dataclass(frozen=True, slots=True)
class Cursor:
    """A row's place in a list, and the direction from it.

    ``finished_at`` None: the row is live (lists show live rows before finished ones).
    ``of`` names the list and its filter; a cursor of another list is refused.
    """

    newer: bool
    finished_at: datetime | None
    id: UUID
    of: str


def write(cursor: Cursor) -> str:
    """The cursor as a query parameter."""
    at = cursor.finished_at.isoformat() if cursor.finished_at else ""
    return _serializer().dumps([int(cursor.newer), at, cursor.id.hex, cursor.of])


def parse(text: str, of: str) -> Cursor:
    """Read a cursor of the list ``of``; ValueError when it is another's or damaged."""
    try:
        newer, at, row_id, named = _serializer().loads(text)
    except BadData as error:
        raise ValueError("not a cursor of this server") from error
    if named != of:
        raise ValueError("a cursor of another list or filter")
    moment = datetime.fromisoformat(at) if at else None
    return Cursor(bool(newer), moment, UUID(hex=row_id), of)


def _serializer() -> URLSafeSerializer:
    return URLSafeSerializer(current_app.config["SECRET_KEY"], salt="dashboard cursor")
