"""Day partitions, made ahead of time by migrations, every worker and the scheduler."""

from __future__ import annotations

import psycopg

from webhooks.db import transaction

DAYS_AHEAD = 14


def make_partitions(connection: psycopg.Connection) -> int:
    """Make those of today and the two weeks ahead that are missing; answers how many."""
    with transaction(connection, "statement_timeout = '60s'", "lock_timeout = '10s'"):
        row = connection.execute("SELECT webhooks.make_partitions(%s)", [DAYS_AHEAD]).fetchone()
    return int(row[0]) if row else 0
