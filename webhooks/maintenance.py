"""Maintenance: each job is one idempotent function that answers a count."""

from __future__ import annotations

import psycopg

from webhooks import deliveries
from webhooks.db import transaction
from webhooks.settings import Settings
from webhooks.users import IDLE, LONGEST_SESSION

CHUNK = 1_000

EXPIRE_KEYS = """
DELETE FROM webhooks.idempotency_keys
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM webhooks.idempotency_keys WHERE expires_at <= now()
    ORDER BY expires_at LIMIT %s FOR UPDATE SKIP LOCKED))
"""

EXPIRE_SESSIONS = """
DELETE FROM webhooks.sessions
WHERE seen_at < now() - %s OR created_at < now() - %s
"""


def expire_idempotency_keys(connection: psycopg.Connection) -> int:
    """Delete idempotency keys past their day, in chunks."""
    total = 0
    while True:
        with transaction(connection):
            expired = connection.execute(EXPIRE_KEYS, [CHUNK]).rowcount
        total += expired
        if expired < CHUNK:
            return total


def expire_sessions(connection: psycopg.Connection) -> int:
    """Delete sessions that are idle or too old; they are refused even before."""
    with transaction(connection):
        return connection.execute(EXPIRE_SESSIONS, [IDLE, LONGEST_SESSION]).rowcount


def expire_deliveries(connection: psycopg.Connection, settings: Settings) -> int:
    """Give up what could not be delivered for too long."""
    return deliveries.expire(connection, settings.max_age_days, settings.keep_events_days)
