"""Rows as a worker would leave them, written by SQL: pages need no worker to be tested."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import psycopg

ENDPOINT = """
INSERT INTO webhooks.endpoints
    (tenant_id, url, description, status, status_reason, timeout_s, max_in_flight)
SELECT id, %(url)s, %(description)s, %(status)s, %(reason)s, 20, 50
FROM webhooks.tenants WHERE key = %(tenant)s RETURNING id
"""

LANE = """
INSERT INTO webhooks.lanes
    (shard, endpoint_id, tenant_id, max_in_flight, open_at, closed_reason, failures, failing_since)
SELECT webhooks.shard_of(tenant_id), id, tenant_id, max_in_flight,
       CASE status WHEN 'active' THEN '-infinity' ELSE 'infinity' END::timestamptz,
       status_reason, %(failures)s::integer,
       CASE WHEN %(failures)s::integer > 0 THEN now() - interval '3 hours' END
FROM webhooks.endpoints WHERE id = %(id)s
"""

EVENT = """
INSERT INTO webhooks.events (shard, id, tenant_id, type, payload, created_at)
SELECT webhooks.shard_of(id), webhooks.uuid7(), id, %(type)s, %(payload)s, now()
FROM webhooks.tenants WHERE key = 'default' RETURNING id
"""

DELIVERY = """
INSERT INTO webhooks.deliveries (
    shard, tenant_id, event_id, endpoint_id, event_type, status, reason, trigger, attempts, tries,
    status_code, error_class, created_at, due_at, worker_id, claimed_at, finished_at)
SELECT webhooks.shard_of(id), id, %(event)s, %(endpoint)s, %(type)s, %(status)s, %(reason)s,
       %(trigger)s, %(attempts)s, %(attempts)s, %(code)s, %(error)s,
       now() - make_interval(secs => %(age_s)s),
       CASE WHEN %(status)s = 'scheduled' THEN now() + make_interval(secs => %(due_s)s) END,
       CASE WHEN %(status)s = 'in_flight' THEN gen_random_uuid() END,
       CASE WHEN %(status)s = 'in_flight' THEN now() - interval '2 seconds' END,
       CASE WHEN %(status)s IN ('delivered', 'dead_lettered', 'cancelled')
            THEN now() - make_interval(secs => %(finished_s)s) ELSE 'infinity' END
FROM webhooks.tenants WHERE key = 'default' RETURNING id
"""

ATTEMPT = """
INSERT INTO webhooks.attempts (
    shard, delivery_id, number, tenant_id, endpoint_id, trigger, outcome, error_class, detail,
    status_code, url, peer, request_headers, response_headers, response_body, truncated,
    dns_ms, connect_ms, tls_ms, first_byte_ms, total_ms, started_at, recorded_at)
SELECT d.shard, d.id, %(number)s, d.tenant_id, d.endpoint_id, %(trigger)s, %(outcome)s, %(error)s,
       %(detail)s, %(code)s, %(url)s, %(peer)s, %(request)s::json, %(response)s::json, %(body)s,
       %(truncated)s, %(dns)s, %(connect)s, %(tls)s, %(first)s, %(total)s,
       now() - make_interval(secs => %(ago_s)s), now() - make_interval(secs => %(ago_s)s)
