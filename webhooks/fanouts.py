"""Large fan-outs: what emit left to the workers, made into deliveries in chunks.

Emit (webhooks.accept) keeps the endpoints that matched in one row; each chunk is one short
transaction that inserts deliveries and moves the row on, so a crash loses and repeats nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import psycopg

from webhooks.db import INDEXES_ONLY, retry_tx, transaction

# Up to so many endpoints get their deliveries from webhooks.accept itself.
IN_EMIT = 500
CHUNK = 1_000
MOST_TENANTS = 100
WITHDRAWN_AT_ONCE = 20

# A loose index scan: one probe per tenant that has any, however many it has.
TENANTS = """
WITH RECURSIVE waiting AS (
    (SELECT tenant_id, 1 AS n FROM webhooks.fanouts ORDER BY tenant_id LIMIT 1)
    UNION ALL
    SELECT f.tenant_id, w.n + 1
    FROM waiting w CROSS JOIN LATERAL (
        SELECT tenant_id FROM webhooks.fanouts
        WHERE tenant_id > w.tenant_id ORDER BY tenant_id LIMIT 1) f
    WHERE w.n < %(most)s
)
SELECT tenant_id FROM waiting
"""

TAKE = """
SELECT event_id, shard, expanded + %(chunk)s >= cardinality(endpoint_ids)
FROM webhooks.fanouts WHERE tenant_id = %(tenant)s
ORDER BY event_id LIMIT 1 FOR UPDATE SKIP LOCKED
"""

# Into the queue's own partition, pending, as emit does.
INSERT = """
INSERT INTO webhooks.deliveries_queue (shard, tenant_id, event_id, endpoint_id, event_type)
SELECT shard, tenant_id, event_id, unnest(endpoint_ids[expanded + 1 : expanded + %(chunk)s]),
       event_type
FROM webhooks.fanouts
WHERE tenant_id = %(tenant)s AND event_id = %(event)s AND shard = %(shard)s
"""

ADVANCE = """
UPDATE webhooks.fanouts SET expanded = expanded + %(chunk)s
WHERE tenant_id = %(tenant)s AND event_id = %(event)s AND shard = %(shard)s
"""

FINISH = """
DELETE FROM webhooks.fanouts
WHERE tenant_id = %(tenant)s AND event_id = %(event)s AND shard = %(shard)s
"""

# Of events accepted before a time, those that an endpoint has yet to get its delivery of.
TO_COME = """
SELECT f.event_id FROM webhooks.fanouts f JOIN webhooks.endpoints e ON e.tenant_id = f.tenant_id
WHERE e.id = %(endpoint)s AND e.id = ANY (f.endpoint_ids[f.expanded + 1 :])
  AND f.event_id < webhooks.uuid7_floor(greatest(%(before)s::timestamptz, 'epoch'))
ORDER BY f.event_id LIMIT %(rows)s
"""

# As if it had been the next in turn, so that what is told of the progress stays true.
WITHDRAW = """
WITH moved AS (
    UPDATE webhooks.fanouts f
    SET endpoint_ids = endpoint_ids[: expanded] || e.id
                       || array_remove(endpoint_ids[expanded + 1 :], e.id),
        expanded = expanded + 1
    FROM webhooks.endpoints e
    WHERE e.id = %(endpoint)s AND f.tenant_id = e.tenant_id AND f.event_id = ANY (%(events)s)
      AND e.id = ANY (f.endpoint_ids[f.expanded + 1 :])
    RETURNING f.shard, f.tenant_id, f.event_id, f.event_type
)
INSERT INTO webhooks.deliveries
    (shard, tenant_id, event_id, endpoint_id, event_type, status, reason, finished_at)
SELECT shard, tenant_id, event_id, %(endpoint)s, event_type, 'cancelled', %(reason)s, now()
FROM moved
"""

PROGRESS = """
SELECT expanded, cardinality(endpoint_ids) FROM webhooks.fanouts
WHERE tenant_id = %s AND event_id = %s
"""


@dataclass(frozen=True, slots=True)
class Progress:
    """Of a fan-out that is still open: endpoints with their delivery, and all that matched."""

    expanded: int
    of: int


def expand(connection: psycopg.Connection) -> int:
    """Make one chunk of deliveries of some open fan-out; answers how many, 0: nothing to do.

    A tenant at random, and of that tenant the oldest that no other worker is at, so that a
    tenant with many does not hold up the others. Any number of workers may run it; when
    nothing is open it costs one read and writes nothing.
    """
    waiting = retry_tx(lambda: _tenants(connection))
    random.shuffle(waiting)
    for tenant_id in waiting:
        done = retry_tx(partial(_expand, connection, tenant_id))
        if done:
            return done
    return 0


def withdraw(
    connection: psycopg.Connection, endpoint_id: UUID, reason: str, before: datetime
) -> Iterator[int]:
    """Cancel what is still to come to an endpoint of events accepted before a time.

    Each gets its delivery now, cancelled for ``reason``; a few fan-outs in a transaction,
    and how many each. Where today's partition is missing, psycopg's CheckViolation.
    """
    values = {"endpoint": endpoint_id, "before": before, "rows": WITHDRAWN_AT_ONCE}
    while events := retry_tx(lambda: _to_come(connection, values)):
        yield retry_tx(partial(_withdraw, connection, endpoint_id, reason, events))


def progress(connection: psycopg.Connection, tenant_id: UUID, event_id: UUID) -> Progress | None:
    """How far an event's fan-out is, or None: every matching endpoint has its delivery."""
    row = connection.execute(PROGRESS, [tenant_id, event_id]).fetchone()
    return Progress(*row) if row else None


def _tenants(connection: psycopg.Connection) -> list[UUID]:
    with transaction(connection, *INDEXES_ONLY):
        return [row[0] for row in connection.execute(TENANTS, {"most": MOST_TENANTS})]


def _expand(connection: psycopg.Connection, tenant_id: UUID) -> int:
    with transaction(connection, *INDEXES_ONLY):
        values = {"tenant": tenant_id, "chunk": CHUNK}
        row = connection.execute(TAKE, values).fetchone()
        if row is None:
            return 0
        event_id, shard, last = row
        values |= {"event": event_id, "shard": shard}
        inserted = connection.execute(INSERT, values).rowcount
        connection.execute(FINISH if last else ADVANCE, values)
        return inserted


def _to_come(connection: psycopg.Connection, values: dict[str, Any]) -> list[UUID]:
    with transaction(connection, *INDEXES_ONLY):
        return [row[0] for row in connection.execute(TO_COME, values)]


def _withdraw(
    connection: psycopg.Connection, endpoint_id: UUID, reason: str, events: list[UUID]
) -> int:
    values = {"endpoint": endpoint_id, "reason": reason, "events": events}
    with transaction(connection, *INDEXES_ONLY):
        return connection.execute(WITHDRAW, values).rowcount
