"""Lists: ``?limit`` and ``?cursor`` in, ``{"data": […], "next": …}`` out.

A cursor names the last row of the page before, not a number of rows to skip, so a page
costs the same wherever it lies and nothing moves under a reader.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from flask import request

from webhooks import ids
from webhooks.api.bodies import suggestion
from webhooks.api.operations import Parameter
from webhooks.api.problems import Problem
from webhooks.db import FOREVER

DEFAULT_LIMIT = 50
MOST_LIMIT = 200

R = TypeVar("R")

PARAMETERS = (
    Parameter("limit", f"How many, 1 to {MOST_LIMIT}, {DEFAULT_LIMIT} unless given", int),
    Parameter("cursor", "The next of the page before"),
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Microseconds since 1970 (or LIVE), then the id: 24 bytes, so base64 needs no padding.
PLACE = struct.Struct(">q16s")
LIVE = 2**63 - 1

Place = tuple[datetime, UUID]


def check_parameters(*known: str) -> None:
    """Problem 422 for a query parameter that the list does not have, or has twice."""
    for name, values in request.args.lists():
        if name not in known:
            raise _refused(name[:80], f"there is no such parameter; {suggestion(name, known)}")
        if len(values) > 1:
            raise _refused(name, "give it once")


def limit() -> int:
    """How many rows the page may have."""
    text = request.args.get("limit", str(DEFAULT_LIMIT))
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else 0
    if not 1 <= number <= MOST_LIMIT:
        raise _refused("limit", f"{text[:40]!r} is not a whole number from 1 to {MOST_LIMIT}")
    return number


def cursor() -> Place | None:
    """The last row's place of the page before, or None for the first page.

    A place is (when it finished, or db.FOREVER while live; id).
    """
    text = request.args.get("cursor")
    if text is None:
        return None
    try:
        micros, raw = PLACE.unpack(base64.b64decode(text, b"-_", validate=True))
        at = FOREVER if micros == LIVE else EPOCH + timedelta(microseconds=micros)
    except (ValueError, binascii.Error, struct.error, OverflowError) as error:
        raise _refused("cursor", "take it as it was in next; it is not to be made") from error
    return at, UUID(bytes=raw)


def id_parameter(name: str, kind: str) -> UUID | None:
    """The id in a query parameter, None when it is left out; Problem 422 when malformed."""
    text = request.args.get(name)
    try:
        return None if text is None else ids.decode(kind, text)
    except ValueError as error:
        raise _refused(name, str(error)) from error


def choice(name: str, allowed: Sequence[str]) -> str | None:
    """The word in a query parameter, None when it is left out; Problem 422 for another word."""
    text = request.args.get(name)
    if text is not None and text not in allowed:
        raise _refused(name, f"{text[:40]!r} is not one of {', '.join(allowed)}")
    return text


def page(
    rows: Sequence[R], size: int, place: Callable[[R], Place], show: Callable[[R], Any]
) -> dict[str, Any]:
    """A page out of up to ``size`` + 1 rows; one too many means that there is a next page."""
    more = len(rows) > size
    return {
        "data": [show(row) for row in rows[:size]],
        "next": _write(*place(rows[size - 1])) if more else None,
    }


def _write(at: datetime, row_id: UUID) -> str:
    micros = LIVE if at == FOREVER else (at - EPOCH) // timedelta(microseconds=1)
    return base64.urlsafe_b64encode(PLACE.pack(micros, row_id.bytes)).decode()


def _refused(name: str, message: str) -> Problem:
    return Problem.of_field(422, name, message)
