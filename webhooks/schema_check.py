"""Does the schema fit this version? Asked at start, by one cheap read.

Migrations only add for one version: what the version before still uses is removed in the
next. So processes that run go on while the schema moves one ahead of them; only a start is
refused.
"""

from __future__ import annotations

import logging

import psycopg

from webhooks.db import connect, transaction
from webhooks.files import find

log = logging.getLogger(__name__)

REVISION = "SELECT version_num FROM webhooks.alembic_version"


class SchemaError(RuntimeError):
    """The schema is not what this version needs; the text says what to do."""


def needed() -> str:
    """The newest revision that this installation carries, for example 0004."""
    scripts = (find("migrations") / "versions").glob("[0-9]*.py")
    return max(script.name.partition("_")[0] for script in scripts)


def check_revision(database_url: str) -> None:
    """Raise SchemaError when the database is at an older or a newer revision.

    A database that is away is no reason to refuse a start.
    """
    try:
        with connect(database_url, "schema check") as connection, transaction(connection):
            row = connection.execute(REVISION).fetchone()
    except psycopg.errors.UndefinedTable:
        row = None
    except psycopg.Error as error:
        log.warning("the schema could not be checked: %s", " ".join(str(error).split()))
        return
    compare(row[0] if row else None, needed())


def compare(found: str | None, wanted: str) -> None:
    """Raise SchemaError unless they are the same; ``found`` None: there is no schema."""
    if found is None or found < wanted:
        raise SchemaError(
            f"the database is at revision {found or 'none'}, this version needs {wanted}; "
            "run `webhooks db upgrade`"
        )
    if found > wanted:
        raise SchemaError(
            f"the database is at revision {found}, which this version does not know; "
            "install the newer version that made it"
        )
