"""The database's schema: upgrade, downgrade and check, by Flask-Migrate.

Needs the database alone: no keyring, so that a release step runs without secrets.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from flask_migrate import Migrate
from psycopg.errors import DeadlockDetected, LockNotAvailable
from sqlalchemy import Connection, text

from webhooks.database_app import open_app
from webhooks.files import find
from webhooks.models import db
from webhooks.schema_check import SchemaError as SchemaError
from webhooks.schema_check import compare as compare_revisions

# A migration gives way: whoever waits behind its lock waits for 3 s at most (see env.py).
IN_THE_WAY = (DeadlockDetected, LockNotAvailable)
TRIES = 20

log = logging.getLogger(__name__)


def upgrade(database_url: str) -> str:
    """Bring the database to this version's schema; answers its revision.

    Safe to run from several processes at once. Raises SchemaError, DatabaseTooOld, or
    psycopg.OperationalError when the server is away.
    """
    with _migrator(database_url) as config:
        _refuse_newer(config)
        _run(command.upgrade, config, "head")
        return _revision() or ""


def downgrade(database_url: str, revision: str = "-1") -> str:
    """Go back one migration, or to ``revision``; answers where it is then, "" for none."""
    with _migrator(database_url) as config:
        if _revision() is None:
            raise SchemaError("the database has no schema of ours; there is nothing to downgrade")
        _run(command.downgrade, config, revision)
        return _revision() or ""


def check(database_url: str) -> str:
    """Answer the revision; SchemaError if it is not this version's or a model does not fit."""
    with _migrator(database_url) as config:
        _refuse_newer(config)
        wanted = _head(config)
        compare_revisions(_revision(), wanted)
        with db.engine.begin() as connection:
            differences = compare(connection)
        if differences:
            raise SchemaError(f"the database does not fit the models: {'; '.join(differences)}")
        return wanted


def compare(connection: Connection) -> list[str]:
    """What the models name and the database lacks or has otherwise; it may have more."""
    # A role named like our schema has it on its search path, and PostgreSQL then
    # leaves the schema's name out of what it tells.
    connection.execute(text("SET LOCAL search_path = public"))
    connection.dialect.default_schema_name = "public"
    context = MigrationContext.configure(
        connection,
        opts={
            "include_schemas": True,
            "include_name": _in_our_schema,
            "include_object": _named_by_models,
        },
    )
    return [_brief(difference) for difference in compare_metadata(context, db.metadata)]


def _in_our_schema(name: str | None, kind: str, _parents: Any) -> bool:
    if kind == "schema":
        return name == db.metadata.schema
    return kind != "table" or f"{db.metadata.schema}.{name}" in db.metadata.tables


def _named_by_models(_object: Any, _name: Any, _kind: str, reflected: bool, model: Any) -> bool:
    return not reflected or model is not None


def _brief(difference: Any) -> str:
    if isinstance(difference, list):
        return "; ".join(map(_brief, difference))
    parts = (part for part in difference if not isinstance(part, dict | bool | None))
    return " ".join(map(str, parts))


@contextmanager
def _migrator(database_url: str) -> Iterator[Config]:
    with open_app(database_url, "schema") as app:
        Migrate(app, db, directory=str(find("migrations")))
        yield app.extensions["migrate"].migrate.get_config()


def _run(action: Any, config: Config, revision: str) -> None:
    """Run a migration, and again when it waited too long for those that work meanwhile."""
    for left in reversed(range(TRIES)):
        try:
            action(config, revision)
            return
        except CommandError as error:
            raise SchemaError(f"revision {revision}: {error}") from error
        except IN_THE_WAY as error:
            if not left:
                raise
            log.warning("others are at work, trying again: %s", str(error).partition("\n")[0])
            time.sleep(random.uniform(0.1, 0.5))  # noqa: S311 - jitter, not a secret


def _refuse_newer(config: Config) -> None:
    found = _revision()
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found and found not in known:
        raise SchemaError(
            f"the database is at revision {found}, which this version does not know; "
            "install the newer version that made it"
        )


def _revision() -> str | None:
    with db.engine.connect() as connection:
        table = connection.scalar(text("SELECT to_regclass('webhooks.alembic_version')::text"))
        if table is None:
            return None
        found: str | None = connection.scalar(
            text("SELECT version_num FROM webhooks.alembic_version")
        )
    return found


def _head(config: Config) -> str:
    head = ScriptDirectory.from_config(config).get_current_head()
    if head is None:
        raise SchemaError("this installation has no migrations; install it again")
    return head
