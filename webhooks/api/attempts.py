"""Attempts as the API shows them."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import RowMapping, text

from webhooks.api.bodies import timestamp
from webhooks.models import db

SHOWN = 100

# Within the days that a delivery may have had: the others are pruned.
_SELECT = """
SELECT number, trigger, outcome, status_code, error_class, detail, url, peer,
       request_headers, response_headers, response_body, truncated,
       dns_ms, connect_ms, tls_ms, first_byte_ms, total_ms, started_at
FROM webhooks.attempts
WHERE delivery_id = :id AND recorded_at >= CAST(:since AS timestamptz) - interval '1 day'
"""
_NEWEST = f"{_SELECT} AND number < :below ORDER BY number DESC LIMIT :rows"
_OLDEST_ABOVE = f"{_SELECT} AND number > :above ORDER BY number LIMIT :rows"
_ONE = f"{_SELECT} AND number = :number"
_TIMINGS = ("dns_ms", "connect_ms", "tls_ms", "first_byte_ms", "total_ms")
BEYOND = 2**31 - 1


def newest(
    delivery_id: UUID, since: datetime, rows: int = SHOWN, below: int = BEYOND
) -> Sequence[RowMapping]:
    """The last attempts before the one of a number, newest first."""
    values = {"id": delivery_id, "since": since, "rows": rows, "below": below}
    return db.session.execute(text(_NEWEST), values).mappings().all()


def following(delivery_id: UUID, since: datetime, rows: int, above: int) -> Sequence[RowMapping]:
    """The first attempts after the one of a number, oldest first."""
    values = {"id": delivery_id, "since": since, "rows": rows, "above": above}
    return db.session.execute(text(_OLDEST_ABOVE), values).mappings().all()


def one(delivery_id: UUID, since: datetime, number: int) -> RowMapping | None:
    """The attempt of this number, or None."""
    values = {"id": delivery_id, "since": since, "number": number}
    return db.session.execute(text(_ONE), values).mappings().first()


def shown(row: RowMapping) -> dict[str, Any]:
    """An attempt as the API shows it."""
    return {
        "number": row["number"],
        "trigger": row["trigger"],
        "outcome": row["outcome"],
        "status_code": row["status_code"],
        "error_class": row["error_class"],
        "detail": row["detail"],
        "started_at": timestamp(row["started_at"]),
        "timings": {name: row[name] for name in _TIMINGS},
        "url": row["url"],
        "peer": row["peer"],
        "request_headers": row["request_headers"],
        "response_headers": row["response_headers"],
        "response_body": _text(row["response_body"], truncated=row["truncated"]),
        "response_truncated": row["truncated"],
    }


def _text(body: bytes | None, *, truncated: bool) -> str | None:
    """A body as text: bytes that are not UTF-8 replaced, a character cut in two left out."""
    if body is None:
        return None
    return codecs.getincrementaldecoder("utf-8")("replace").decode(body, final=not truncated)
