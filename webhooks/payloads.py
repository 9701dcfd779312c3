"""Payloads that go before their events: where a tenant wants so, or when they are erased.

What still waits keeps its payload. Bodies that receivers answered go with it, for they often
repeat it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from uuid import UUID

import psycopg

from webhooks.db import transaction

# So much of a tenant's time is looked through in one transaction, and so often in one run.
STEP = timedelta(minutes=10)
MOST_STEPS = 5_000

TENANTS = """
SELECT id, greatest(payloads_gone_until, created_at),
       now() - make_interval(days => payload_days)
FROM webhooks.tenants WHERE payload_days IS NOT NULL
"""

EXPIRE = """
UPDATE webhooks.events e SET payload = NULL
WHERE e.id >= webhooks.uuid7_floor(%(from)s) AND e.id < webhooks.uuid7_floor(%(to)s)
  AND e.tenant_id = %(tenant)s AND e.payload IS NOT NULL
  AND NOT EXISTS (SELECT FROM webhooks.deliveries_queue q WHERE q.event_id = e.id)
  AND NOT EXISTS (SELECT FROM webhooks.fanouts f
                  WHERE f.tenant_id = e.tenant_id AND f.event_id = e.id)
"""
EXPIRE_ANSWERS = """
UPDATE webhooks.attempts SET response_body = NULL
WHERE recorded_at >= %(from)s AND recorded_at < %(to)s
  AND tenant_id = %(tenant)s AND response_body IS NOT NULL
"""
# Attempts are looked up by their delivery, of today and the days that its event may have had.
FORGET = """
UPDATE webhooks.attempts a SET response_body = NULL
FROM webhooks.deliveries d
WHERE d.event_id = %(event)s
  AND d.finished_at >= webhooks.uuid7_time(%(event)s) - interval '1 day'
  AND a.delivery_id = d.id AND a.recorded_at >= d.created_at - interval '1 day'
"""
AGE = "SELECT id, created_at, now() FROM webhooks.tenants WHERE id = %s"
ADVANCE = "UPDATE webhooks.tenants SET payloads_gone_until = %(to)s WHERE id = %(tenant)s"


def expire(connection: psycopg.Connection) -> int:
    """Empty events and answers that are older than their tenant wants; answers how many events.

    A live delivery keeps its event's payload, which then goes with the event. What a run does
    not reach, the next one does.
    """
    tenants = connection.execute(TENANTS).fetchall()
    return sum(sum(islice(_steps(connection, *tenant), MOST_STEPS)) for tenant in tenants)


def erase(connection: psycopg.Connection, tenant_id: UUID) -> int:
    """Empty all of a tenant's events and answers up to now; answers how many events."""
    row = connection.execute(AGE, [tenant_id]).fetchone()
    return sum(_steps(connection, *row)) if row else 0


def forget_answers(connection: psycopg.Connection, event_id: UUID) -> None:
    """Empty what receivers answered to one event."""
    with transaction(connection, "statement_timeout = '60s'"):
        connection.execute(FORGET, {"event": event_id})


def _steps(
    connection: psycopg.Connection, tenant: UUID, since: datetime, until: datetime
) -> Iterator[int]:
    while since < until:
        upto = min(since + STEP, until)
        yield _step(connection, {"tenant": tenant, "from": since, "to": upto})
        since = upto


def _step(connection: psycopg.Connection, values: dict[str, object]) -> int:
    with transaction(connection, "statement_timeout = '60s'"):
        gone = connection.execute(EXPIRE, values).rowcount
        connection.execute(EXPIRE_ANSWERS, values)
        connection.execute(ADVANCE, values)
        return gone
