"""Expiry: what could not be delivered for too long is given up, and may be replayed."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg

from webhooks.db import transaction
from webhooks.deliveries.cancelling import CANCEL
from webhooks.deliveries.settlement import with_partitions

CHUNK = 500
EXPIRED = "expired"

# One that was replayed has begun anew (it has more attempts than its tries since then), and
# goes when its event does. Skipping what is locked:
# somebody is at it.
OLD = """
SELECT id FROM webhooks.deliveries_queue
WHERE event_id < webhooks.uuid7_floor(now() - make_interval(days => %(days)s))
  AND worker_id IS NULL
  AND (trigger = 'schedule' AND attempts <= tries + coalesce(cardinality(given_back), 0)
       OR event_id < webhooks.uuid7_floor(now() - make_interval(days => %(last)s)))
ORDER BY event_id LIMIT %(rows)s FOR UPDATE SKIP LOCKED
"""

OF_EVENT = """
SELECT id FROM webhooks.deliveries_queue
WHERE event_id = %(event)s AND worker_id IS NULL LIMIT %(rows)s FOR UPDATE SKIP LOCKED
"""

# At most so many are counted.
MOST_COUNTED = 1_000
EXPIRING = """
SELECT count(*) FROM (
    SELECT FROM webhooks.deliveries_queue
    WHERE event_id < webhooks.uuid7_floor(now() - make_interval(days => %s)) LIMIT %s) soon
"""


def expire(connection: psycopg.Connection, days: int, last: int) -> int:
    """Cancel what is older than ``days``, and what was replayed when older than ``last`` days.

    Ages are those of the events. Answers how many.
    """
    return _cancel(connection, OLD, {"days": days, "last": last}, EXPIRED)


def cancel_event(connection: psycopg.Connection, event_id: UUID, reason: str) -> int:
    """Cancel what waits of one event, to whatever endpoints; answers how many."""
    return _cancel(connection, OF_EVENT, {"event": event_id}, reason)


def expiring(connection: psycopg.Connection, days: int) -> int:
    """How many are older than so many days; 1,000 stands for more."""
    row = connection.execute(EXPIRING, [days, MOST_COUNTED]).fetchone()
    return int(row[0]) if row else 0


def _cancel(
    connection: psycopg.Connection, statement: str, values: dict[str, Any], reason: str
) -> int:
    """Chunk by chunk, each a transaction, until nothing is left."""

    def some() -> int:
        with transaction(connection, "enable_seqscan = off"):
            rows = connection.execute(statement, values | {"rows": CHUNK}).fetchall()
            found = {"ids": sorted(row[0] for row in rows), "reason": reason}
            return connection.execute(CANCEL, found).rowcount if rows else 0

    total = 0
    while True:
        cancelled = with_partitions(connection, some)
        total += cancelled
        if cancelled < CHUNK:
            return total
