"""The catalogue as emit sees it: which event types have a schema, which tenants refuse others.

Each process keeps it, and looks at most every two seconds whether anything has changed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from typing import TypeAlias
from uuid import UUID

import psycopg

from webhooks.schemas import Schema, SchemaFault, pointers

LOOK_EVERY_S = 2.0
MOST_COMPILED = 1_000
RESERVED = "webhooks."

VERSION = "SELECT version FROM webhooks.catalog"
SCHEMAS = "SELECT tenant_id, name, schema FROM webhooks.event_types WHERE schema IS NOT NULL"
STRICT = """
SELECT t.id, array_agg(k.name) FILTER (WHERE k.name IS NOT NULL)
FROM webhooks.tenants t LEFT JOIN webhooks.event_types k ON k.tenant_id = t.id
WHERE t.unknown_event_types = 'refuse' GROUP BY t.id
"""


class Unfit(ValueError):
    """An event does not fit the catalogue: ``errors`` are fields and what is wrong with each."""

    def __init__(self, errors: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{name}: {message}" for name, message in errors))
        self.errors = errors


Connect: TypeAlias = Callable[[], AbstractContextManager[psycopg.Connection]]


@dataclass(frozen=True, slots=True)
class _State:
    version: int = -1
    schemas: dict[tuple[UUID, str], str] = field(default_factory=dict)
    strict: dict[UUID, frozenset[str]] = field(default_factory=dict)


class Catalog:
    """Checks events; any thread may use it. ``connect`` opens a connection for a while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._state = _State()
        self._until = float("-inf")
        self._compiled = lru_cache(MOST_COMPILED)(Schema)

    def check(
        self, connect: Connect, tenant_id: UUID, type: str,
        payload: bytes,
    ) -> None:  # fmt: skip
        """Raise Unfit for a type that is reserved or refused, or a payload against its schema."""
        if type.startswith(RESERVED):
            raise Unfit([("type", f"{type[:80]!r} is reserved; choose another beginning")])
        state = self._look(connect)
        known = state.strict.get(tenant_id)
        if known is not None and type not in known:
            close = get_close_matches(type, known, n=1)
            remedy = f"did you mean {close[0]}?" if close else "add it first"
            raise Unfit([("type", f"{type[:80]!r} is not an event type of this tenant; {remedy}")])
        text = state.schemas.get((tenant_id, type))
        if text is not None:
            self._validate(text, payload)

    def _validate(self, text: str, payload: bytes) -> None:
        try:
            found = self._compiled(text).errors(payload)
        except SchemaFault as error:
            raise Unfit([("payload", str(error))]) from error
        if found:
            raise Unfit(list(pointers(found)))

    def _look(self, connect: Connect) -> _State:
        if self._clock() < self._until:
            return self._state
        with self._lock:
            if self._clock() >= self._until:
                asked = self._clock()
                with connect() as connection:
                    self._state = _read(connection, self._state)
                self._until = asked + LOOK_EVERY_S
            return self._state


def _read(connection: psycopg.Connection, known: _State) -> _State:
    row = connection.execute(VERSION).fetchone()
    version = row[0] if row else 0
    if version == known.version:
        return known
    return _State(
        version,
        {(tenant, name): schema for tenant, name, schema in connection.execute(SCHEMAS)},
        {tenant: frozenset(names or ()) for tenant, names in connection.execute(STRICT)},
    )
