"""The workers' own rows: register, heartbeat, retire. A row is a lease on what it claimed."""

from __future__ import annotations

import os
import socket
from importlib.metadata import version
from uuid import UUID

import psycopg

from webhooks.db import transaction

REGISTER = """
INSERT INTO webhooks.workers (host, pid, version, lease, capacity)
VALUES (%(host)s, %(pid)s, %(version)s, make_interval(secs => %(lease)s), %(capacity)s)
RETURNING id
"""

# However late: reclaiming takes what a row covers and the row itself in one transaction, so
# a row that is there still covers it.
BEAT = """
UPDATE webhooks.workers SET seen_at = clock_timestamp(), in_flight = %(in_flight)s
WHERE id = %(id)s
"""

COUNT = "SELECT count(*) FROM webhooks.workers WHERE seen_at > now() - lease"

TOTALS = """
SELECT count(*), coalesce(sum(in_flight), 0), coalesce(sum(capacity), 0)
FROM webhooks.workers WHERE seen_at > now() - lease
"""

LOCK = "SELECT 1 FROM webhooks.workers WHERE id = %(id)s FOR UPDATE"

# After the lock, in a new statement: it sees a claim that was still open before.
RETIRE = """
DELETE FROM webhooks.workers w WHERE id = %(id)s AND NOT EXISTS (
    SELECT FROM webhooks.deliveries_queue q
    WHERE q.worker_id = w.id AND q.status = 'in_flight')
"""

# Within a transaction: the lease cannot be taken away before it ends.
FENCE = "SELECT 1 FROM webhooks.workers WHERE id = %s FOR KEY SHARE"


def register(connection: psycopg.Connection, capacity: int, lease_s: float) -> UUID:
    """Make a row for a new incarnation; its id comes from the database, never from a name."""
    values = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "version": version("webhooks-platform"),
        "lease": lease_s,
        "capacity": capacity,
    }
    with transaction(connection):
        row = connection.execute(REGISTER, values).fetchone()
    assert row is not None  # noqa: S101 - INSERT … RETURNING answers one row
    worker_id: UUID = row[0]
    return worker_id


def beat(connection: psycopg.Connection, worker_id: UUID, in_flight: int) -> bool:
    """Renew the lease; False: the row is gone, and the worker must register anew."""
    with transaction(connection):
        values = {"id": worker_id, "in_flight": in_flight}
        return connection.execute(BEAT, values).rowcount == 1


def count(connection: psycopg.Connection) -> int:
    """Workers whose lease runs, at least one."""
    with transaction(connection):
        row = connection.execute(COUNT).fetchone()
    return max(1, row[0]) if row else 1


def totals(connection: psycopg.Connection) -> tuple[int, int, int]:
    """Of the workers whose lease runs: how many, what they hold, what they can hold."""
    row = connection.execute(TOTALS).fetchone() or (0, 0, 0)
    return int(row[0]), int(row[1]), int(row[2])


def fence(connection: psycopg.Connection, worker_id: UUID) -> bool:
    """Lock the worker's row against reclaiming, until commit; False: it is gone."""
    return connection.execute(FENCE, [worker_id]).fetchone() is not None


def retire(connection: psycopg.Connection, worker_id: UUID) -> bool:
    """Delete the row of a worker that holds nothing; False: it still holds something."""
    with transaction(connection):
        connection.execute(LOCK, {"id": worker_id})
        return connection.execute(RETIRE, {"id": worker_id}).rowcount == 1
