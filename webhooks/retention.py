"""Retention: history goes by whole days, each table's partitions after days of its own.

A day of events is retired first: from then on nothing of it is replayed. What still waits is
never dropped: a day goes once the queue no longer refers to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import psycopg

from webhooks.db import transaction
from webhooks.settings import Settings

EVENTS = "events"
# Longer than any transaction that replays: those that began before a day was retired are over.
RETIRED_FOR = timedelta(minutes=5)
CHUNK = 1_000

# Detached ones too, which an interrupted run has left behind.
PARTITIONS = """
SELECT c.relname, i.inhrelid IS NOT NULL, coalesce(i.inhdetachpending, false),
       pg_total_relation_size(c.oid)
FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
WHERE c.relnamespace = 'webhooks'::regnamespace AND c.relkind = 'r'
  AND c.relname ~ '^(events|deliveries|attempts)_[0-9]{8}$'
ORDER BY c.relname
"""

RETIRE = "INSERT INTO webhooks.retired_days (day) VALUES (%s) ON CONFLICT DO NOTHING"
RETIRED = """
SELECT day FROM webhooks.retired_days
WHERE retired_at <= clock_timestamp() - %s::interval
"""
FORGET = "DELETE FROM webhooks.retired_days WHERE day = %s"

IN_USE = """
SELECT EXISTS (
    SELECT FROM webhooks.deliveries_queue
    WHERE event_id >= webhooks.uuid7_floor(%(day)s::timestamp AT TIME ZONE 'UTC')
      AND event_id < webhooks.uuid7_floor((%(day)s::date + 1)::timestamp AT TIME ZONE 'UTC'))
OR EXISTS (
    SELECT FROM webhooks.fanouts
    WHERE event_id < webhooks.uuid7_floor((%(day)s::date + 1)::timestamp AT TIME ZONE 'UTC'))
"""

AUDIT = """
DELETE FROM webhooks.audit_log WHERE id IN (
    SELECT id FROM webhooks.audit_log
    WHERE id < webhooks.uuid7_floor(now() - make_interval(days => %s)) ORDER BY id LIMIT %s)
"""

# Minutes for two days, hours as long as deliveries, days and groups as long as the audit log.
COUNTS = """
DELETE FROM webhooks.delivery_counts WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM webhooks.delivery_counts
    WHERE width = %s AND at < now() - make_interval(days => %s) LIMIT %s))
"""
MINUTES_DAYS = 2
GROUPS = """
DELETE FROM webhooks.failure_groups WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM webhooks.failure_groups
    WHERE last_at < now() - make_interval(days => %s) LIMIT %s))
"""


@dataclass(frozen=True, slots=True)
class Partition:
    """One day of a table. ``attached``: it is still read; ``pending``: its detaching broke off."""

    table: str
    day: date
    attached: bool
    pending: bool
    size_bytes: int

    @property
    def name(self) -> str:
        return f"{self.table}_{self.day:%Y%m%d}"


def days(settings: Settings) -> Mapping[str, int]:
    """For how many whole days each table's partitions are kept."""
    return {
        EVENTS: settings.keep_events_days,
        "deliveries": settings.keep_deliveries_days,
        "attempts": settings.keep_attempts_days,
    }


def plan(
    connection: psycopg.Connection, settings: Settings, today: date | None = None
) -> list[tuple[Partition, str | None]]:
    """What is due, oldest first, and why it cannot go yet (None: it can)."""
    keep, today = days(settings), today or _today(connection)
    due = [
        each for each in _partitions(connection)
        if not each.attached or each.day < today - timedelta(days=keep[each.table])
    ]  # fmt: skip
    return [(each, _obstacle(connection, each)) for each in due]


def drop_due(connection: psycopg.Connection, settings: Settings) -> int:
    """Drop what is due and free to go; answers how many partitions went.

    ``connection`` is in autocommit mode: detaching concurrently has transactions of its own.
    It waits for whoever reads the day, and what it cannot finish the next run does.
    """
    due = plan(connection, settings)
    for partition, _ in due:
        if partition.table == EVENTS and partition.attached:
            connection.execute(RETIRE, [partition.day])
    gone = 0
    for partition in _ripe(connection, due):
        _drop(connection, partition)
        gone += 1
    return gone


def drop_audit(connection: psycopg.Connection, settings: Settings) -> int:
    """Delete audit entries past their days, in chunks; answers how many."""
    return _delete(connection, AUDIT, settings.keep_audit_days)


def drop_counts(connection: psycopg.Connection, settings: Settings) -> int:
    """Delete roll-ups past their days, each width's own; answers how many rows."""
    widths = {1: MINUTES_DAYS, 60: settings.keep_deliveries_days, 1440: settings.keep_audit_days}
    counts = sum(_delete(connection, COUNTS, width, days) for width, days in widths.items())
    return counts + _delete(connection, GROUPS, settings.keep_audit_days)


def _delete(connection: psycopg.Connection, statement: str, *values: int) -> int:
    """Chunk by chunk, each a transaction."""
    total = 0
    while True:
        with transaction(connection, "webhooks.retention = 'on'"):
            deleted = connection.execute(statement, [*values, CHUNK]).rowcount
        total += deleted
        if deleted < CHUNK:
            return total


def _today(connection: psycopg.Connection) -> date:
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    now: datetime = row[0] if row else datetime.now(UTC)
    return now.astimezone(UTC).date()


def _partitions(connection: psycopg.Connection) -> Iterator[Partition]:
    for name, attached, pending, size in connection.execute(PARTITIONS).fetchall():
        table, day = re.fullmatch(r"(\w+)_(\d{8})", name).groups()  # type: ignore[union-attr]
        at = datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC).date()
        yield Partition(table, at, attached, pending, size)


def _obstacle(connection: psycopg.Connection, partition: Partition) -> str | None:
    if partition.table != EVENTS or not partition.attached or partition.pending:
        return None
    row = connection.execute(IN_USE, {"day": partition.day}).fetchone()
    return "deliveries of that day have not finished" if row and row[0] else None


def _ripe(
    connection: psycopg.Connection, due: list[tuple[Partition, str | None]]
) -> Iterator[Partition]:
    """What can go now: of events, days that were retired some time ago and are still free."""
    retired = {row[0] for row in connection.execute(RETIRED, [RETIRED_FOR])}
    for partition, _ in due:
        waits = partition.table == EVENTS and partition.attached and not partition.pending
        if waits and partition.day not in retired:
            continue
        if _obstacle(connection, partition) is None:
            yield partition


def _drop(connection: psycopg.Connection, partition: Partition) -> None:
    if partition.attached:
        how = "FINALIZE" if partition.pending else "CONCURRENTLY"
        connection.execute(
            f"ALTER TABLE webhooks.{partition.table} "
            f"DETACH PARTITION webhooks.{partition.name} {how}"
        )
    connection.execute(f"DROP TABLE webhooks.{partition.name}")
    if partition.table == EVENTS:
        connection.execute(FORGET, [partition.day])
