"""The schema: up from empty, down, checked, by one or by several migrators at once."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import create_engine

from tests.pooler import pooled
from tests.support import in_database
from webhooks import schema
from webhooks.db import DatabaseTooOld, connect, sqlalchemy_url
from webhooks.schema_check import needed

MIGRATORS = 3

TABLES = """
SELECT table_name FROM information_schema.tables
WHERE table_schema = 'webhooks' AND table_name !~ '_[0-9]{8}$' ORDER BY 1
"""
# What is in the schema, each object once: a dump without the time of day in it.
EVERYTHING = """
SELECT pg_describe_object(classid, objid, objsubid) FROM pg_depend
WHERE refclassid = 'pg_namespace'::regclass AND refobjid = 'webhooks'::regnamespace
ORDER BY 1
"""

_numbers = itertools.count()


@pytest.fixture(params=["server_url", "debian_url"])
def empty_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database without our schema, on each version of PostgreSQL."""
    server: str = request.getfixturevalue(request.param)
    name = f"webhooks_empty_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield in_database(server, name)
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def pooled_url(empty_url: str) -> Iterator[str]:
    """The same database through PgBouncer in transaction mode, with two connections."""
    with pooled(empty_url, connections=2) as url:
        yield url


def column(url: str, query: str) -> list[Any]:
    """The first column of what a query answers."""
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute(query.encode()).fetchall()]


def test_upgrade_check_and_downgrade(empty_url: str) -> None:
    """From empty to this version and back; a second upgrade finds nothing to do."""
    with pytest.raises(schema.SchemaError, match="webhooks db upgrade"):
        schema.check(empty_url)

    revision = schema.upgrade(empty_url)
    assert {"tenants", "endpoints", "events", "deliveries"} <= set(column(empty_url, TABLES))
    before = column(empty_url, EVERYTHING)
    assert schema.upgrade(empty_url) == revision
    assert column(empty_url, EVERYTHING) == before
    assert schema.check(empty_url) == revision

    schema.downgrade(empty_url, "base")
    assert column(empty_url, TABLES) == ["alembic_version"]
    with pytest.raises(schema.SchemaError, match="nothing to downgrade"):
        schema.downgrade(empty_url)


def test_every_migration_can_be_undone(empty_url: str) -> None:
    """Down one and up again gives the same schema."""
    schema.upgrade(empty_url)
    before = column(empty_url, EVERYTHING)

    schema.downgrade(empty_url)
    schema.upgrade(empty_url)

    assert column(empty_url, EVERYTHING) == before


def test_several_migrators_at_once(empty_url: str) -> None:
    """Three processes on an empty, then on a migrated database: all end well (W182)."""
    migrate_at_once(empty_url)
    migrate_at_once(empty_url)

    (revision,) = column(empty_url, "SELECT version_num FROM webhooks.alembic_version")
    assert schema.check(empty_url) == revision


def test_several_migrators_through_a_pooler(pooled_url: str, empty_url: str) -> None:
    """A pooler in transaction mode gives each transaction another connection (W182)."""
    for _ in range(2):
        migrate_at_once(pooled_url)
        schema.downgrade(pooled_url, "base")

    held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
    assert column(empty_url, held) == [0]


def migrate_at_once(url: str) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "webhooks", "db", "upgrade"],
            env={**os.environ, "DATABASE_URL": url},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(MIGRATORS)
    ]
    outputs = [process.communicate(timeout=60)[0] for process in started]
    assert [process.returncode for process in started] == [0] * MIGRATORS, outputs


def test_models_fit_the_database(empty_url: str) -> None:
    """Each table, column, type, key and index of a model is there as the model says."""
    schema.upgrade(empty_url)
    engine = create_engine(sqlalchemy_url(empty_url))

    with engine.begin() as connection:
        assert schema.compare(connection) == []
        connection.exec_driver_sql("ALTER TABLE webhooks.users ALTER role TYPE varchar(9)")
        connection.exec_driver_sql("ALTER TABLE webhooks.tenants DROP COLUMN name")
        connection.exec_driver_sql("DROP INDEX webhooks.ix_sessions_user_id")
        found = schema.compare(connection)
    engine.dispose()

    assert len(found) == 3
    for named in ("users role", "tenants", "ix_sessions_user_id"):
        assert any(named in difference for difference in found), found


def test_check_tells_a_database_that_was_changed(empty_url: str) -> None:
    """A column that somebody dropped by hand is named."""
    schema.upgrade(empty_url)
    with psycopg.connect(empty_url) as connection:
        connection.execute("ALTER TABLE webhooks.tenants DROP COLUMN name")

    with pytest.raises(schema.SchemaError, match=r"tenants.*name"):
        schema.check(empty_url)


def test_a_newer_database_is_left_alone(empty_url: str) -> None:
    """A revision that this version does not know stops upgrade and check."""
    schema.upgrade(empty_url)
    with psycopg.connect(empty_url) as connection:
        connection.execute("UPDATE webhooks.alembic_version SET version_num = 'later'")

    for action in (schema.upgrade, schema.check):
        with pytest.raises(schema.SchemaError, match=r"later.*newer version"):
            action(empty_url)


def test_an_unknown_revision_is_named(empty_url: str) -> None:
    """Downgrading to a revision that does not exist changes nothing."""
    revision = schema.upgrade(empty_url)

    with pytest.raises(schema.SchemaError, match="nonesuch"):
        schema.downgrade(empty_url, "nonesuch")

    assert schema.check(empty_url) == revision


def test_an_old_server_is_refused(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server older than the oldest supported one is named with its version."""
    monkeypatch.setattr("webhooks.db.OLDEST_SERVER", 990000)

    with pytest.raises(DatabaseTooOld, match="too old"):
        schema.upgrade(empty_url)


def test_a_migration_gives_way_to_workers(
    database_url: str, connection: psycopg.Connection
) -> None:
    """Two that claim all the time meet 0005, which locks what they lock: it arrives anyway."""
    schema.downgrade(database_url, "0004")
    over = threading.Event()
    errors: list[Exception] = []

    def work() -> None:
        with connect(database_url, "worker") as mine:
            while not over.is_set():
                try:
                    with mine.transaction():
                        mine.execute("SELECT FROM webhooks.lanes FOR NO KEY UPDATE")
                        mine.execute("SELECT count(*) FROM webhooks.endpoints")
                        mine.execute("SELECT count(*) FROM webhooks.signing_secrets")
                    with mine.transaction():  # and who shows a lane closed
                        mine.execute("SELECT FROM webhooks.endpoints FOR NO KEY UPDATE")
                        mine.execute("SELECT FROM webhooks.lanes FOR NO KEY UPDATE")
                except psycopg.errors.DeadlockDetected as error:
                    errors.append(error)

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(3):
            assert schema.upgrade(database_url) == needed()
            schema.downgrade(database_url, "0004")
        assert schema.upgrade(database_url) == needed()
    finally:
        over.set()
        for worker in workers:
            worker.join()
