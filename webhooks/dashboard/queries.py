"""What the pages read, apart from the list of deliveries.

Nothing counts without a limit, skips rows or looks for distinct values: a page takes as
long with ten million deliveries as with ten. Bodies are cut in the database.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

from sqlalchemy import RowMapping, text

from webhooks.dashboard.bodies import SHOWN_BYTES
from webhooks.dashboard.formats import COUNT_CAP
from webhooks.missing_keys import BEGINNING
from webhooks.models import db

Row: TypeAlias = RowMapping

BACKLOG_CAP = 1_000
DEAD_SAMPLE = 500
WORKERS_SHOWN = 50
ATTEMPTS_SHOWN = 50
ENDPOINTS_OFFERED = 200

# The oldest delivery that has not been tried yet and may be: one index probe a lane, as
# the order of ids is not an index of the pending rows. Retries keep their old id and
# would look like a stall.
OVERVIEW = """
WITH RECURSIVE waiting AS (
    (SELECT shard, endpoint_id, id FROM webhooks.deliveries_queue
     WHERE status = 'pending' AND attempts = 0
     ORDER BY shard, endpoint_id, priority, id LIMIT 1)
    UNION ALL
    SELECT next.* FROM waiting w CROSS JOIN LATERAL (
        SELECT q.shard, q.endpoint_id, q.id FROM webhooks.deliveries_queue q
        WHERE q.status = 'pending' AND q.attempts = 0
          AND (q.shard, q.endpoint_id) > (w.shard, w.endpoint_id)
        ORDER BY q.shard, q.endpoint_id, q.priority, q.id LIMIT 1) next
)
SELECT
    (SELECT count(*) FROM (SELECT FROM webhooks.deliveries_queue
        WHERE status = 'pending' LIMIT :cap) c) AS pending,
    (SELECT count(*) FROM (SELECT FROM webhooks.deliveries_queue
        WHERE status = 'in_flight' LIMIT :cap) c) AS in_flight,
    (SELECT count(*) FROM (SELECT FROM webhooks.deliveries_queue
        WHERE status = 'scheduled' LIMIT :cap) c) AS scheduled,
    (SELECT count(*) FROM (SELECT FROM webhooks.deliveries
        WHERE status = 'delivered' AND finished_at >= :midnight
          AND finished_at < 'infinity' LIMIT :cap) c) AS delivered,
    (SELECT count(*) FROM (SELECT FROM webhooks.deliveries
        WHERE status = 'dead_lettered' AND finished_at < 'infinity' LIMIT :cap) c)
        AS dead_lettered,
    (SELECT due_at FROM webhooks.deliveries_queue
     WHERE status = 'scheduled' ORDER BY due_at LIMIT 1) AS next_due,
    (SELECT webhooks.uuid7_time(w.id)
     FROM (SELECT * FROM waiting LIMIT 2000) w
     JOIN webhooks.lanes l ON l.shard = w.shard AND l.endpoint_id = w.endpoint_id
     WHERE l.open_at <= now() ORDER BY w.id LIMIT 1) AS oldest_pending,
    EXISTS (SELECT FROM webhooks.endpoints WHERE deleted_at IS NULL) AS has_endpoints
"""

WORKERS = """
SELECT id, host, pid, version, started_at, seen_at, in_flight, capacity,
       seen_at < now() - lease AS lost
FROM webhooks.workers ORDER BY seen_at DESC LIMIT :rows
"""

# What endpoint_states.py reads of an endpoint and its lane: {state} below.
STATE = (
    "e.status, e.status_reason, e.status_changed_at, e.rate_limit, e.rate_burst, "
    "l.failures, l.failing_since, l.failed_at, l.open_at, l.rate_open_at, l.broken_s, "
    "l.closed_reason, l.last_error, l.last_status_code, l.last_delivery_id, l.warned_at, "
    "now() AS database_now"
)

# Each row holds how many there are of each state, up to the cap, by what closes their lane.
ATTENTION = """
WITH troubled AS MATERIALIZED (
    SELECT e.id, l.shard, l.failures,
           CASE WHEN e.status <> 'active' THEN e.status
                WHEN l.broken_s > 0 THEN 'broken'
                WHEN l.open_at > now() THEN 'throttled' ELSE 'failing' END AS state
    FROM webhooks.endpoints e
    JOIN webhooks.lanes l ON l.shard = webhooks.shard_of(e.tenant_id) AND l.endpoint_id = e.id
    WHERE e.deleted_at IS NULL
      AND (e.status <> 'active' OR l.failures >= 3 OR l.broken_s > 0 OR l.open_at > now())
    LIMIT :cap
)
SELECT e.id, e.url, e.description, {state},
       (SELECT jsonb_object_agg(c.state, c.n)
        FROM (SELECT state, count(*) AS n FROM troubled GROUP BY state) c) AS states
FROM (SELECT *, array_position('{{disabled,broken,paused}}', state) AS rank FROM troubled
      ORDER BY rank, failures DESC, id LIMIT 6) t