FROM webhooks.deliveries d WHERE d.id = %(delivery)s
"""

WORKER = """
INSERT INTO webhooks.workers (host, pid, version, seen_at, lease, in_flight, capacity)
VALUES (%s, %s, '0.1.0', now() - make_interval(secs => %s), interval '30 seconds', %s, %s)
"""

PAYLOAD = b"""{"id": "in_1042", "customer": {"name": "Acme GmbH", "vat": "DE811907980"},
 "amount": 129.50, "big": 50755254975729665, "lines": [{"sku": "seat", "quantity": 5}],
 "paid": true, "note": null}"""

SENT = [
    ["Content-Type", "application/json"],
    ["User-Agent", "Webhooks/0.1.0"],
    ["webhook-id", "evt_01kbcf8z9he5ra4h9d0xv1m2q7"],
    ["webhook-timestamp", "1764540000"],
    ["webhook-signature", "v1,••••"],
    ["webhook-event-type", "invoice.paid"],
]
ANSWERED = [
    ["content-type", "application/json; charset=utf-8"],
    ["server", "nginx/1.27.2"],
    ["x-request-id", "7f9d2c1e-0b51-4f5e-9f0f-4a2e6f0f1c11"],
    ["date", "Mon, 30 Nov 2026 14:03:05 GMT"],
]
FAILED_BODY = (
    b'{"error": "upstream unavailable", "retry": true, "trace": "4bf92f3577b34da6a3ce929d0e0e4736"}'
)


def _one(connection: psycopg.Connection, statement: str, values: dict[str, Any]) -> UUID:
    row = connection.execute(statement, values).fetchone()
    assert row is not None
    found: UUID = row[0]
    return found


def partitions(connection: psycopg.Connection) -> None:
    """Days behind us, as what is seeded has finished minutes or hours ago."""
    connection.execute(
        "SELECT webhooks.make_partition(parent, current_date - ago) "
        "FROM unnest(ARRAY['deliveries', 'attempts']) AS parent, generate_series(1, 3) AS ago"
    )


def add_endpoint(
    connection: psycopg.Connection,
    url: str,
    *patterns: str,
    description: str = "",
    status: str = "active",
    reason: str | None = None,
    failures: int = 0,
    tenant: str = "default",
) -> UUID:
    """An endpoint with its subscriptions and lane."""
    values = {"url": url, "description": description, "status": status, "reason": reason}
    endpoint_id = _one(connection, ENDPOINT, values | {"tenant": tenant})
    for pattern in patterns or ("*",):
        connection.execute(
            "INSERT INTO webhooks.subscriptions (tenant_id, endpoint_id, pattern) "
            "SELECT tenant_id, id, %s FROM webhooks.endpoints WHERE id = %s",
            [pattern, endpoint_id],
        )
    connection.execute(LANE, {"id": endpoint_id, "failures": failures})
    return endpoint_id


def add_event(
    connection: psycopg.Connection, type: str = "invoice.paid", payload: bytes = PAYLOAD
) -> UUID:
    """An event without deliveries."""
    return _one(connection, EVENT, {"type": type, "payload": payload})


def add_delivery(
    connection: psycopg.Connection,
    endpoint_id: UUID,
    event_id: UUID,
    status: str,
    **more: Any,
) -> UUID:
    """A delivery in a state; ``age_s``, ``due_s`` and ``finished_s`` are seconds from now."""
    values: dict[str, Any] = {
        "endpoint": endpoint_id,
        "event": event_id,
        "status": status,
        "type": "invoice.paid",
        "reason": None,
        "trigger": "schedule",
        "attempts": 0,
        "code": None,
        "error": None,
        "age_s": 60.0,
        "due_s": 41.0,
        "finished_s": 30.0,
    }
    return _one(connection, DELIVERY, values | more)


def add_attempt(
    connection: psycopg.Connection, delivery_id: UUID, number: int, **more: Any
) -> None:
    """An attempt's record: a failed one with HTTP 503 unless told otherwise."""
    values: dict[str, Any] = {
        "delivery": delivery_id,
        "number": number,
        "trigger": "schedule",
        "outcome": "failed",
        "error": "http_5xx",
        "detail": None,
        "code": 503,
        "url": "https://hooks.bolt.example/in",
        "peer": "203.0.113.7:443",
        "request": SENT,
        "response": ANSWERED,
        "body": FAILED_BODY,
        "truncated": False,
        "dns": 2.1,
        "connect": 11.3,
        "tls": 42.0,
        "first": 186.0,
        "total": 188.4,
        "ago_s": 20.0,
    }
    values |= more
    for name in ("request", "response"):
        values[name] = None if values[name] is None else json.dumps(values[name])
    connection.execute(ATTEMPT, values)


