"""Fixtures every layer shares: one real PostgreSQL, a fresh database per test."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import flask_migrate
import psycopg
import pytest
from flask import Flask

from tests.support import KEYRING, REQUIRE_ALL, in_database, require
from webhooks import embedded, schema
from webhooks.app import create_app
from webhooks.db import connect
from webhooks.settings import Settings

DEBIAN = Path("/usr/lib/postgresql/15/bin")
CHAOS_S = 75.0
_numbers = itertools.count()


def pytest_addoption(parser: pytest.Parser) -> None:
    """What makes the storms of the chaos tests longer, and what repeats one."""
    parser.addoption("--chaos-seconds", type=float, default=CHAOS_S, help="length of the storm")
    parser.addoption("--chaos-seed", type=int, default=None, help="the seed that a run printed")


@pytest.fixture(scope="session")
def chaos_scale(pytestconfig: pytest.Config) -> float:
    """How many times longer than in CI a test that searches at random is to search."""
    return float(pytestconfig.getoption("--chaos-seconds")) / CHAOS_S


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Under WEBHOOKS_REQUIRE_ALL a skip is a failure, whoever asked for it."""
    report = yield
    if REQUIRE_ALL and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped: {call.excinfo}"
    return report


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """URL of a database server's maintenance database: DATABASE_URL's, or the embedded one."""
    if os.environ.get("DATABASE_URL"):
        yield os.environ["DATABASE_URL"]
        return
    data_dir = Path(tempfile.mkdtemp(prefix="webhooks-test-"))
    data_dir.chmod(0o711)
    server = embedded.open_server(data_dir)
    server.start({"fsync": "off"})
    yield server.url("postgres")
    server.stop("immediate")
    shutil.rmtree(data_dir, ignore_errors=True)


@pytest.fixture(scope="session")
def debian_url() -> Iterator[str]:
    """The maintenance database of Debian's PostgreSQL 15."""
    require(DEBIAN.exists(), "PostgreSQL 15", "apt-get install postgresql-15")
    data_dir = Path(tempfile.mkdtemp(prefix="webhooks-test-15-"))
    data_dir.chmod(0o711)
    account = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
    server = embedded.Server(data_dir, DEBIAN, account)
    server.create(locale=("--locale=C.UTF-8",))
    server.start({"fsync": "off"})
    yield server.url("postgres")
    server.stop("immediate")
    shutil.rmtree(data_dir, ignore_errors=True)


@pytest.fixture
def old_database_url(debian_url: str) -> Iterator[str]:
    """A fresh, migrated database on PostgreSQL 15."""
    name = f"webhooks_old_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(debian_url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        url = in_database(debian_url, name)
        schema.upgrade(url)
        yield url
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def template(server_url: str) -> Iterator[str]:
    """Name of a migrated database that each test's own is copied from."""
    name = f"webhooks_template_{os.getpid()}"
    with psycopg.connect(server_url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        app = create_app(Settings(database_url=in_database(server_url, name), keyring=KEYRING))
        with app.app_context():
            flask_migrate.upgrade()
            app.extensions["sqlalchemy"].engine.dispose()
        yield name
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def database_url(server_url: str, template: str) -> Iterator[str]:
    """A fresh, migrated database for one test."""
    name = f"webhooks_test_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(server_url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        yield in_database(server_url, name)
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def settings(database_url: str) -> Settings:
    """Development mode: loopback targets over plain http are allowed."""
    return Settings.from_env(
        {
            "DATABASE_URL": database_url,
            "WEBHOOKS_KEYRING": KEYRING,
            "WEBHOOKS_MODE": "development",
            "WEBHOOKS_ALLOW_HTTP": "true",
            "WEBHOOKS_ALLOW_CIDRS": "127.0.0.0/8,::1/128",
        }
    )


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection]:
    """An autocommit connection to the test's database."""
    with connect(database_url, "test") as opened:
        yield opened


@pytest.fixture
def app(settings: Settings) -> Iterator[Flask]:
    """The web application on the test's database."""
    made = create_app(settings)
    notifier = made.extensions["webhooks_notifier"]  # a test may put another in its place
    yield made
    notifier.close()
    with made.app_context():
        made.extensions["sqlalchemy"].engine.dispose()