JOIN webhooks.endpoints e ON e.id = t.id
JOIN webhooks.lanes l ON l.shard = t.shard AND l.endpoint_id = t.id
ORDER BY t.rank, t.failures DESC, t.id
"""

DEAD_LETTERS = """
SELECT d.endpoint_id, e.url, e.deleted_at, d.error_class, d.status_code,
       count(*) AS deliveries, max(d.finished_at) AS last
FROM (SELECT endpoint_id, error_class, status_code, finished_at FROM webhooks.deliveries
      WHERE status = 'dead_lettered' AND finished_at < 'infinity'
      ORDER BY finished_at DESC, id DESC LIMIT :sample) d
LEFT JOIN webhooks.endpoints e ON e.id = d.endpoint_id
GROUP BY d.endpoint_id, e.url, e.deleted_at, d.error_class, d.status_code
ORDER BY deliveries DESC, last DESC LIMIT 5
"""

# Per endpoint: its backlog up to a cap, and how its latest finished deliveries ended.
ENDPOINTS = """
SELECT e.id, e.url, e.description, e.created_at, t.key AS tenant, {state},
       (SELECT array_agg(s.pattern ORDER BY s.pattern) FROM webhooks.subscriptions s
        WHERE s.endpoint_id = e.id) AS patterns,
       (SELECT count(*) FROM (SELECT FROM webhooks.deliveries_queue q
           WHERE q.shard = webhooks.shard_of(e.tenant_id) AND q.endpoint_id = e.id
             AND q.status = 'pending' LIMIT :backlog_cap) c) AS backlog,
       (SELECT array_agg(r.status ORDER BY r.finished_at, r.id)
        FROM (SELECT d.status, d.finished_at, d.id FROM webhooks.deliveries d
              WHERE d.endpoint_id = e.id AND d.finished_at < 'infinity'
              ORDER BY d.finished_at DESC, d.id DESC LIMIT 12) r) AS results
FROM (SELECT * FROM webhooks.endpoints
      WHERE deleted_at IS NULL AND (CAST(:before AS uuid) IS NULL OR id < :before)
      ORDER BY id DESC LIMIT :rows) e
JOIN webhooks.tenants t ON t.id = e.tenant_id
LEFT JOIN webhooks.lanes l
  ON l.shard = webhooks.shard_of(e.tenant_id) AND l.endpoint_id = e.id
ORDER BY e.id DESC
"""

ENDPOINT = """
SELECT e.id, e.url, e.description, e.created_at, e.timeout_s, e.max_in_flight, e.retry_policy,
       e.schemes, e.proven_url, e.status_evidence, t.key AS tenant,
       t.retry_policy AS tenant_retry_policy, {state},
       e.headers AS sealed_headers,
       (SELECT array_agg(s.kind || ' ' || left(s.ciphertext, {beginning}))
        FROM webhooks.signing_secrets s
        WHERE s.endpoint_id = e.id AND s.valid_until > now()) AS signed_with,
       (SELECT array_agg(s.pattern ORDER BY s.pattern) FROM webhooks.subscriptions s
        WHERE s.endpoint_id = e.id) AS patterns,
       (SELECT count(*) FROM (SELECT FROM webhooks.deliveries_queue q
           WHERE q.shard = webhooks.shard_of(e.tenant_id) AND q.endpoint_id = e.id
             AND q.status = 'pending' LIMIT :backlog_cap) c) AS pending,
       (SELECT count(*) FROM (SELECT FROM webhooks.deliveries_queue q
           WHERE q.shard = webhooks.shard_of(e.tenant_id) AND q.endpoint_id = e.id
             AND q.status = 'in_flight' LIMIT :backlog_cap) c) AS in_flight,
       (SELECT count(*) FROM (SELECT FROM webhooks.deliveries_queue q
           WHERE q.endpoint_id = e.id AND q.status = 'scheduled' LIMIT :backlog_cap) c)
           AS scheduled
FROM webhooks.endpoints e
JOIN webhooks.tenants t ON t.id = e.tenant_id
LEFT JOIN webhooks.lanes l
  ON l.shard = webhooks.shard_of(e.tenant_id) AND l.endpoint_id = e.id
WHERE e.id = :id AND e.deleted_at IS NULL
"""

OFFERED = """
(SELECT id, url, description FROM webhooks.endpoints WHERE deleted_at IS NULL
 ORDER BY id DESC LIMIT :rows)
UNION
SELECT id, url, description FROM webhooks.endpoints WHERE id = :chosen
ORDER BY url, id
"""

# The queue's partition first: without the literal every partition would be looked into.
DELIVERY = """
SELECT d.*, t.key AS tenant, e.url, e.status AS endpoint_status,
       e.status_reason AS endpoint_reason, e.deleted_at AS endpoint_deleted_at,
       e.retry_policy, t.retry_policy AS tenant_retry_policy, l.open_at, l.closed_reason,
       l.broken_s, now() AS database_now,
       substring(v.payload FOR :shown) AS payload, octet_length(v.payload) AS payload_size
