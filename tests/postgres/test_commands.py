"""The commands that work on the database while `up` runs."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner, Result

from webhooks import cli, ids, keys, users
from webhooks.database_app import open_app
from webhooks.wakeup import CHANNEL


@pytest.fixture(autouse=True)
def _database(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)


def run(*arguments: str, input: str | bytes | None = None) -> Result:
    return CliRunner().invoke(cli.main, list(arguments), input=input)


def done(*arguments: str, input: str | bytes | None = None) -> str:
    """The output of a command that went well."""
    result = run(*arguments, input=input)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: str, input: str | bytes | None = None) -> str:
    """The only line of a command that did not."""
    result = run(*arguments, input=input)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    return line


@pytest.mark.parametrize("source", ["argument", "file", "standard input"])
def test_emit_stores_the_bytes_given(
    connection: psycopg.Connection, tmp_path: Path, source: str
) -> None:
    """From an argument, a file or standard input; its id is printed and workers are woken."""
    payload = '{"b": 1.10,  "a": "é"}'
    (tmp_path / "payload.json").write_text(payload, encoding="utf-8")
    given = {"argument": payload, "file": f"@{tmp_path}/payload.json", "standard input": "-"}
    connection.execute(f"LISTEN {CHANNEL}")

    printed = done("emit", "invoice.paid", given[source], input=payload)

    row = connection.execute("SELECT id, type, payload FROM webhooks.events").fetchone()
    assert row is not None
    assert printed == ids.encode("evt", row[0]) + "\n"
    assert (row[1], row[2]) == ("invoice.paid", payload.encode())
    assert len(list(connection.notifies(timeout=5, stop_after=1))) == 1


def test_emit_with_the_same_key_is_the_same_event() -> None:
    """The same key and body print the same id; another body is refused."""
    first = done("emit", "a", "1", "--idempotency-key", "k")

    assert done("emit", "a", "1", "--idempotency-key", "k") == first
    assert "idempotency_key" in refused("emit", "a", "2", "--idempotency-key", "k")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["a b", "1"], "type"),
        (["a", "{"], "payload"),
        (["a", "1", "--tenant", "nobody"], "nobody"),
        (["a", "1", "--idempotency-key", ""], "idempotency_key"),
        (["a", "@/nonesuch"], "/nonesuch"),
        (["a", f'"{"x" * 262_143}"'], "262145 bytes"),
    ],
)
def test_a_wrong_event_stores_nothing(
    connection: psycopg.Connection, arguments: list[str], named: str
) -> None:
    """One line names the field."""
    assert named in refused("emit", *arguments)
    assert connection.execute("SELECT 1 FROM webhooks.events").fetchone() is None


def test_key_create_prints_the_key_alone(database_url: str) -> None:
    """A key is for all tenants or for one, works, and is refused once revoked."""
    done("tenant", "create", "acme")
    every = done("key", "create", "ci").strip()
    acme = done("key", "create", "theirs", "--tenant", "acme").strip()

    with open_app(database_url, "test"):
        found = [keys.authenticate(text) for text in (every, acme)]
    assert [key and (key.name, key.all_tenants, key.tenant_key) for key in found] == [
        ("ci", True, "default"),
        ("theirs", False, "acme"),
    ]

    listed = done("key", "list")
    assert every not in listed
    key_id = next(line.split()[0] for line in listed.splitlines() if "theirs" in line)
    assert done("key", "revoke", key_id) == f"revoked {key_id} (theirs)\n"
    assert done("key", "revoke", key_id) == f"{key_id} (theirs) was revoked before\n"
    with open_app(database_url, "test"):
        assert keys.authenticate(acme) is None
        assert keys.authenticate(every) is not None


def test_keys_and_tenants_that_do_not_exist_are_named() -> None:
    """An unknown tenant or key id, and a tenant that is there already."""
    assert "nobody" in refused("key", "create", "x", "--tenant", "nobody")
    assert "key_1" in refused("key", "revoke", "key_1")
    assert "default" in refused("tenant", "create", "default")
    assert "UPPER" in refused("tenant", "create", "UPPER")


def test_tenants_are_listed() -> None:
    """Key, name and id of each."""
    made = done("tenant", "create", "acme", "--name", "Acme Inc.").strip()

    line = next(line for line in done("tenant", "list").splitlines() if line.startswith("acme"))

    assert "Acme Inc." in line
    assert made in line


def test_the_first_user_is_the_owner(database_url: str) -> None:
    """Then viewers, or whatever role is given; a password can be changed."""
    assert "owner" in done("user", "create", "ann", "--password-stdin", input="correct horse\n")
    assert "viewer" in done("user", "create", "bob", "--password-stdin", input="battery staple\n")
    created = done(
        "user", "create", "eve", "--role", "admin", "--password-stdin", input="trombone 1"
    )
    assert "admin" in created
    done("user", "password", "ann", "--password-stdin", input="another one\n")

    with open_app(database_url, "test"):
        assert users.authenticate("ann", "correct horse") is None
        assert users.authenticate("ann", "another one") is not None
        assert users.authenticate("eve", "trombone 1") is not None


def test_wrong_users_are_refused() -> None:
    """A short password, a name that is taken, one that is unknown, no terminal to ask."""
    assert "password" in refused("user", "create", "ann", "--password-stdin", input="short\n")
    done("user", "create", "ann", "--password-stdin", input="correct horse\n")
    again = refused("user", "create", "ann", "--password-stdin", input="correct horse\n")
    assert "ann" in again
    assert "bob" in refused("user", "password", "bob", "--password-stdin", input="correct horse\n")
    assert "--password-stdin" in refused("user", "create", "bob", input="correct horse\n")


def test_a_database_without_our_schema_is_named(connection: psycopg.Connection) -> None:
    """Every command says how to make it."""
    assert "revision" in done("db", "check")
    connection.execute("DROP SCHEMA webhooks CASCADE")

    for command in (["tenant", "list"], ["emit", "a", "1"], ["db", "check"]):
        assert "webhooks db upgrade" in refused(*command)
