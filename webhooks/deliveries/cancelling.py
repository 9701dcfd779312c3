"""Cancelling an endpoint's waiting deliveries, in chunks, each a short transaction."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import psycopg

from webhooks.db import EVER_SINCE, transaction
from webhooks.deliveries.settlement import with_partitions

T = TypeVar("T")

CHUNK = 500
ENDPOINT_DELETED = "endpoint deleted"
# Live, and bulk replay: the values of the column priority.
PRIORITIES = (0, 1)
NO_ID = UUID(int=0)

CANCEL = """
UPDATE webhooks.deliveries
SET status = 'cancelled', finished_at = now(), due_at = NULL, reason = %(reason)s
WHERE finished_at = 'infinity' AND id = ANY (%(ids)s) AND worker_id IS NULL
"""

# An endpoint's waiting deliveries below an id, which tells when they were made. Each look
# goes on after the one before, so that what is cancelled already is not read again; newer
# pending ones are never read.
PENDING_BELOW = """
SELECT id FROM webhooks.deliveries_queue
WHERE shard = %(shard)s AND endpoint_id = %(endpoint)s AND priority = %(priority)s
  AND status = 'pending' AND id > %(after)s AND id < %(below)s
ORDER BY id LIMIT %(rows)s
"""
SCHEDULED_AFTER = """
SELECT id, due_at FROM webhooks.deliveries_queue
WHERE endpoint_id = %(endpoint)s AND status = 'scheduled'
  AND due_at >= %(due_at)s AND (due_at, id) > (%(due_at)s, %(after)s)
ORDER BY due_at, id LIMIT %(rows)s
"""

BOUNDS = """
SELECT webhooks.shard_of(tenant_id),
       CASE WHEN %(before)s::timestamptz IS NULL THEN 'ffffffff-ffff-ffff-ffff-ffffffffffff'
            ELSE webhooks.uuid7_floor(greatest(%(before)s, 'epoch')) END
FROM webhooks.endpoints WHERE id = %(endpoint)s
"""

# Skipping what is locked: another worker is cancelling that.
OF_ENDPOINT = """
SELECT id FROM webhooks.deliveries_queue
WHERE endpoint_id = %(endpoint)s AND shard = %(shard)s AND status = 'pending'
   OR endpoint_id = %(endpoint)s AND status = 'scheduled'
LIMIT %(rows)s FOR UPDATE SKIP LOCKED
"""


def cancel_endpoint(
    connection: psycopg.Connection,
    endpoint_id: UUID,
    reason: str,
    before: datetime | None = None,
    within_s: float = math.inf,
) -> int:
    """Cancel an endpoint's waiting deliveries; answers how many.

    What is left after ``within_s`` seconds stays. The rest is as for ``cancel_chunks``.
    """
    total, until = 0, time.monotonic() + within_s
    for cancelled in cancel_chunks(connection, endpoint_id, reason, before):
        total += cancelled
        if time.monotonic() >= until:
            break
    return total


def cancel_chunks(
    connection: psycopg.Connection,
    endpoint_id: UUID,
    reason: str,
    before: datetime | None = None,
) -> Iterator[int]:
    """Cancel an endpoint's waiting deliveries chunk by chunk, each a transaction; how many each.

    ``before``: only those made before that time. Its lane must be closed before, so that
    nothing new is claimed meanwhile.
    """
    values: dict[str, Any] = {"endpoint": endpoint_id, "before": before, "rows": CHUNK}
    with transaction(connection):
        row = connection.execute(BOUNDS, values).fetchone()
    if row is None:
        return
    values |= {"shard": row[0], "below": row[1]}
    # Scheduled ones first: what falls due meanwhile is then found among the pending.
    yield from _cancel_along(connection, SCHEDULED_AFTER, values, reason)
    for priority in PRIORITIES:
        values["priority"] = priority
        yield from _cancel_along(connection, PENDING_BELOW, values, reason)


def cancel_orphans(connection: psycopg.Connection, lanes: Iterable[tuple[int, UUID]]) -> int:
    """Cancel pending deliveries whose endpoint is gone: an emit committed after its deletion.

    One chunk of each lane, so that whoever calls it is not kept for long.
    """
    return sum(
        _cancel_chunk(connection, shard, endpoint_id, ENDPOINT_DELETED)
        for shard, endpoint_id in lanes
    )


def _cancel_along(
    connection: psycopg.Connection, statement: str, values: dict[str, Any], reason: str
) -> Iterator[int]:
    """Cancel what a statement finds below the bound, look by look."""
    place: dict[str, Any] = {"after": NO_ID, "due_at": EVER_SINCE}

    def work() -> tuple[Sequence[Any], int]:
        rows = connection.execute(statement, values | place).fetchall()
        chunk = sorted(row[0] for row in rows if row[0] < values["below"])
        return rows, _cancel(connection, chunk, reason)

    while True:
        rows, cancelled = in_transaction(connection, work)
        yield cancelled
        if len(rows) < CHUNK:
            return
        place = {"after": rows[-1][0], "due_at": rows[-1][-1]}


def _cancel_chunk(
    connection: psycopg.Connection, shard: int, endpoint_id: UUID, reason: str
) -> int:
    values = {"shard": shard, "endpoint": endpoint_id, "rows": CHUNK}

    def work() -> int:
        rows = connection.execute(OF_ENDPOINT, values).fetchall()
        return _cancel(connection, sorted(row[0] for row in rows), reason)

    return in_transaction(connection, work)


def _cancel(connection: psycopg.Connection, delivery_ids: list[UUID], reason: str) -> int:
    values = {"ids": delivery_ids, "reason": reason}
    return connection.execute(CANCEL, values).rowcount if delivery_ids else 0


def in_transaction(connection: psycopg.Connection, work: Callable[[], T]) -> T:
    """Run ``work`` in a transaction, again where that helps; partitions are made if missing."""

    def transact() -> T:
        with transaction(connection, "enable_seqscan = off"):
            return work()

    return with_partitions(connection, transact)
