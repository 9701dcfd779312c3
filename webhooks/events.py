"""Accepting events: the event and its fan-out in one transaction (SQL: webhooks.accept)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import psycopg

from webhooks.db import retry_tx, transaction
from webhooks.field_error import FieldError

LONGEST_TYPE = 255
LONGEST_KEY = 255
LOCK_TIMEOUT = "1s"
GROUP_LOCK_TIMEOUT = "50ms"

_TYPE = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")

# One statement is its own transaction and a single round trip. The lock_timeout is set
# while the argument is evaluated, before the function runs and may wait for another
# emit with the same idempotency key.
_ACCEPT = """
SELECT id, deliveries, verdict
FROM webhooks.accept(
    CASE WHEN set_config('lock_timeout', %s, true) <> '' THEN %s::uuid END, %s, %s, %s)
"""

# WITH ORDINALITY keeps the order given: ids, and so deliveries, follow it. A lock_timeout
# as above: a group of emits is one statement too.
_ACCEPT_MANY = """
SELECT a.id, a.deliveries, a.verdict
FROM unnest(CASE WHEN set_config('lock_timeout', %s, true) <> '' THEN %s::uuid[] END,
            %s::text[], %b::bytea[], %s::text[])
         WITH ORDINALITY AS item (tenant_id, type, payload, key, n)
CROSS JOIN LATERAL webhooks.accept(item.tenant_id, item.type, item.payload, item.key) AS a
ORDER BY item.n
"""

# Two batches that share keys in different orders would deadlock, so a batch first takes
# its keys in one order that all share. A placeholder has expired already: webhooks.accept
# takes it over as it does any expired key.
_BY_KEY = """
SELECT (answer::json ->> 'id')::uuid FROM webhooks.idempotency_keys
WHERE shard = webhooks.shard_of(%(tenant)s) AND tenant_id = %(tenant)s AND scope = 'emit'
  AND key = %(key)s AND expires_at > now() AND answer <> ''
"""
_RESERVE_KEYS = """
INSERT INTO webhooks.idempotency_keys
    (shard, tenant_id, scope, key, body_hash, answer, expires_at)
SELECT webhooks.shard_of(tenant_id), tenant_id, 'emit', key, '', '', '-infinity'
FROM unnest(%(tenants)s::uuid[], %(keys)s::text[]) AS item (tenant_id, key)
ORDER BY tenant_id, key
ON CONFLICT DO NOTHING
"""
_LOCK_KEYS = """
SELECT FROM webhooks.idempotency_keys k
JOIN unnest(%(tenants)s::uuid[], %(keys)s::text[]) AS item (tenant_id, key)
  ON k.shard = webhooks.shard_of(item.tenant_id) AND k.tenant_id = item.tenant_id
 AND k.scope = 'emit' AND k.key = item.key
ORDER BY k.tenant_id, k.key
FOR NO KEY UPDATE OF k
"""


class EventError(FieldError):
    """A field of an event is wrong: ``field`` names it, ``message`` says the remedy."""


class Conflict(Exception):
    """The idempotency key was used with another type or payload."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """An event that is durable; ``deliveries`` counts the endpoints that get it."""

    id: UUID
    deliveries: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to accept. ``payload`` is JSON in UTF-8 and is kept as these very bytes."""

    tenant_id: UUID
    type: str
    payload: bytes
    idempotency_key: str | None = None


def emit(
    connection: psycopg.Connection,
    tenant_id: UUID,
    type: str,
    payload: bytes,
    idempotency_key: str | None = None,
) -> Accepted:
    """Accept one event in a transaction of its own, on an autocommit connection.

    With a key that was used for the same type and payload, answers the first event.
    Raises Conflict when it was used for others, EventError for a bad type or key. The
    payload must have been checked to be JSON in UTF-8.
    """
    event = NewEvent(tenant_id, type, payload, idempotency_key)
    check(event)
    verdict = retry_tx(lambda: _accept(connection, event, LOCK_TIMEOUT))
    if isinstance(verdict, Conflict):
        raise verdict
    return verdict


