"""The main job on the oldest PostgreSQL that we support, and behind a pooler."""

from __future__ import annotations

import pytest

from tests.pooler import pooled
from tests.recorder import Recorder, verify
from tests.stack import Stack, eventually

pytestmark = pytest.mark.acceptance

ENV = {"WEBHOOKS_RETRY_BASE_S": "0.1", "WEBHOOKS_RETRY_FACTOR": "1"}


def walk(stack: Stack) -> None:
    """Emit by API and SQL, fail once, deliver, drain."""
    with stack, Recorder(lambda nth, _: 500 if nth == 1 else 200) as receiver:
        stack.start_web()
        worker = stack.start_worker()
        _, secret = stack.register(receiver.url)
        events = {stack.emit({"n": 1}), *stack.emit_sql(50)}
        eventually(lambda: stack.statuses() == {"delivered": 51})

        assert set(receiver.counts()) == events
        assert len(receiver.requests) == 52
        assert all(verify(secret, request) for request in receiver.requests)
        assert worker.stop() == 0
        with stack.connect() as connection:
            left = connection.execute("SELECT count(*) FROM webhooks.workers").fetchone()
        assert left == (0,)


def test_postgresql_15_does_the_whole_job(old_database_url: str) -> None:
    """Every statement works on the oldest supported version."""
    walk(Stack(old_database_url, ENV))


def test_a_pooler_in_transaction_mode_does_the_whole_job(database_url: str) -> None:
    """PgBouncer with four connections serves web and worker; wake-ups go past it."""
    with pooled(database_url, connections=4) as url:
        walk(Stack(url, ENV | {"WEBHOOKS_LISTEN_URL": database_url}))
