"""Pausing and disabling with real processes: what is held is not sent, and comes back."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.recorder import Recorder
from tests.stack import Stack, eventually

pytestmark = pytest.mark.acceptance

AT_ONCE = 5


@pytest.fixture
def stack(database_url: str) -> Iterator[Stack]:
    """Web and two worker processes."""
    with Stack(database_url) as running:
        running.start_web()
        running.start_worker(2)
        yield running


def test_nothing_is_sent_after_the_endpoint_was_disabled(stack: Stack) -> None:
    """No request starts once the answer is there; enabled again, all of it is sent (W089, W092)."""
    with Recorder(delay_s=0.05) as receiver:
        endpoint, _ = stack.register(receiver.url, max_in_flight=AT_ONCE)
        stack.emit_sql(100)
        eventually(lambda: len(receiver.requests) >= AT_ONCE)
        answer = stack.patch(f"/endpoints/{endpoint}", {"status": "disabled"})
        # What the workers had claimed before is on its way: at most the cap.
        arrived = len(receiver.requests)
        assert answer.json()["lane"]["state"] == "disabled"
        time.sleep(1)
        assert arrived <= len(receiver.requests) <= arrived + AT_ONCE
        assert len(receiver.requests) < 100
        held = len(receiver.requests)
        time.sleep(0.5)
        assert len(receiver.requests) == held
        assert stack.statuses() == {"delivered": held, "pending": 100 - held}

        stack.patch(f"/endpoints/{endpoint}", {"status": "active"})
        eventually(lambda: stack.statuses() == {"delivered": 100})

        assert set(receiver.counts().values()) == {1}


def test_only_what_is_released_is_sent(stack: Stack) -> None:
    """Nothing of what was held arrives, what comes afterwards does."""
    with Recorder() as receiver:
        endpoint, _ = stack.register(receiver.url)
        stack.patch(f"/endpoints/{endpoint}", {"status": "paused"})
        stack.emit_sql(1200)

        stack.patch(f"/endpoints/{endpoint}", {"status": "active", "release": {"mode": "none"}})
        later = stack.emit({"n": "later"})

        eventually(lambda: receiver.requests)
        time.sleep(0.3)
        assert [request.id for request in receiver.requests] == [later]
        assert stack.statuses() == {"cancelled": 1200, "delivered": 1}
