"""docs/emit.md: its programs are run, against a real database and a real web process."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from tests.queue import one
from tests.stack import Stack
from webhooks.client import Client
from webhooks.db import connect, sqlalchemy_url

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "emit.md").read_text(encoding="utf-8")
PROGRAMS = {
    (language, name): code
    for language, name, code in re.findall(r"^```(\w+) (\w+)\n(.*?)^```$", PAGE, re.M | re.S)
}
# Warnings are errors there, too.
DJANGO = """
import sys

import django
from django.conf import settings
from django.db import transaction

host, port, user, name = sys.argv[1:]
settings.configure(DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql",
    "HOST": host, "PORT": port, "USER": user, "NAME": name,
}})
django.setup()
exec(sys.stdin.read())

pay(1)
try:
    with transaction.atomic():
        pay(2)
        raise LookupError("the transaction around it fails")
except LookupError:
    pass
"""


@pytest.fixture
def mine(connection: psycopg.Connection) -> psycopg.Connection:
    """A database with a producer's own table beside the platform's."""
    connection.execute("CREATE TABLE invoices (id int PRIMARY KEY, paid bool DEFAULT false)")
    connection.execute("INSERT INTO invoices (id) VALUES (1), (2)")
    connection.execute(PROGRAMS["sql", "outbox"])
    return connection


@pytest.fixture
def client(database_url: str) -> Iterator[Client]:
    with Stack(database_url) as stack:
        stack.start_web()
        yield Client(stack.base_url, stack.key)


def run(name: str) -> dict[str, Any]:
    """The names that a program of the page defines."""
    names: dict[str, Any] = {}
    exec(compile(PROGRAMS["python", name], f"docs/emit.md {name}", "exec"), names)
    return names


def emitted(connection: psycopg.Connection) -> list[tuple[str, bytes]]:
    return connection.execute("SELECT type, payload FROM webhooks.events ORDER BY id").fetchall()


def paid(connection: psycopg.Connection) -> set[int]:
    return {row[0] for row in connection.execute("SELECT id FROM invoices WHERE paid")}


def test_any_driver_can_call_the_statement(mine: psycopg.Connection) -> None:
    """As it stands on the page, with the server's own parameters."""
    mine.execute(f"PREPARE emit (text, text, text, text) AS {PROGRAMS['sql', 'statement']}")
    mine.execute("EXECUTE emit ('default', 'a.b', '{\"n\": 1.10}', NULL)")

    assert emitted(mine) == [("a.b", b'{"n": 1.10}')]


def test_the_producers_role_can_emit_and_nothing_else(mine: psycopg.Connection) -> None:
    """It calls both functions, reads no table, and calls nothing else of the schema."""
    mine.execute(PROGRAMS["sql", "producer"])
    try:
        functions = mine.execute(
            "SELECT proname FROM pg_proc p WHERE pronamespace = 'webhooks'::regnamespace "
            "AND has_function_privilege('billing', p.oid, 'EXECUTE')").fetchall()  # fmt: skip
        tables = mine.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'webhooks'::regnamespace "
            "AND relkind IN ('r', 'p', 'v', 'S') AND has_table_privilege('billing', oid, "
            "'SELECT, INSERT, UPDATE, DELETE, TRUNCATE')").fetchall()  # fmt: skip
        mine.execute("SET ROLE billing")
        mine.execute("SELECT webhooks.emit('default', 'a.b', '{}')")
        mine.execute("RESET ROLE")

        assert {row[0] for row in functions} == {"emit", "emit_bytes"}
        assert tables == []
        assert emitted(mine) == [("a.b", b"{}")]
    finally:
        mine.execute("RESET ROLE")
        mine.execute("DROP OWNED BY billing; DROP ROLE billing")


def test_with_sqlalchemy_both_are_there_or_neither(
    mine: psycopg.Connection, database_url: str
) -> None:
    """A commit keeps invoice and event; a rollback keeps neither."""
    names = run("sqlalchemy")
    engine = sqlalchemy.create_engine(sqlalchemy_url(database_url))
    with Session(engine) as session:
        names["pay"](session, 1)
        session.commit()
        names["pay"](session, 2)
        session.rollback()
    engine.dispose()

    assert paid(mine) == {1}
    assert emitted(mine) == [("invoice.paid", b'{"id": 1}')]


def test_with_django_both_are_there_or_neither(mine: psycopg.Connection) -> None:
    """A commit keeps invoice and event; an exception around it keeps neither."""
    place = mine.info
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", DJANGO, place.host, str(place.port), place.user,
         place.dbname],
        input=PROGRAMS["python", "django"], capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert answer.returncode == 0, answer.stderr
    assert paid(mine) == {1}
    assert emitted(mine) == [("invoice.paid", b'{"id": 1}')]


def test_a_relay_that_dies_repeats_no_event(mine: psycopg.Connection, client: Client) -> None:
    """It dies after the answer and before its commit; the next one gets the same events."""
    relay = run("outbox")["relay"]
    fill(mine, 3)

    class Dying:
        def emit_many(self, events: Any) -> Any:
            client.emit_many(events)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        relay(mine, Dying())
    assert one(mine, "SELECT count(*) FROM outbox") == 3

    assert relay(mine, client) == 3
    assert relay(mine, client) == 0
    assert emitted(mine) == [("invoice.paid", b'{"id": %d}' % n) for n in (1, 2, 3)]


def test_what_is_refused_holds_up_nothing(mine: psycopg.Connection, client: Client) -> None:
    """It stays in the outbox with the reason; what came after it is carried over."""
    relay = run("outbox")["relay"]
    mine.execute("INSERT INTO outbox (type, payload) VALUES ('not a type', '{}')")
    fill(mine, 1)

    assert relay(mine, client) == 2

    assert emitted(mine) == [("invoice.paid", b'{"id": 1}')]
    assert one(mine, "SELECT refused -> 0 ->> 'field' FROM outbox") == "type"


def test_two_relays_share_the_work(
    mine: psycopg.Connection, client: Client, database_url: str
) -> None:
    """One takes what the other has not locked, and waits for nothing."""
    relay = run("outbox")["relay"]
    fill(mine, 1)

    class Meanwhile:
        def emit_many(self, events: Any) -> Any:
            with connect(database_url, "second relay") as second:
                fill(second, 1)
                assert relay(second, client) == 1
            return client.emit_many(events)

    assert relay(mine, Meanwhile()) == 1
    assert one(mine, "SELECT count(*) FROM outbox") == 0
    assert len(emitted(mine)) == 2


def fill(connection: psycopg.Connection, count: int) -> None:
    connection.execute(
        "INSERT INTO outbox (type, payload) "
        "SELECT 'invoice.paid', '{\"id\": ' || n || '}' FROM generate_series(1, %s) AS n",
        [count],
    )
