"""Test events: one event to one endpoint, on the way that every delivery takes."""

from __future__ import annotations

from uuid import UUID

import psycopg

from webhooks import event_types
from webhooks.db import transaction
from webhooks.models import Tenant
from webhooks.partitions import make_partitions

TYPE = "webhooks.test"
PAYLOAD = b'{"message":"This is a test. If you can read it, deliveries arrive here."}'

EVENT = """
INSERT INTO webhooks.events (shard, id, tenant_id, type, payload, created_at)
VALUES (webhooks.shard_of(%(tenant)s), webhooks.uuid7(), %(tenant)s, %(type)s, %(payload)s,
        clock_timestamp())
RETURNING id
"""
DELIVERY = """
INSERT INTO webhooks.deliveries_queue (shard, tenant_id, event_id, endpoint_id, event_type)
VALUES (webhooks.shard_of(%(tenant)s), %(tenant)s, %(event)s, %(endpoint)s, %(type)s)
RETURNING id
"""


def example(tenant: Tenant, type: str) -> bytes:
    """A payload of this event type: the catalogue's example, else a word of ours."""
    known = event_types.find(tenant, type)
    return PAYLOAD if known is None or known.example is None else known.example.encode()


def emit(
    connection: psycopg.Connection, tenant_id: UUID, endpoint_id: UUID, type: str, payload: bytes
) -> UUID:
    """Store an event for this endpoint alone, whatever it is subscribed to; its delivery's id.

    It is signed, sent, retried and kept like any other.
    """
    values = {"tenant": tenant_id, "endpoint": endpoint_id, "type": type, "payload": payload}
    try:
        return _emit(connection, values)
    except psycopg.errors.CheckViolation:  # the day's partition is missing
        make_partitions(connection)
        return _emit(connection, values)


def _emit(connection: psycopg.Connection, values: dict[str, object]) -> UUID:
    with transaction(connection):
        row = connection.execute(EVENT, values).fetchone()
        assert row is not None  # noqa: S101 - INSERT … RETURNING answers one row
        made = connection.execute(DELIVERY, values | {"event": row[0]}).fetchone()
        assert made is not None  # noqa: S101 - the same
        return UUID(str(made[0]))
