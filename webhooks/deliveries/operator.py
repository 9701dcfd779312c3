"""What a person does to deliveries: cancel, replay, retry now."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import psycopg

from webhooks import ids, lanes
from webhooks.attempt import LIVE, Status
from webhooks.db import EVER_SINCE, transaction
from webhooks.deliveries import audit
from webhooks.deliveries.settlement import with_partitions

T = TypeVar("T")

CHUNK = 500
ENDPOINT_DELETED = "endpoint deleted"
# Live, and bulk replay: the values of the column priority.
PRIORITIES = (0, 1)
NO_ID = UUID(int=0)

# From the id's own day on: the queue is looked into as well, later days alone remain.
FIND = """
SELECT d.status, d.finished_at, d.tenant_id, d.event_id, e.status, e.status_reason,
       e.deleted_at IS NOT NULL, l.open_at, l.rate_open_at, l.broken_s, now()
FROM webhooks.deliveries d
LEFT JOIN webhooks.endpoints e ON e.id = d.endpoint_id
LEFT JOIN webhooks.lanes l ON l.shard = d.shard AND l.endpoint_id = d.endpoint_id
WHERE d.id = %(id)s AND d.finished_at >= webhooks.uuid7_time(%(id)s) - interval '1 day'
  AND (%(tenant)s::uuid IS NULL OR d.tenant_id = %(tenant)s)
"""

# Days that are about to be dropped take nothing back into the queue.
PAYLOAD_THERE = """
SELECT 1 FROM webhooks.events WHERE id = %(id)s AND payload IS NOT NULL AND NOT EXISTS (
    SELECT FROM webhooks.retired_days
    WHERE day = (webhooks.uuid7_time(%(id)s) AT TIME ZONE 'UTC')::date)
"""

# The row moves back into the queue, with the full ladder of tries before it again.
REPLAY = """
UPDATE webhooks.deliveries
SET status = 'pending', finished_at = 'infinity', tries = 0, lost = 0, trigger = 'manual',
    reason = NULL, priority = 0
WHERE id = %(id)s AND finished_at = %(finished_at)s
"""

RETRY_NOW = """
UPDATE webhooks.deliveries_queue SET status = 'pending', due_at = NULL, trigger = 'manual'
WHERE id = %(id)s AND due_at IS NOT NULL
"""

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


class Missing(LookupError):
    """No such delivery, or it is another tenant's."""


class Refused(RuntimeError):
    """The delivery's state, its endpoint or its payload does not allow it; the text says why."""


def replay(
    connection: psycopg.Connection, delivery_id: UUID, tenant_id: UUID | None, *, actor: str
) -> str | None:
    """Send a finished delivery again: same event, same message id, all tries anew.

    ``tenant_id`` None: any tenant. Answers why it is held, if its endpoint's lane is closed.
    Raises Missing, or Refused while it is live, when the endpoint is disabled or deleted,
    or the payload is gone.
    """

    def work() -> str | None:
        found = _find(connection, delivery_id, tenant_id)
        status, finished_at, tenant, event_id, endpoint_status, reason, deleted, *lane = found
        if Status(status) in LIVE:
            raise Refused(f"it has not finished: it is {status}")
        _check_endpoint(endpoint_status, reason, deleted)
        if connection.execute(PAYLOAD_THERE, {"id": event_id}).fetchone() is None:
            raise Refused("its payload is gone: the event is past its retention")
        values = {"id": delivery_id, "finished_at": finished_at}
        if connection.execute(REPLAY, values).rowcount == 0:
            raise Refused("somebody else changed it at the same moment; look again")
        _audit(connection, tenant, actor, "delivery.replayed", delivery_id)
        return _held(endpoint_status, *lane)

    return _in_transaction(connection, work)


def retry_now(
    connection: psycopg.Connection, delivery_id: UUID, tenant_id: UUID | None, *, actor: str
) -> str | None:
    """Make a scheduled retry pending at once; answers why it is held, if its endpoint's lane
    is closed.

    Raises Missing, or Refused in another state, or when the endpoint is disabled or deleted.
    """

    def work() -> str | None:
        found = _find(connection, delivery_id, tenant_id)
        status, _, tenant, _, endpoint_status, reason, deleted, *lane = found
        if Status(status) is Status.SCHEDULED:
            _check_endpoint(endpoint_status, reason, deleted)
        if connection.execute(RETRY_NOW, {"id": delivery_id}).rowcount == 0:
            raise Refused(f"it is {status}; only a scheduled delivery can be retried now")
        _audit(connection, tenant, actor, "delivery.retried", delivery_id)
        return _held(endpoint_status, *lane)

    return _in_transaction(connection, work)


def cancel(
    connection: psycopg.Connection,
    delivery_id: UUID,
    tenant_id: UUID | None,
    *,
    actor: str,
    reason: str,
) -> None:
    """Give a pending or scheduled delivery up. Raises Missing, or Refused in another state."""

    def work() -> None:
        status, _, tenant, *_ = _find(connection, delivery_id, tenant_id)
        if connection.execute(CANCEL, {"ids": [delivery_id], "reason": reason}).rowcount == 0:
            raise Refused(_why_not_cancelled(status))
        _audit(connection, tenant, actor, "delivery.cancelled", delivery_id, reason=reason)

    _in_transaction(connection, work)


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
        rows, cancelled = _in_transaction(connection, work)
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

    return _in_transaction(connection, work)


def _cancel(connection: psycopg.Connection, delivery_ids: list[UUID], reason: str) -> int:
    values = {"ids": delivery_ids, "reason": reason}
    return connection.execute(CANCEL, values).rowcount if delivery_ids else 0


def _check_endpoint(status: str | None, reason: str | None, deleted: bool) -> None:
    """Refused where what is sent again could not arrive."""
    if status is None or deleted:
        raise Refused("its endpoint was deleted")
    if status == "disabled":
        raise Refused(f"its endpoint is disabled ({reason}); enable it first")


def _held(
    status: str, open_at: datetime, rate_open_at: datetime, broken_s: float, now: datetime
) -> str | None:
    return lanes.held(lanes.state(status, open_at, rate_open_at, broken_s, now), open_at, now)


def _find(connection: psycopg.Connection, delivery_id: UUID, tenant_id: UUID | None) -> Any:
    row = connection.execute(FIND, {"id": delivery_id, "tenant": tenant_id}).fetchone()
    if row is None:
        raise Missing("no such delivery")
    return row


def _why_not_cancelled(status: str) -> str:
    if status == Status.IN_FLIGHT:
        return "it is in_flight; wait until its attempt has ended"
    if status in LIVE:
        return "somebody else changed it at the same moment; look again"
    return f"it is {status}; only a pending or scheduled delivery can be cancelled"


def _audit(
    connection: psycopg.Connection,
    tenant: UUID,
    actor: str,
    action: str,
    delivery_id: UUID,
    **detail: str,
) -> None:
    about = ids.encode(ids.DELIVERY, delivery_id)
    audit.record(connection, tenant, actor, action, about, **detail)


def _in_transaction(connection: psycopg.Connection, work: Callable[[], T]) -> T:
    def transact() -> T:
        with transaction(connection, "enable_seqscan = off"):
            return work()

    return with_partitions(connection, transact)
