"""The work: who delivers, what waits too long, what nobody holds, which endpoints are out."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg

from webhooks import backlog, deliveries, ids
from webhooks.db import INDEXES_ONLY, transaction
from webhooks.doctor.finding import Finding, Level, span

EXPIRES_WITHIN_DAYS = 3
LATE_BEAT_S = 15.0
LONG_WAIT_S = 60.0

WORKERS = """
SELECT date_part('epoch', clock_timestamp() - seen_at), clock_timestamp() - seen_at <= lease
FROM webhooks.workers
"""
STRAYS = """
SELECT count(*) FROM (
    SELECT FROM webhooks.deliveries_queue q
    WHERE q.status = 'in_flight'
      AND NOT EXISTS (SELECT FROM webhooks.workers w WHERE w.id = q.worker_id)
    LIMIT 10000) AS stray
"""
ENDPOINTS = """
SELECT count(*), count(*) FILTER (WHERE e.status = 'disabled'),
       count(*) FILTER (WHERE e.status = 'paused'), count(*) FILTER (WHERE l.broken_s > 0)
FROM webhooks.endpoints e
LEFT JOIN webhooks.lanes l ON l.shard = webhooks.shard_of(e.tenant_id) AND l.endpoint_id = e.id
WHERE e.deleted_at IS NULL
"""


def expiring(connection: psycopg.Connection, max_age_days: int) -> Finding:
    """What will be given up within three days, because it could not be delivered for so long."""
    with transaction(connection, *INDEXES_ONLY):
        soon = deliveries.expiring(connection, max_age_days - EXPIRES_WITHIN_DAYS)
    if not soon:
        return Finding("expiry", Level.OK, "nothing is about to expire")
    many = f"{soon}" if soon < deliveries.MOST_COUNTED else f"{soon} or more"
    return Finding(
        "expiry", Level.WARN,
        f"{many} deliveries expire within {EXPIRES_WITHIN_DAYS} days",
        "mend or resume their endpoints, or raise WEBHOOKS_MAX_AGE_DAYS",
    )  # fmt: skip


def live_workers(connection: psycopg.Connection) -> Iterator[Finding]:
    """Somebody must deliver, and say so every few seconds."""
    with transaction(connection):
        rows = connection.execute(WORKERS).fetchall()
    beats = [age_s for age_s, live in rows if live]
    if not beats:
        seen = f"; the last one was seen {span(min(row[0] for row in rows))} ago" if rows else ""
        remedy = "start some: gunicorn --config python:webhooks.worker webhooks.worker:application"
        yield Finding("workers", Level.FAIL, f"none is alive{seen}", remedy)
        return
    what = f"{len(beats)} alive, the last beats {span(min(beats))} to {span(max(beats))} ago"
    late = max(beats) > LATE_BEAT_S
    remedy = "see its log: it cannot reach the database, or gets no CPU; its lease will end"
    yield Finding("workers", Level.WARN if late else Level.OK, what, remedy if late else "")


def strays(connection: psycopg.Connection) -> Iterator[Finding]:
    """What is in flight must be in the hands of a worker that has a row."""
    with transaction(connection, *INDEXES_ONLY):
        row = connection.execute(STRAYS).fetchone()
    count = row[0] if row else 0
    if count:
        remedy = (
            "a live worker takes them back within seconds; if this stays, see the workers' logs"
        )
        what = f"{count} are in flight and no worker holds them"
        yield Finding("in flight", Level.WARN, what, remedy)
    else:
        yield Finding("in flight", Level.OK, "every delivery in flight has its worker")


def oldest_pending(
    connection: psycopg.Connection, longest_s: float = LONG_WAIT_S
) -> Iterator[Finding]:
    """New deliveries behind an open lane go out within seconds."""
    with transaction(connection, *INDEXES_ONLY):
        first = backlog.first_in_line(connection, None)
    if first is None:
        yield Finding("oldest pending", Level.OK, "nothing waits behind an open lane")
        return
    what = f"{span(first.seconds)}, for {ids.encode(ids.ENDPOINT, first.endpoint_id)}"
    late = first.seconds > longest_s
    remedy = (
        "if all wait, start more workers; if one endpoint does, it answers too slowly: raise its "
        "max_in_flight or mend its receiver"
    )
    yield Finding("oldest pending", Level.WARN if late else Level.OK, what, remedy if late else "")


def endpoints(connection: psycopg.Connection) -> Iterator[Finding]:
    """Those that the engine or a person took out: their events are held, not lost."""
    with transaction(connection):
        row = connection.execute(ENDPOINTS).fetchone()
    count, disabled, paused, broken = row or (0, 0, 0, 0)
    what = f"{count}, of which {disabled} disabled, {paused} paused, {broken} with an open breaker"
    out = disabled + broken > 0
    remedy = "their pages show reason and last error; tell their owners, then resume or delete them"
    yield Finding("endpoints", Level.WARN if out else Level.OK, what, remedy if out else "")
