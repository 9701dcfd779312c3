"""What a person does to deliveries: cancel, replay, retry now."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from webhooks import ids, lanes
from webhooks.attempt import LIVE, Status
from webhooks.deliveries import audit
from webhooks.deliveries.cancelling import CANCEL, in_transaction

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

    return in_transaction(connection, work)


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

    return in_transaction(connection, work)


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

    in_transaction(connection, work)


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
