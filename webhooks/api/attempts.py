"""Attempts as the API shows them."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Literal
from uuid import UUID

import msgspec
from sqlalchemy import RowMapping, text

from webhooks.api.bodies import Timestamp, rfc3339
from webhooks.attempt import ErrorClass, Trigger
from webhooks.models import db

SHOWN = 100

# Within the days that a delivery may have had: the others are pruned.
_SELECT = """
SELECT number, trigger, outcome, status_code, error_class, detail, url, peer,
       request_headers, response_headers, response_body, truncated,
       dns_ms, connect_ms, tls_ms, first_byte_ms, total_ms, started_at
FROM webhooks.attempts
WHERE delivery_id = :id AND recorded_at >= webhooks.uuid7_time(:id) - interval '1 day'
"""
_NEWEST = f"{_SELECT} AND number < :below ORDER BY number DESC LIMIT :rows"
_OLDEST_ABOVE = f"{_SELECT} AND number > :above ORDER BY number LIMIT :rows"
_ONE = f"{_SELECT} AND number = :number"
BEYOND = 2**31 - 1


class Timings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What an attempt took, in ms; null: it did not come to that."""

    dns_ms: float | None
    connect_ms: float | None
    tls_ms: float | None
    first_byte_ms: float | None
    total_ms: float | None


class Attempt(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One try: what was sent to where, and what came back.

    Headers are pairs in their order, the secret ones masked. The response's body is its
    beginning, as text; null: there was none, or it is past its retention.
    """

    number: int
    trigger: Trigger
    outcome: Literal["delivered", "failed"]
    status_code: int | None
    error_class: ErrorClass | None
    detail: str | None
    started_at: Timestamp
    timings: Timings
    url: str | None
    peer: str | None
    request_headers: list[tuple[str, str]] | None
    response_headers: list[tuple[str, str]] | None
    response_body: str | None
    response_truncated: bool


def newest(delivery_id: UUID, rows: int = SHOWN, below: int = BEYOND) -> Sequence[RowMapping]:
    """The last attempts before the one of a number, newest first."""
    values = {"id": delivery_id, "rows": rows, "below": below}
    return db.session.execute(text(_NEWEST), values).mappings().all()


def following(delivery_id: UUID, rows: int, above: int) -> Sequence[RowMapping]:
    """The first attempts after the one of a number, oldest first."""
    values = {"id": delivery_id, "rows": rows, "above": above}
    return db.session.execute(text(_OLDEST_ABOVE), values).mappings().all()


def one(delivery_id: UUID, number: int) -> RowMapping | None:
    """The attempt of this number, or None."""
    values = {"id": delivery_id, "number": number}
    return db.session.execute(text(_ONE), values).mappings().first()


def shown(row: RowMapping) -> Attempt:
    """An attempt as the API shows it."""
    return Attempt(
        number=row["number"],
        trigger=row["trigger"],
        outcome=row["outcome"],
        status_code=row["status_code"],
        error_class=row["error_class"],
        detail=row["detail"],
        started_at=rfc3339(row["started_at"]),
        timings=Timings(**{name: row[name] for name in Timings.__struct_fields__}),
        url=row["url"],
        peer=row["peer"],
        request_headers=row["request_headers"],
        response_headers=row["response_headers"],
        response_body=_text(row["response_body"], truncated=row["truncated"]),
        response_truncated=row["truncated"],
    )


def _text(body: bytes | None, *, truncated: bool) -> str | None:
    """A body as text: bytes that are not UTF-8 replaced, a character cut in two left out."""
    if body is None:
        return None
    return codecs.getincrementaldecoder("utf-8")("replace").decode(body, final=not truncated)
