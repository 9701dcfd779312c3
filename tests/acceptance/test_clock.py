"""Hosts whose clocks are wrong: what is due is the database's matter."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos import clock
from tests.recorder import Recorder
from tests.stack import Stack, eventually

pytestmark = pytest.mark.acceptance

RETRY_S = 2.0


@pytest.fixture(params=[-600, 600], ids=["ten minutes late", "ten minutes early"])
def stack(database_url: str, request: pytest.FixtureRequest) -> Iterator[Stack]:
    """Web and worker whose clock is off; PostgreSQL's and this process's are right."""
    env = {
        "PYTHONPATH": str(Path(next(iter(clock.__path__)))),
        "CLOCK_OFFSET_S": str(request.param),
        "WEBHOOKS_LEASE_S": "4",
        "WEBHOOKS_HEARTBEAT_S": "1",
    }
    with Stack(database_url, env) as running:
        running.start_web()
        running.start_worker()
        yield running


def test_a_wrong_clock_makes_nothing_late_or_early(stack: Stack) -> None:
    """Sent at once, retried when the policy says, lease kept (W096)."""
    with Recorder(lambda nth, _: 500 if nth == 1 else 200) as receiver:
        stack.register(receiver.url, retry_policy={"delays_s": [RETRY_S]})
        emitted = time.time()
        stack.emit({"a": 1})
        eventually(lambda: stack.statuses() == {"delivered": 1})

    first, second = receiver.requests
    offset = int(stack.env["CLOCK_OFFSET_S"])
    assert abs(int(first.headers["webhook-timestamp"]) - first.at - offset) < 5, "is it off at all?"
    assert first.at - emitted < 5
    # Jitter is a fifth; a loaded machine adds something.
    assert RETRY_S * 0.8 - 0.1 <= second.at - first.at <= RETRY_S * 1.2 + 1
    with stack.connect() as connection:
        row = connection.execute(
            "SELECT abs(extract(epoch FROM now() - max(created_at))) < 30, "
            "(SELECT count(*) FROM webhooks.attempts WHERE error_class = 'worker_lost') "
            "FROM webhooks.events").fetchone()  # fmt: skip
    assert row == (True, 0)