def add_worker(
    connection: psycopg.Connection, host: str, pid: int, *, seen_s: float = 1, in_flight: int = 0
) -> None:
    """A worker's row, seen so many seconds ago."""
    connection.execute(WORKER, [host, pid, seen_s, in_flight, 512])


def delivered(
    connection: psycopg.Connection, endpoint_id: UUID, event_id: UUID, type: str, age_s: float
) -> UUID:
    """A delivery that went well at the first attempt."""
    delivery_id = add_delivery(
        connection, endpoint_id, event_id, "delivered", type=type, attempts=1, code=200,
        age_s=age_s + 1, finished_s=age_s,
    )  # fmt: skip
    add_attempt(
        connection, delivery_id, 1, outcome="delivered", error=None, code=200, ago_s=age_s,
        url="https://api.acme.example/hooks", body=b'{"ok": true}', total=84.2, first=83.0,
    )  # fmt: skip
    return delivery_id


def dead(
    connection: psycopg.Connection, endpoint_id: UUID, event_id: UUID, attempts: int = 10
) -> UUID:
    """A dead letter with every attempt's record, of several kinds."""
    delivery_id = add_delivery(
        connection, endpoint_id, event_id, "dead_lettered", attempts=attempts, code=503,
        error="http_5xx", reason=f"HTTP 503 after {attempts} tries", age_s=200_000, finished_s=180,
    )  # fmt: skip
    for number in range(1, attempts + 1):
        ago_s = 180 + 20_000 * (attempts - number) / attempts
        more: dict[str, Any] = {"ago_s": ago_s}
        if number == attempts - 1:
            more |= {
                "error": "timeout", "code": None, "detail": "No answer within 20 s.", "body": None,
                "response": None, "first": None, "total": 20_000.0,
            }  # fmt: skip
        elif number == attempts - 2:
            more |= {
                "error": "connect", "code": None, "detail": "Connection refused.",
                "body": None, "response": None, "connect": None, "tls": None, "first": None,
                "total": 12.0,
            }  # fmt: skip
        add_attempt(connection, delivery_id, number, **more)
    return delivery_id


# Each endpoint's columns, and its lane's.
TROUBLED: dict[str, tuple[str, str]] = {
    "broken": (
        "",
        "failures = 41, strikes = 41, broken_s = 120, open_at = now() + interval '85 s', "
        "failing_since = now() - interval '3 hours', failed_at = now() - interval '35 s', "
        "last_error = 'connect', closed_reason = 'breaker: 41 failures in a row'",
    ),
    "warned": (
        "",
        "failures = 160, strikes = 160, broken_s = 600, open_at = now() - interval '1 s', "
        "failing_since = now() - interval '3 days', failed_at = now() - interval '10 min', "
        "warned_at = now() - interval '12 hours', last_error = 'http_5xx', "
        "last_status_code = 502, closed_reason = 'breaker: 160 failures in a row'",
    ),
    "throttled": (
        "",
        "failures = 1, open_at = now() + interval '50 s', failing_since = now(), "
        "failed_at = now(), last_error = 'http_4xx', last_status_code = 429, "
        "closed_reason = 'the receiver asked for a pause (HTTP 429)'",
    ),
    "limited": (
        "rate_limit = 5, rate_burst = 10",
        "rate_limit = 5, rate_burst = 10, rate_open_at = now() + interval '1 min'",
    ),
    "given-up": (
        "status = 'disabled', status_changed_at = now() - interval '2 hours', "
        "status_reason = 'every attempt failed for 5 days, 214 in a row', "
        'status_evidence = \'{{"failures": 214, "last_error": "timeout", '
        '"last_status_code": null, "last_delivery_id": "{delivery}", '
        '"failing_since": "2026-11-25T10:00:00.5+00:00", '
        '"failed_at": "2026-11-30T10:00:00+00:00"}}\'',
        "open_at = 'infinity', failures = 214, "
        "closed_reason = 'every attempt failed for 5 days, 214 in a row'",
    ),
}


