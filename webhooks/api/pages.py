"""Lists: ``?limit`` and ``?cursor`` in, ``{"data": […], "next": …, "prev": …}`` out.

A cursor names the row at the page's edge, not a number of rows to skip, so a page costs the
same wherever it lies, and neither skips nor repeats a row that stays where it is. It is signed,
and belongs to its list, filter and caller.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec
import psycopg
from flask import current_app, request
from sqlalchemy import Select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import InstrumentedAttribute

from webhooks import ids
from webhooks.api.authentication import credential
from webhooks.api.bodies import suggestion
from webhooks.api.operations import Parameter
from webhooks.api.problems import Problem
from webhooks.db import FOREVER
from webhooks.models import db

DEFAULT_LIMIT = 50
MOST_LIMIT = 200

R = TypeVar("R")
T = TypeVar("T")

TOO_SLOW = (
    "looking for so few among so many took too long; give endpoint or event where the list has "
    "them, or a shorter time by from and to"
)
PARAMETERS = (
    Parameter("limit", f"How many, 1 to {MOST_LIMIT}, {DEFAULT_LIMIT} unless given", int),
    Parameter("cursor", "The next of the page before"),
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Microseconds since 1970 (or LIVE), the id, the direction; with the MAC 42 bytes, so that
# base64 needs no padding.
PLACE = struct.Struct(">q16sB")
MAC_BYTES = 17
LIVE = 2**63 - 1
FORWARDS, BACKWARDS = 0, 1

# When it finished, or db.FOREVER while live; and the id.
Place = tuple[datetime, UUID]


@dataclass(frozen=True, slots=True)
class Cursor:
    """A page begins after ``place`` (None: with the first row), or ends before it."""

    place: Place | None = None
    backwards: bool = False


FIRST_PAGE = Cursor()


class Page(msgspec.Struct, Generic[T], forbid_unknown_fields=True, kw_only=True):
    """A page of a list. ``next`` and ``prev`` are cursors; null: there is nothing further."""

    data: list[T]
    next: str | None
    prev: str | None


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


def cursor(context: str) -> Cursor:
    """Where the page begins: at the first row, unless the parameter says otherwise.

    ``context`` is what the cursor has to be of: see ``context_of``.
    """
    text = request.args.get("cursor")
    if text is None:
        return FIRST_PAGE
    try:
        data = base64.b64decode(text, b"-_", validate=True)
        if not any(hmac.compare_digest(data[PLACE.size :], mac) for mac in _macs(data, context)):
            raise ValueError("it is another list's, or forged")
        micros, raw, direction = PLACE.unpack(data[: PLACE.size])
        at = FOREVER if micros == LIVE else EPOCH + timedelta(microseconds=micros)
    except (ValueError, binascii.Error, struct.error, OverflowError) as error:
        remedy = "take it as it was in next or prev, with the same parameters beside it"
        raise _refused("cursor", remedy) from error
    return Cursor((at, UUID(bytes=raw)), backwards=direction == BACKWARDS)


def context_of(*parts: object) -> str:
    """What a cursor belongs to: a list with its filter, as this caller sees it."""
    return "\0".join(map(str, (credential().only_tenant, *parts)))


@contextmanager
def search() -> Iterator[None]:
    """Problem 422 for what the statement's time limit ended: asking again would not help."""
    try:
        yield
    except (OperationalError, psycopg.errors.QueryCanceled) as error:
        if not isinstance(getattr(error, "orig", error), psycopg.errors.QueryCanceled):
            raise
        raise Problem(422, TOO_SLOW) from error


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
    rows: Sequence[R],
    size: int,
    place: Callable[[R], Place],
    show: Callable[[R], T],
    begins: Cursor,
    context: str,
) -> Page[T]:
    """A page out of up to ``size`` + 1 rows, in the order in which ``begins`` reads them.

    One too many means that there is a further page in that direction; in the other there is
    one if this is not the first.
    """
    further, shown = len(rows) > size, list(rows[:size])
    if begins.backwards:
        shown.reverse()
    behind = begins.place is not None and bool(shown)
    has_next, has_prev = (behind, further) if begins.backwards else (further, behind)
    return Page(
        data=[show(row) for row in shown],
        next=_write(place(shown[-1]), FORWARDS, context) if has_next else None,
        prev=_write(place(shown[0]), BACKWARDS, context) if has_prev else None,
    )


def by_id(
    query: Select[*tuple[Any, ...]], column: InstrumentedAttribute[UUID], show: Callable[[Any], T]
) -> Page[T]:
    """The page that the request asks for, newest first, of a query of models or rows.

    ``column`` is the id, and the first of the query's rows, or an attribute of it.
    """
    args = sorted((k, v) for k, v in request.args.items() if k not in ("limit", "cursor"))
    size, context = limit(), context_of(request.path, args)
    begins = cursor(context)
    if begins.place is not None:
        after = begins.place[1]
        query = query.where(column > after if begins.backwards else column < after)
    order = column.asc() if begins.backwards else column.desc()
    rows = db.session.execute(query.order_by(order).limit(size + 1)).all()
    return page(rows, size, lambda row: (FOREVER, _id_of(row, column)), show, begins, context)


def _id_of(row: Any, column: InstrumentedAttribute[UUID]) -> UUID:
    found: UUID = getattr(row[0], column.key) if hasattr(row[0], column.key) else row[0]
    return found


def _macs(data: bytes, context: str) -> Iterator[bytes]:
    """By each key of the keyring, so that a rotation ends no reader's pages."""
    keyring = current_app.extensions["webhooks_keyring"]
    for key in keyring.derive("cursor"):
        signed = data[: PLACE.size] + context.encode("utf-8", "surrogatepass")
        yield hmac.digest(key, signed, "sha256")[:MAC_BYTES]


def _write(place: Place, direction: int, context: str) -> str:
    at, row_id = place
    micros = LIVE if at == FOREVER else (at - EPOCH) // timedelta(microseconds=1)
    data = PLACE.pack(micros, row_id.bytes, direction)
    return base64.urlsafe_b64encode(data + next(_macs(data, context))).decode()


def _refused(name: str, message: str) -> Problem:
    return Problem.of_field(422, name, message)
