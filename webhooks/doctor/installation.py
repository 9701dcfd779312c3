"""The installation: schema, keyring, partitions ahead, maintenance."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
from sqlalchemy.exc import DBAPIError

from webhooks import scheduler
from webhooks import schema as schemas
from webhooks.db import transaction
from webhooks.doctor.finding import Finding, Level, span
from webhooks.keyring_check import check_keyring, find_keyring
from webhooks.partitions import DAYS_AHEAD
from webhooks.schema import SchemaError
from webhooks.secrets import KeyringError
from webhooks.settings import Settings

FEW_DAYS = 7
TOO_FEW_DAYS = 3

# The days after today that each table has a partition for, without a gap; -1: none for today.
PARTITIONS = """
SELECT parent, coalesce(min(n) FILTER (WHERE i.inhrelid IS NULL), max(n) + 1) - 1
FROM unnest(ARRAY['events', 'deliveries', 'attempts']) AS parent,
     generate_series(0, %s) AS n
LEFT JOIN LATERAL (
    SELECT inhrelid FROM pg_inherits
    WHERE inhrelid = to_regclass(format('webhooks.%%s_%%s', parent,
        to_char((clock_timestamp() AT TIME ZONE 'UTC')::date + n, 'YYYYMMDD')))
      AND NOT inhdetachpending) i ON true
GROUP BY parent ORDER BY parent
"""
LEASES = """
SELECT job, date_part('epoch', clock_timestamp() - leased_until) FROM webhooks.job_leases
"""


def schema(database_url: str) -> Finding:
    """Whether the tables are this version's."""
    try:
        return Finding("schema", Level.OK, f"it is at revision {schemas.check(database_url)}")
    except SchemaError as error:
        return Finding("schema", Level.FAIL, str(error), "run `webhooks db upgrade`")
    except DBAPIError as error:
        what = f"it cannot be read: {' '.join(str(error.orig).split())}"
        return Finding("schema", Level.FAIL, what, "run it as the role that owns the schema")


def keyring(settings: Settings) -> Finding:
    """Whether the secrets in the database can be decrypted."""
    try:
        check_keyring(settings.database_url, find_keyring(settings))
    except KeyringError as error:
        remedy = "give WEBHOOKS_KEYRING (or WEBHOOKS_KEYRING_FILE) as the workers have it"
        return Finding("keyring", Level.FAIL, str(error), remedy)
    except psycopg.errors.InsufficientPrivilege:
        what = "this role may not read the secrets"
        remedy = "run it as the role that owns the schema"
        return Finding("keyring", Level.WARN, what, remedy)
    return Finding("keyring", Level.OK, "it decrypts the stored secrets")


def partitions(connection: psycopg.Connection) -> Iterator[Finding]:
    """Whether tomorrow's rows have a table to lie in."""
    with transaction(connection):
        ahead: dict[str, int] = dict(connection.execute(PARTITIONS, [DAYS_AHEAD]).fetchall())
    for parent, days in ahead.items():
        level = Level.WARN if days < FEW_DAYS else Level.OK
        level = Level.FAIL if days < TOO_FEW_DAYS else level
        there = f"{days} days ahead" if days >= 0 else "not even for today"
        remedy = "run a worker or `webhooks scheduler`, which make them; see their logs if they run"
        yield Finding(
            "partitions", level, f"{parent}: {there}", "" if level is Level.OK else remedy
        )


def jobs(connection: psycopg.Connection) -> Iterator[Finding]:
    """Whether each maintenance job ran when it was due: a lease ends when the next run may."""
    with transaction(connection):
        over_s: dict[str, float] = dict(connection.execute(LEASES).fetchall())
    late = []
    for job in scheduler.JOBS:
        if job.name not in over_s:
            late.append(f"{job.name} never ran")
        elif over_s[job.name] > job.seconds:
            late.append(f"{job.name} last ran {span(over_s[job.name] + job.seconds)} ago")
    if late:
        remedy = "run `webhooks scheduler` beside the workers; see its log if it runs"
        yield Finding("scheduler", Level.WARN, "; ".join(late), remedy)
    else:
        yield Finding("scheduler", Level.OK, f"its {len(scheduler.JOBS)} jobs ran when due")