FROM webhooks.deliveries d
LEFT JOIN webhooks.tenants t ON t.id = d.tenant_id
LEFT JOIN webhooks.endpoints e ON e.id = d.endpoint_id
LEFT JOIN webhooks.lanes l ON l.shard = d.shard AND l.endpoint_id = d.endpoint_id
LEFT JOIN webhooks.events v ON v.id = d.event_id AND v.shard = d.shard
WHERE d.id = :id AND {where}
"""
LIVE = DELIVERY.format(where="d.finished_at = 'infinity'")
FINISHED = DELIVERY.format(
    where="d.finished_at < 'infinity' "
    "AND d.finished_at >= webhooks.uuid7_time(:id) - interval '1 day'"
)

ATTEMPTS = """
SELECT number, trigger, outcome, error_class, detail, status_code, url, peer,
       request_headers, response_headers, truncated, dns_ms, connect_ms, tls_ms,
       first_byte_ms, total_ms, worker_id, started_at, recorded_at,
       substring(response_body FOR :shown) AS body, octet_length(response_body) AS body_size
FROM webhooks.attempts
WHERE delivery_id = :id AND recorded_at >= CAST(:since AS timestamptz) - interval '1 day'
  AND number < :below
ORDER BY number DESC, recorded_at DESC LIMIT :rows
"""

ATTEMPT_BODY = """
SELECT response_body FROM webhooks.attempts
WHERE delivery_id = :id AND number = :number ORDER BY recorded_at DESC LIMIT 1
"""

EVENT = """
SELECT v.id, v.type, v.created_at, t.key AS tenant,
       substring(v.payload FOR :shown) AS payload, octet_length(v.payload) AS payload_size
FROM webhooks.events v LEFT JOIN webhooks.tenants t ON t.id = v.tenant_id
WHERE v.id = :id
"""


def overview(midnight: datetime) -> Row:
    """The front page's counts; each stops one above its cap."""
    return _all(OVERVIEW, cap=COUNT_CAP + 1, midnight=midnight)[0]


def workers() -> Sequence[Row]:
    """The workers, the one seen last first."""
    return _all(WORKERS, rows=WORKERS_SHOWN)


def attention() -> Sequence[Row]:
    """Endpoints that a person should look at; each row counts all of them by state."""
    return _all(ATTENTION.format(state=STATE), cap=COUNT_CAP + 1)


def dead_letters() -> Sequence[Row]:
    """The newest dead letters by endpoint and error."""
    return _all(DEAD_LETTERS, sample=DEAD_SAMPLE)


def endpoints(before: UUID | None, rows: int) -> Sequence[Row]:
    """Endpoints, newest first, from before an id on."""
    return _all(
        ENDPOINTS.format(state=STATE), before=before, rows=rows, backlog_cap=BACKLOG_CAP + 1
    )


def endpoint(endpoint_id: UUID) -> Row | None:
    """One endpoint with its lane and what waits for it; None when it is deleted."""
    statement = ENDPOINT.format(state=STATE, beginning=BEGINNING)
    return _one(statement, id=endpoint_id, backlog_cap=BACKLOG_CAP + 1)


def offered_endpoints(chosen: UUID | None) -> Sequence[Row]:
    """What a filter offers: the newest endpoints, and the one chosen, deleted or not."""
    return _all(OFFERED, rows=ENDPOINTS_OFFERED, chosen=chosen)


def delivery(delivery_id: UUID) -> Row | None:
    """One delivery with its endpoint and the first bytes of its payload."""
    for statement in (LIVE, FINISHED, LIVE):  # it may move between two looks
        if row := _one(statement, id=delivery_id, shown=SHOWN_BYTES):
            return row
    return None


def attempts(delivery_id: UUID, since: datetime, below: int | None) -> Sequence[Row]:
    """A delivery's attempts, the last one first, with the first bytes of each body."""
    values = {"since": since, "below": below or 2**31 - 1, "shown": SHOWN_BYTES}
    return _all(ATTEMPTS, id=delivery_id, rows=ATTEMPTS_SHOWN + 1, **values)


def attempt_body(delivery_id: UUID, number: int) -> bytes | None:
    """A response's body as far as it was kept; None when there is none."""
    row = _one(ATTEMPT_BODY, id=delivery_id, number=number)
    return row["response_body"] if row else None


def event(event_id: UUID, *, whole: bool = False) -> Row | None:
    """An event with its payload, or with the payload's first bytes."""
    return _one(EVENT, id=event_id, shown=2**31 - 1 if whole else SHOWN_BYTES)


def _all(statement: str, **values: Any) -> Sequence[Row]:
    return db.session.execute(text(statement), values).mappings().all()


def _one(statement: str, **values: Any) -> Row | None:
    return db.session.execute(text(statement), values).mappings().first()
