"""Doctor: whether an installation is healthy, and what to do where it is not.

It only reads, and each check stands alone: what one cannot ask is a finding, and the
others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg

from webhooks.db import DatabaseTooOld, connect
from webhooks.doctor import installation, server, vacuum, work
from webhooks.doctor.finding import Finding, Level, worst
from webhooks.settings import Settings

__all__ = ["Finding", "Level", "examine", "worst"]

Check = Callable[[psycopg.Connection], Iterator[Finding]]

# Of any database; the others need our tables.
SERVER: tuple[Check, ...] = (
    server.clock,
    server.durability,
    server.limits,
    server.connections,
    vacuum.held_back,
)
OURS: tuple[Check, ...] = (
    vacuum.dead_rows,
    installation.partitions,
    installation.jobs,
    work.live_workers,
    work.strays,
    work.oldest_pending,
    work.endpoints,
)


def examine(settings: Settings) -> list[Finding]:
    """Every check's findings on the database and the keyring of ``settings``."""
    try:
        with connect(settings.database_url, "doctor") as connection:
            return _examine(settings, connection)
    except DatabaseTooOld as error:
        return [Finding("database", Level.FAIL, str(error), "upgrade the server")]
    except psycopg.OperationalError as error:
        what = f"it cannot be reached: {_line(error)}"
        return [Finding("database", Level.FAIL, what, "start it, or correct DATABASE_URL")]


def _examine(settings: Settings, connection: psycopg.Connection) -> list[Finding]:
    def expiry(connection: psycopg.Connection) -> Iterator[Finding]:
        yield work.expiring(connection, settings.max_age_days)

    schema = installation.schema(settings.database_url)
    found = [server.version(connection), schema]
    checks = SERVER
    if schema.level is Level.OK:
        found.append(installation.keyring(settings))
        checks += (*OURS, expiry)
    for check in checks:
        found += _ask(check, connection)
    return found


def _ask(check: Check, connection: psycopg.Connection) -> list[Finding]:
    try:
        return list(check(connection))
    except psycopg.errors.InsufficientPrivilege as error:
        remedy = "run it as the role that owns the schema, or grant that role pg_monitor"
        return [Finding(_name(check), Level.WARN, f"it cannot be asked: {_line(error)}", remedy)]
    except psycopg.errors.QueryCanceled:
        what = "the database did not answer within 5 s"
        return [Finding(_name(check), Level.WARN, what, "see what keeps it busy, and ask again")]


def _name(check: Check) -> str:
    return check.__name__.replace("_", " ")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
