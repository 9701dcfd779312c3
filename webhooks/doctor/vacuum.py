"""Vacuum: what keeps it from removing dead rows, and how many there are.

A row that a transaction anywhere in the database might still see cannot be removed, and
every claim reads past it: claims get dearer as long as that transaction lasts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg

from webhooks.db import transaction
from webhooks.doctor.finding import Finding, Level, span

CHECK = "held-back vacuum"
LONGEST_S = 60.0
# Slots and standbys carry no time, only how many transactions have begun since.
MOST_TRANSACTIONS = 10_000
MOST_DEAD = 100_000
HOT = ["deliveries_queue", "lanes", "workers"]

# Those of other databases, and vacuum itself, hold nothing back here.
SESSIONS = """
SELECT pid, coalesce(nullif(application_name, ''), 'no name'), usename, state,
       date_part('epoch', clock_timestamp() - xact_start)
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
  AND usename IS NOT NULL AND backend_type IS DISTINCT FROM 'walsender'
  AND pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum)
  AND (xact_start IS NULL OR clock_timestamp() - xact_start >= make_interval(secs => %s))
ORDER BY xact_start
"""
PREPARED = """
SELECT gid, owner, date_part('epoch', clock_timestamp() - prepared) FROM pg_prepared_xacts
WHERE database = current_database()
  AND clock_timestamp() - prepared >= make_interval(secs => %s)
ORDER BY prepared
"""
SLOTS = """
SELECT slot_name, active, age(xmin) FROM pg_replication_slots
WHERE xmin IS NOT NULL AND age(xmin) >= %s
"""
STANDBYS = """
SELECT pid, coalesce(nullif(application_name, ''), 'no name'), age(backend_xmin)
FROM pg_stat_replication WHERE backend_xmin IS NOT NULL AND age(backend_xmin) >= %s
"""
DEAD_ROWS = """
SELECT relname, n_dead_tup, n_live_tup,
       date_part('epoch', clock_timestamp() - greatest(last_autovacuum, last_vacuum))
FROM pg_stat_user_tables WHERE schemaname = 'webhooks' AND relname = ANY (%s)
ORDER BY relname
"""


def held_back(
    connection: psycopg.Connection,
    longest_s: float = LONGEST_S,
    most_transactions: int = MOST_TRANSACTIONS,
) -> Iterator[Finding]:
    """Transactions, prepared ones, slots and standbys that keep dead rows alive."""
    with transaction(connection):
        sessions = connection.execute(SESSIONS, [longest_s]).fetchall()
        prepared = connection.execute(PREPARED, [longest_s]).fetchall()
        slots = connection.execute(SLOTS, [most_transactions]).fetchall()
        standbys = connection.execute(STANDBYS, [most_transactions]).fetchall()
    found = [
        *map(_session, sessions), *map(_prepared, prepared), *map(_slot, slots),
        *map(_standby, standbys),
    ]  # fmt: skip
    yield from found
    if not found:
        what = f"nothing holds it back for longer than {span(longest_s)}"
        yield Finding(CHECK, Level.OK, what)


def _session(row: tuple[Any, ...]) -> Finding:
    pid, name, role, state, age_s = row
    if age_s is None:
        what = f"the transaction of pid {pid} ({name}) is another role's, its age is hidden"
        return Finding(CHECK, Level.WARN, what, "grant this role pg_read_all_stats")
    what = f"pid {pid} ({name}, role {role}) is in a transaction for {span(age_s)}, {state}"
    remedy = (
        "end it where it was begun, or here: "
        f"SELECT pg_terminate_backend({pid}); give long reports a timeout or a standby"
    )
    return Finding(CHECK, Level.WARN, what, remedy)


def _prepared(row: tuple[Any, ...]) -> Finding:
    gid, owner, age_s = row
    what = f"the prepared transaction {gid!r} of {owner} waits for {span(age_s)}"
    remedy = "COMMIT PREPARED or ROLLBACK PREPARED it; no restart ends it"
    return Finding(CHECK, Level.WARN, what, remedy)


def _slot(row: tuple[Any, ...]) -> Finding:
    name, active, age = row
    state = "active" if active else "inactive"
    what = f"the {state} replication slot {name!r} needs rows of {age:,} transactions ago"
    remedy = f"let its standby catch up, or SELECT pg_drop_replication_slot({name!r})"
    return Finding(CHECK, Level.WARN, what, remedy)


def _standby(row: tuple[Any, ...]) -> Finding:
    pid, name, age = row
    what = f"a query on the standby {name} (pid {pid}) needs rows of {age:,} transactions ago"
    remedy = "end the query there, or switch hot_standby_feedback off"
    return Finding(CHECK, Level.WARN, what, remedy)


def dead_rows(connection: psycopg.Connection, most: int = MOST_DEAD) -> Iterator[Finding]:
    """The hot tables' dead rows, which every claim reads past."""
    with transaction(connection):
        rows = connection.execute(DEAD_ROWS, [HOT]).fetchall()
        setting = connection.execute("SHOW autovacuum").fetchone()
    if setting == ("off",):
        what = "autovacuum is off: the queue grows and slows down for ever"
        yield Finding("autovacuum", Level.FAIL, what, "set autovacuum = on")
    for name, dead, live, age_s in rows:
        when = f"vacuumed {span(age_s)} ago" if age_s is not None else "not vacuumed yet"
        what = f"{name} has {dead:,} dead rows beside {live:,} live ones, {when}"
        remedy = "see what holds vacuum back; else VACUUM it, and give autovacuum more workers"
        level = Level.WARN if dead > most else Level.OK
        yield Finding("dead rows", level, what, remedy if level is Level.WARN else "")