def emit_many(
    connection: psycopg.Connection, items: Sequence[NewEvent]
) -> list[Accepted | Conflict]:
    """Accept events in one transaction, in the order given; one answer each, in that order.

    Raises EventError for a bad type or key, and then stores nothing.
    """
    for item in items:
        check(item)

    def accept() -> list[Accepted | Conflict]:
        with transaction(connection):
            _lock_keys(connection, items)
            return _accept_many(connection, items, LOCK_TIMEOUT)

    return retry_tx(accept) if items else []


def emit_group(
    connection: psycopg.Connection, items: Sequence[NewEvent]
) -> list[Accepted | Conflict]:
    """Accept events that have nothing to do with each other, in one statement, tried once.

    One answer each, in the order given. Raises psycopg's error, with nothing stored, when
    one of them fails or waits for its key longer than 50 ms. They must have been checked.
    """
    if len(items) == 1:
        return [_accept(connection, items[0], GROUP_LOCK_TIMEOUT)]
    # Keys in the order that all groups share, so that two of them do not deadlock.
    order = sorted(
        range(len(items)), key=lambda n: (items[n].tenant_id, items[n].idempotency_key or "")
    )
    found = _accept_many(connection, [items[n] for n in order], GROUP_LOCK_TIMEOUT)
    verdicts = dict(zip(order, found, strict=True))
    return [verdicts[n] for n in range(len(items))]


def find_by_idempotency_key(
    connection: psycopg.Connection, tenant_id: UUID, key: str
) -> UUID | None:
    """The event that was emitted with a key, while the key is remembered; or None."""
    row = connection.execute(_BY_KEY, {"tenant": tenant_id, "key": key}).fetchone()
    return row[0] if row else None


def check(event: NewEvent) -> None:
    """Raise EventError for a bad type or idempotency key."""
    check_type(event.type)
    check_idempotency_key(event.idempotency_key)


def check_type(type: str) -> None:
    """Raise EventError unless an event type is dot-separated words of at most 255 characters."""
    if len(type) > LONGEST_TYPE or not _TYPE.fullmatch(type):
        raise EventError(
            "type",
            f"{type[:80]!r} is not dot-separated words of A-Z a-z 0-9 _ - "
            f"of at most {LONGEST_TYPE} characters, such as invoice.paid",
        )


def check_idempotency_key(key: str | None) -> None:
    """Raise EventError unless a key is None or 1 to 255 printable characters, not only blanks."""
    if key is not None and not (len(key) <= LONGEST_KEY and key.isprintable() and key.strip()):
        raise EventError(
            "idempotency_key",
            f"{key[:80]!r} is not 1 to {LONGEST_KEY} printable characters",
        )


def _accept(
    connection: psycopg.Connection, event: NewEvent, lock_timeout: str
) -> Accepted | Conflict:
    values = [lock_timeout, event.tenant_id, event.type, event.payload, event.idempotency_key]
    row = connection.execute(_ACCEPT, values).fetchone()
    assert row is not None  # noqa: S101 - the function answers one row
    return _verdict(*row)


def _accept_many(
    connection: psycopg.Connection, items: Sequence[NewEvent], lock_timeout: str
) -> list[Accepted | Conflict]:
    columns = [
        lock_timeout,
        [item.tenant_id for item in items],
        [item.type for item in items],
        [item.payload for item in items],
        [item.idempotency_key for item in items],
    ]
    return [_verdict(*row) for row in connection.execute(_ACCEPT_MANY, columns)]


def _lock_keys(connection: psycopg.Connection, items: Sequence[NewEvent]) -> None:
    keyed = sorted({(i.tenant_id, i.idempotency_key) for i in items if i.idempotency_key})
    if len(keyed) > 1:
        values = {"tenants": [tenant for tenant, _ in keyed], "keys": [key for _, key in keyed]}
        connection.execute(_RESERVE_KEYS, values)
        connection.execute(_LOCK_KEYS, values)


def _verdict(id: UUID, deliveries: int, verdict: str) -> Accepted | Conflict:
    if verdict == "conflict":
        return Conflict("it was used with another type or payload")
    return Accepted(id, deliveries, verdict == "duplicate")
