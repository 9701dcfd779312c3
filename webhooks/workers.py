"""The workers' own rows: register, heartbeat, retire. A row is a lease on what it claimed."""

from __future__ import annotations

import os
import socket
from importlib.metadata import version
from uuid import UUID

import psycopg

REGISTER = """
INSERT INTO webhooks.workers (host, pid, version, lease, capacity)
VALUES (%(host)s, %(pid)s, %(version)s, make_interval(secs => %(lease)s), %(capacity)s)
RETURNING id
"""

# An expired lease is not renewed: somebody may be reclaiming what it covered. A restart
# of the database, during which nobody can renew, does not count.
BEAT = """
UPDATE webhooks.workers
SET seen_at = clock_timestamp(), in_flight = %(in_flight)s
WHERE id = %(id)s
  AND greatest(seen_at, pg_postmaster_start_time()) > clock_timestamp() - lease
"""

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
    row = connection.execute(REGISTER, values).fetchone()
    assert row is not None  # noqa: S101 - INSERT … RETURNING answers one row
    worker_id: UUID = row[0]
    return worker_id


def beat(connection: psycopg.Connection, worker_id: UUID, in_flight: int) -> bool:
    """Renew the lease; False: it had expired, and the worker must register anew."""
    return connection.execute(BEAT, {"id": worker_id, "in_flight": in_flight}).rowcount == 1


def fence(connection: psycopg.Connection, worker_id: UUID) -> bool:
    """Lock the worker's row against reclaiming, until commit; False: it is gone."""
    return connection.execute(FENCE, [worker_id]).fetchone() is not None


def retire(connection: psycopg.Connection, worker_id: UUID) -> bool:
    """Delete the row of a worker that holds nothing; False: it still holds something."""
    return connection.execute(RETIRE, {"id": worker_id}).rowcount == 1
