"""The command line without a database: help, mistakes, exit codes."""

from __future__ import annotations

import socket
from importlib.metadata import version
from pathlib import Path

import psycopg
import pytest
import sqlalchemy.exc
from click.testing import CliRunner, Result

from webhooks import cli
from webhooks.commands.failures import explain
from webhooks.db import DatabaseTooOld


def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
    clean = {"DATABASE_URL": None, "WEBHOOKS_DATA_DIR": None, "WEBHOOKS_MODE": None}
    return CliRunner().invoke(cli.main, list(arguments), env={**clean, **(env or {})})


def complaint(result: Result) -> str:
    """The only line of output of a command that was used wrongly."""
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("webhooks: ")
    return line


def test_version() -> None:
    """--version prints the distribution's version."""
    assert run("--version").stdout == f"webhooks {version('webhooks-platform')}\n"


@pytest.mark.parametrize("command", [name for name in cli.COMMANDS if name != "demo"])
def test_every_command_is_listed_and_explains_itself(command: str) -> None:
    """--help names each command, and each has its own."""
    assert f"  {command} " in run("--help").stdout
    assert run(command, "--help").stdout.startswith(f"Usage: main {command}")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["nonesuch"], "nonesuch"),
        (["up", "--port", "0"], "--port"),
        (["up", "--port", "x"], "x"),
        (["up", "--nonesuch"], "--nonesuch"),
        (["up", "--host", "a..b"], "a..b"),
        (["up", "--host", "0.0.0.0", "--demo"], "--allow-loopback"),
        (["emit", "a"], "PAYLOAD"),
        (["key", "create"], "NAME"),
        (["receiver", "--status", "99"], "status: 99"),
        (["receiver", "--delay", "-1"], "delay: -1"),
        (["receiver", "--fail-rate", "nan"], "fail_rate: nan"),
        (["receiver", "--secret", "abc"], "whsec_"),
        (["receiver", "--host", "nope.invalid"], "--host nope.invalid: "),
        (["receiver", "--host", "192.0.2.1"], "--host 192.0.2.1: "),
        (["scheduler"], "DATABASE_URL"),
        (["db", "upgrade", "--data-dir", "/nonesuch/dir"], "webhooks up --data-dir /nonesuch/dir"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], named: str) -> None:
    """Exit code 2 and one line on standard error that names it."""
    assert named in complaint(run(*arguments))


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({"WEBHOOKS_LEESE_S": "3"}, "WEBHOOKS_LEESE_S"),
        ({"WEBHOOKS_LEASE_S": "soon"}, "WEBHOOKS_LEASE_S='soon'"),
        ({"WEBHOOKS_LOG_LEVEL": "loud"}, "WEBHOOKS_LOG_LEVEL='loud'"),
        ({"WEBHOOKS_MODE": "production"}, "WEBHOOKS_MODE='production'"),
    ],
)
def test_a_wrong_setting_stops_the_start(env: dict[str, str], named: str, tmp_path: Path) -> None:
    """Name and value are shown, and nothing is made."""
    result = run("up", "--data-dir", str(tmp_path / "data"), env=env)

    assert named in complaint(result)
    assert not (tmp_path / "data").exists()


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    """Both up and the receiver say which port and how to give another."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])

        for command in (["up", "--data-dir", str(tmp_path)], ["receiver"]):
            line = complaint(run(*command, "--port", port))
            assert port in line
            assert "another --port" in line


def test_a_database_that_is_away_is_one_line() -> None:
    """The address is told, the password is not."""
    url = "postgresql://ann:hunter2@127.0.0.1:1/x"

    line = complaint(run("tenant", "list", env={"DATABASE_URL": url}))

    assert "cannot be reached" in line
    assert "hunter2" not in line


@pytest.mark.parametrize(
    "url", ["mysql://ann:hunter2@x/y", "postgresql://ann:hunter2@127.0.0.1:1/x?a=b"]
)
def test_a_wrong_database_url_is_named(url: str) -> None:
    """The setting and its form are told, the password is not."""
    line = complaint(run("tenant", "list", env={"DATABASE_URL": url}))

    assert "DATABASE_URL" in line
    assert "hunter2" not in line


def test_faults_of_ours_are_not_hidden() -> None:
    """Only what can be named becomes one line; anything else keeps its traceback."""
    assert explain(KeyError("x")) is None
    assert explain(DatabaseTooOld("PostgreSQL 14 is too old")) == "PostgreSQL 14 is too old"
    away = psycopg.OperationalError("connection refused")
    wrapped = sqlalchemy.exc.OperationalError("SELECT 1", None, away)
    assert explain(wrapped) == "the database cannot be reached: connection refused"
    assert explain(FileNotFoundError(2, "No such file", "/x")) == "/x: No such file"