def troubled(connection: psycopg.Connection) -> dict[str, UUID]:
    """Endpoints in the states that the engine brings them into, by name."""
    partitions(connection)
    event_id, found = add_event(connection), {}
    for name, (endpoint, lane) in TROUBLED.items():
        endpoint_id = found[name] = add_endpoint(connection, f"https://{name}.example/hooks")
        delivery_id = add_delivery(
            connection, endpoint_id, event_id, "scheduled", attempts=3, error="connect"
        )
        add_delivery(connection, endpoint_id, event_id, "pending")
        if endpoint:
            values = endpoint.format(delivery=delivery_id)
            connection.execute(
                f"UPDATE webhooks.endpoints SET {values} WHERE id = %s", [endpoint_id]
            )
        connection.execute(
            f"UPDATE webhooks.lanes SET {lane}, last_delivery_id = %s WHERE endpoint_id = %s",
            [delivery_id, endpoint_id],
        )
    return found


def platform(connection: psycopg.Connection) -> dict[str, UUID]:
    """A platform at work: endpoints in every state, deliveries in every state, two workers."""
    partitions(connection)
    shop = add_endpoint(
        connection, "https://shop.example/webhooks/orders", "order.*", description="Old shop",
        status="disabled", reason="the receiver answered 410 Gone",
    )  # fmt: skip
    crm = add_endpoint(
        connection, "https://crm.initech.example:8443/inbound/hooks/v2", "user.*", "invoice.paid",
        "invoice.void", "order.created", description="CRM sync, waits for the migration",
        status="paused", reason="paused by ana",
    )  # fmt: skip
    bolt = add_endpoint(
        connection, "https://hooks.bolt.example/in", "invoice.*", description="Bolt bookkeeping",
        failures=14,
    )  # fmt: skip
    acme = add_endpoint(
        connection, "https://api.acme.example/hooks", "*", description="Acme production"
    )
    types = ("invoice.paid", "user.created", "order.created", "invoice.void")
    events = [add_event(connection, type) for type in types]
    last = [
        delivered(connection, acme, events[n % 4], types[n % 4], 15.0 + 47 * n) for n in range(24)
    ]
    for n in range(6):
        delivered(connection, shop, events[2], "order.created", 9000.0 + 100 * n)
    for n in range(2):
        add_delivery(
            connection, shop, events[2], "dead_lettered", type="order.created", attempts=1,
            code=410, error="http_4xx", reason="HTTP 410: not retryable", finished_s=8000 + n,
        )  # fmt: skip
    dead_letter = dead(connection, bolt, events[0])
    for n in range(5):
        add_delivery(
            connection, bolt, events[3], "dead_lettered", type="invoice.void", attempts=10,
            error="timeout", reason="timeout after 10 tries", age_s=90_000, finished_s=700 + n * 60,
        )  # fmt: skip
    cancelled = add_delivery(
        connection, acme, events[1], "cancelled", type="user.created", reason="cancelled by ana",
        finished_s=400,
    )  # fmt: skip
    scheduled = add_delivery(
        connection, bolt, events[0], "scheduled", attempts=3, code=503, error="http_5xx", due_s=161
    )
    for number in (1, 2, 3):
        add_attempt(connection, scheduled, number, ago_s=300 / number)
    for n in range(4):
        add_delivery(
            connection, bolt, events[3], "scheduled", type="invoice.void", attempts=2,
            error="timeout", due_s=600 + 300 * n,
        )  # fmt: skip
    flying = add_delivery(connection, acme, events[1], "in_flight", type="user.created", attempts=1)
    held = [add_delivery(connection, crm, events[0], "pending", age_s=4000) for _ in range(7)]
    waiting = add_delivery(connection, acme, events[2], "pending", type="order.created", age_s=2)
    add_worker(connection, "app-1", 311, in_flight=28)
    add_worker(connection, "app-2", 290, seen_s=95, in_flight=12)
    return {
        "acme": acme,
        "bolt": bolt,
        "crm": crm,
        "shop": shop,
        "delivered": last[0],
        "dead": dead_letter,
        "cancelled": cancelled,
        "scheduled": scheduled,
        "in_flight": flying,
        "held": held[0],
        "pending": waiting,
        "event": events[0],
    }
