"""Recovery: retries that fall due, rows whose worker died, rows given back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

import psycopg

from webhooks.db import INDEXES_ONLY, retry_tx, transaction
from webhooks.deliveries.claims import GIVE_BACK
from webhooks.deliveries.record import array
from webhooks.deliveries.settlement import with_partitions

PROMOTE_ROWS = 5_000
MOST_LOST = 3

PROMOTE = """
WITH due AS MATERIALIZED (
    SELECT ctid AS row FROM webhooks.deliveries_queue
    WHERE status = 'scheduled' AND due_at <= now()
    ORDER BY due_at LIMIT %(rows)s
    FOR UPDATE SKIP LOCKED
)
UPDATE webhooks.deliveries_queue SET status = 'pending', due_at = NULL
WHERE ctid = ANY (ARRAY(SELECT row FROM due)) AND due_at IS NOT NULL
"""

# A restart of the database stops every heartbeat: leases count from its end.
DEAD_WORKERS = """
SELECT id FROM webhooks.workers
WHERE greatest(seen_at, pg_postmaster_start_time()) < clock_timestamp() - lease
"""

LOCK_DEAD = f"{DEAD_WORKERS} ORDER BY id FOR UPDATE SKIP LOCKED"

# A plain lock: a row skipped because an operator holds it would be an orphan.
HELD_BY_DEAD = """
SELECT id, lost FROM webhooks.deliveries_queue
WHERE status = 'in_flight' AND worker_id = ANY (%(workers)s)
ORDER BY id FOR UPDATE
"""

# Claimed by a worker that has no row at all.
ORPHANED = """
SELECT q.id FROM webhooks.deliveries_queue q
WHERE q.status = 'in_flight'
  AND NOT EXISTS (SELECT FROM webhooks.workers w WHERE w.id = q.worker_id)
ORDER BY q.id LIMIT 1000
"""

# Asked again once they are locked: a lock that was waited for does not repeat the question.
STILL_ORPHANED = """
SELECT q.id, q.lost FROM webhooks.deliveries_queue q
WHERE q.id = ANY (%(ids)s) AND q.worker_id IS NOT NULL
  AND NOT EXISTS (SELECT FROM webhooks.workers w WHERE w.id = q.worker_id)
"""

LOCK_ROWS = """
SELECT 1 FROM webhooks.deliveries_queue WHERE id = ANY (%(ids)s) ORDER BY id FOR UPDATE
"""

RECORD_LOST = """
INSERT INTO webhooks.attempts (shard, delivery_id, number, tenant_id, endpoint_id, trigger,
                               outcome, error_class, detail, worker_id, started_at)
SELECT shard, id, attempts, tenant_id, endpoint_id, trigger, 'failed', 'worker_lost',
       'the worker that sent it died; the receiver may have got it', worker_id,
       coalesce(claimed_at, now())
FROM webhooks.deliveries_queue WHERE id = ANY (%(ids)s) AND worker_id IS NOT NULL
"""

RETURN_LOST = """
UPDATE webhooks.deliveries_queue
SET status = CASE WHEN lost = 0 THEN 'pending' ELSE 'scheduled' END,
    -- Apart from each other the second time: only one of a batch can be what kills workers.
    due_at = CASE WHEN lost = 0 THEN NULL
                  ELSE clock_timestamp() + random() * interval '20 seconds' END,
    worker_id = NULL, tries = tries + 1, lost = lost + 1,
    error_class = 'worker_lost', status_code = NULL, trigger = 'schedule'
WHERE id = ANY (%(ids)s) AND worker_id IS NOT NULL
"""

BURY_LOST = """
UPDATE webhooks.deliveries
SET status = 'dead_lettered', finished_at = now(), worker_id = NULL, tries = tries + 1,
    lost = lost + 1, error_class = 'worker_lost', status_code = NULL,
    reason = 'lost its worker ' || lost + 1 || ' times'
WHERE finished_at = 'infinity' AND id = ANY (%(ids)s) AND worker_id IS NOT NULL
"""

HELD = """
SELECT id, attempts FROM webhooks.deliveries_queue
WHERE status = 'in_flight' AND worker_id = %(worker)s
"""


def promote(connection: psycopg.Connection) -> int:
    """Make due retries pending; answers how many. Any number of workers may run it."""

    def work() -> int:
        with transaction(connection, *INDEXES_ONLY):
            return connection.execute(PROMOTE, {"rows": PROMOTE_ROWS}).rowcount

    return retry_tx(work)


def reclaim(connection: psycopg.Connection) -> int:
    """Take back what dead workers held; answers how many deliveries.

    A try is charged and a ``worker_lost`` attempt recorded; a delivery that lost its
    third worker is dead-lettered, for it may be what kills them.
    """
    # A read first, so that a quiet system writes nothing.
    with transaction(connection, *INDEXES_ONLY):
        dead = connection.execute(DEAD_WORKERS).fetchone()
        orphan = connection.execute(ORPHANED).fetchone()
    if dead is None and orphan is None:
        return 0
    return with_partitions(connection, lambda: _reclaim(connection))


def _reclaim(connection: psycopg.Connection) -> int:
    # Statement by statement: each sees what was committed before it began, so also the
    # last claim of a worker whose row this transaction has just locked.
    with transaction(connection, *INDEXES_ONLY):
        dead = [row[0] for row in connection.execute(LOCK_DEAD).fetchall()]
        held = connection.execute(HELD_BY_DEAD, {"workers": dead}).fetchall() if dead else []
        _return(connection, held)
        ids = {"ids": [row[0] for row in connection.execute(ORPHANED).fetchall()]}
        connection.execute(LOCK_ROWS, ids)
        orphans = connection.execute(STILL_ORPHANED, ids).fetchall()
        _return(connection, orphans)
        connection.execute("DELETE FROM webhooks.workers WHERE id = ANY (%s)", [dead])
        return len(held) + len(orphans)


def _return(connection: psycopg.Connection, held: Sequence[Any]) -> None:
    if not held:
        return
    connection.execute(RECORD_LOST, {"ids": [row[0] for row in held]})
    poison = [row[0] for row in held if row[1] + 1 >= MOST_LOST]
    if poison:
        connection.execute(BURY_LOST, {"ids": poison})
    connection.execute(RETURN_LOST, {"ids": [row[0] for row in held]})


def held_by(connection: psycopg.Connection, worker_id: UUID) -> set[tuple[UUID, int]]:
    """What the database says a worker holds: delivery and number of the claim."""
    with transaction(connection, *INDEXES_ONLY):
        return set(connection.execute(HELD, {"worker": worker_id}).fetchall())


def give_back(
    connection: psycopg.Connection, worker_id: UUID, claims: Collection[tuple[UUID, int]]
) -> int:
    """Make claims pending again without charging a try; answers how many still were its own.

    It is how a worker that stops returns what it never sent, and how rows come back that
    an error left between a claim's commit and its hand-over: they would be in flight for
    as long as the worker lives.
    """
    values = {
        "worker": worker_id,
        "ids": array(claim[0] for claim in claims),
        "attempts": array(claim[1] for claim in claims),
    }

    def work() -> int:
        with transaction(connection, *INDEXES_ONLY):
            return connection.execute(GIVE_BACK, values).rowcount

    return retry_tx(work) if claims else 0
