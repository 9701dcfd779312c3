"""The server: version, clock, durability, limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg

from webhooks.db import transaction
from webhooks.doctor.finding import Finding, Level, span

CLOCK_WARN_S = 30.0
# Receivers that follow Standard Webhooks refuse a signature of another five minutes.
CLOCK_FAIL_S = 300.0
LEAST_LOCKS = 256
USED_WARN = 0.8
USED_FAIL = 0.95

NOW = "SELECT date_part('epoch', clock_timestamp())"
SETTINGS = "SELECT name, setting FROM pg_settings WHERE name = ANY (%s)"
CONNECTIONS = """
SELECT count(*), current_setting('max_connections')::int
                 - current_setting('superuser_reserved_connections')::int
FROM pg_stat_activity WHERE backend_type = 'client backend'
"""


def version(connection: psycopg.Connection) -> Finding:
    """Which server answers; one that is too old has been refused before."""
    number = connection.info.server_version
    what = f"PostgreSQL {number // 10_000}.{number % 10_000} answers"
    return Finding("database", Level.OK, what)


def clock(
    connection: psycopg.Connection, now: Callable[[], float] = time.time
) -> Iterator[Finding]:
    """The database's clock decides what is due, this machine's is signed: they must agree."""
    asked = now()
    (theirs,) = _row(connection, NOW)
    apart = abs(theirs - (asked + now()) / 2)
    what = f"the database's and this machine's are {span(apart)} apart"
    level = Level.WARN if apart > CLOCK_WARN_S else Level.OK
    level = Level.FAIL if apart > CLOCK_FAIL_S else level
    remedy = "run a time service (NTP) on both; receivers refuse signatures 5 minutes off"
    yield Finding("clock", level, what, "" if level is Level.OK else remedy)


def durability(connection: psycopg.Connection) -> Iterator[Finding]:
    """A 202 promises that the event survives a crash; these settings break that promise."""
    values = _settings(connection, "fsync", "full_page_writes", "synchronous_commit")
    for name in ("fsync", "full_page_writes"):
        if values[name] == "off":
            what = f"{name} is off: a crash of the machine can destroy the database"
            yield Finding("durability", Level.FAIL, what, f"set {name} = on and restart")
    if values["synchronous_commit"] == "off":
        what = "synchronous_commit is off: a crash loses events that were answered with 202"
        remedy = "set synchronous_commit = on for this database's roles"
        yield Finding("durability", Level.WARN, what, remedy)
    if "off" not in values.values():
        yield Finding("durability", Level.OK, "a commit is on disk before it is answered")


def limits(connection: psycopg.Connection) -> Iterator[Finding]:
    """Locks for some forty day partitions, and an end for transactions left open."""
    names = ("max_locks_per_transaction", "idle_in_transaction_session_timeout")
    values = {name: int(value) for name, value in _settings(connection, *names).items()}
    locks = values["max_locks_per_transaction"]
    what = f"max_locks_per_transaction is {locks}"
    if locks < LEAST_LOCKS:
        remedy = f"set it to {LEAST_LOCKS} or more and restart: each day's partition takes locks"
        yield Finding("locks", Level.WARN, what, remedy)
    else:
        yield Finding("locks", Level.OK, what)
    if values["idle_in_transaction_session_timeout"] == 0:
        what = "idle_in_transaction_session_timeout is 0: a forgotten transaction stays for ever"
        remedy = "set it to some minutes (ALTER DATABASE … SET …), so that vacuum is not held back"
        yield Finding("idle transactions", Level.WARN, what, remedy)
    else:
        ms = values["idle_in_transaction_session_timeout"]
        yield Finding("idle transactions", Level.OK, f"ended after {span(ms / 1000)}")


def connections(connection: psycopg.Connection) -> Iterator[Finding]:
    """Each web and worker process needs some; a full server refuses all."""
    used, most = _row(connection, CONNECTIONS)
    level = Level.WARN if used >= USED_WARN * most else Level.OK
    level = Level.FAIL if used >= USED_FAIL * most else level
    remedy = "raise max_connections, put PgBouncer in front, or run fewer processes"
    yield Finding(
        "connections", level, f"{used} of {most} are in use", "" if level is Level.OK else remedy
    )


def _settings(connection: psycopg.Connection, *names: str) -> dict[str, str]:
    with transaction(connection):
        # Ours set their own within a transaction; the server's and the role's are asked for.
        connection.execute("RESET idle_in_transaction_session_timeout")
        return dict(connection.execute(SETTINGS, [list(names)]).fetchall())


def _row(connection: psycopg.Connection, statement: str) -> tuple[Any, ...]:
    with transaction(connection):
        row = connection.execute(statement).fetchone()
    assert row is not None  # noqa: S101 - each answers one row
    return row
