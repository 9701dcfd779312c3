"""Processes of one version and a schema of another."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.recorder import Recorder
from tests.stack import Process, Stack, alive, eventually
from webhooks.schema_check import needed

pytestmark = pytest.mark.acceptance

COMMANDS = {
    "web": ("gunicorn", "--config", "python:webhooks.web", "webhooks.web:app()"),
    "worker": ("gunicorn", "--config", "python:webhooks.worker", "webhooks.worker:application"),
}
# What the next version may do: it adds.
NEXT_VERSION = """
ALTER TABLE webhooks.deliveries ADD later text DEFAULT 'x';
ALTER TABLE webhooks.lanes ADD later integer NOT NULL DEFAULT 0;
UPDATE webhooks.alembic_version SET version_num = '9999';
"""


@pytest.fixture
def stack(database_url: str) -> Iterator[Stack]:
    """Nothing runs yet."""
    with Stack(database_url) as running:
        yield running


def start(stack: Stack, what: str) -> Process:
    return stack.start(*COMMANDS[what], "--bind", "127.0.0.1:0")


@pytest.mark.parametrize("what", ["web", "worker"])
@pytest.mark.parametrize(
    ("revision", "message"),
    [
        ("0001", f"at revision 0001, this version needs {needed()}; run `webhooks db upgrade`"),
        ("9999", "at revision 9999, which this version does not know; install the newer version"),
    ],
    ids=["older", "newer"],
)
def test_a_schema_of_another_version_stops_the_start(
    stack: Stack, what: str, revision: str, message: str
) -> None:
    """One line that says which is which and what to do, and no traceback (W121)."""
    with stack.connect() as connection:
        connection.execute("UPDATE webhooks.alembic_version SET version_num = %s", [revision])

    process = start(stack, what)

    assert process.popen.wait(20) != 0
    assert f"webhooks: the database is {message}" in process.output()
    assert "Traceback" not in process.output()


def test_a_running_worker_goes_on_while_the_schema_moves_ahead(stack: Stack) -> None:
    """It delivers, and so does the process that replaces it when it dies (W121)."""
    with Recorder() as receiver:
        web, master = stack.start_web(), stack.start_worker()
        stack.register(receiver.url)
        with stack.connect() as connection:
            connection.execute(NEXT_VERSION)
        stack.emit({"n": 1})
        eventually(lambda: stack.statuses() == {"delivered": 1})
        (pid,) = master.children()
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not alive(pid))
        stack.emit({"n": 2})
        eventually(lambda: stack.statuses() == {"delivered": 2})

    assert "UndefinedColumn" not in master.output() + web.output()
    assert len(receiver.requests) == 2
