"""A queue for tests: endpoints with lanes, events, workers, outcomes."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

import psycopg

from webhooks import deliveries, workers
from webhooks.attempt import Claim, ErrorClass, Outcome
from webhooks.deliveries import NO_CURSOR, Settlement

ENDPOINTS = """
WITH made AS (
    INSERT INTO webhooks.endpoints (tenant_id, url, timeout_s, max_in_flight)
    SELECT t.id, %s || '/' || n, 20, 50
    FROM webhooks.tenants t, generate_series(1, %s) AS n WHERE t.key = %s
    RETURNING id, tenant_id, url
), lanes AS (
    INSERT INTO webhooks.lanes (shard, endpoint_id, tenant_id, max_in_flight, host)
    SELECT webhooks.shard_of(tenant_id), id, tenant_id, 50, webhooks.host_of(url) FROM made
), subscribed AS (
    INSERT INTO webhooks.subscriptions (tenant_id, endpoint_id, pattern)
    SELECT tenant_id, id, pattern FROM made, unnest(%s::text[]) AS pattern
)
SELECT id FROM made
"""


def one(connection: psycopg.Connection, statement: str, *values: object) -> Any:
    """The first column of the only row."""
    row = connection.execute(statement, values).fetchone()
    assert row is not None, statement
    return row[0]


def make_endpoint(
    connection: psycopg.Connection, *, url: str = "http://127.0.0.1:1/", cap: int = 50
) -> UUID:
    """An endpoint of the default tenant, subscribed to everything, with its lane."""
    endpoint_id: UUID = one(
        connection,
        "INSERT INTO webhooks.endpoints (tenant_id, url, timeout_s, max_in_flight) "
        "SELECT id, %s, 20, %s FROM webhooks.tenants WHERE key = 'default' RETURNING id",
        url,
        cap,
    )
    connection.execute(
        "INSERT INTO webhooks.subscriptions (tenant_id, endpoint_id, pattern) "
        "SELECT tenant_id, id, '*' FROM webhooks.endpoints WHERE id = %s",
        [endpoint_id],
    )
    connection.execute(
        "INSERT INTO webhooks.lanes (shard, endpoint_id, tenant_id, max_in_flight, host) "
        "SELECT webhooks.shard_of(tenant_id), id, tenant_id, max_in_flight, webhooks.host_of(url) "
        "FROM webhooks.endpoints WHERE id = %s",
        [endpoint_id],
    )
    return endpoint_id


def make_endpoints(
    connection: psycopg.Connection,
    count: int,
    *patterns: str,
    tenant: str = "default",
    url: str = "http://127.0.0.1:1",
) -> set[UUID]:
    """Many of a tenant, the n-th at ``url``/n, for these event types or for all."""
    rows = connection.execute(ENDPOINTS, [url, count, tenant, list(patterns or "*")]).fetchall()
    return {row[0] for row in rows}


def emit(connection: psycopg.Connection, count: int = 1) -> None:
    """Events that every endpoint made so far gets."""
    connection.execute(
        "SELECT webhooks.emit('default', 'test', '{}') FROM generate_series(1, %s)", [count]
    )


def register(connection: psycopg.Connection, lease_s: float = 30) -> UUID:
    return workers.register(connection, 100, lease_s)


def claim(connection: psycopg.Connection, worker_id: UUID, room: int = 500) -> tuple[Claim, ...]:
    return deliveries.claim(connection, worker_id, NO_CURSOR, room).claims


def delivered(claim: Claim) -> Settlement:
    return Settlement(claim, outcome(None, 200), None)


def outcome(error: ErrorClass | None, status_code: int | None = None, **more: Any) -> Outcome:
    now = time.monotonic()
    return Outcome(error, status_code=status_code, started=now, finished=now, **more)


def statuses(connection: psycopg.Connection) -> dict[str, int]:
    """How many deliveries are in each state."""
    return dict(
        connection.execute("SELECT status, count(*) FROM webhooks.deliveries GROUP BY 1").fetchall()
    )


def expire(connection: psycopg.Connection, worker_id: UUID) -> None:
    """End a worker's lease at once, as if it had been silent for longer."""
    connection.execute("UPDATE webhooks.workers SET lease = '-1 hour' WHERE id = %s", [worker_id])
