"""What happens under load when processes die: nothing is lost, little comes twice."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from tests.recorder import Recorder
from tests.stack import Stack, alive, eventually
from webhooks import embedded
from webhooks.schema import upgrade

pytestmark = pytest.mark.acceptance

LEASE_S = 4
# 300 deliveries of 0.3 s, 40 at a time, and some for a slow machine.
DRAIN_S = 8
ENV = {
    "WEBHOOKS_LEASE_S": str(LEASE_S),
    "WEBHOOKS_HEARTBEAT_S": "1",
    "WEBHOOKS_RETRY_BASE_S": "0.2",
    "WEBHOOKS_RETRY_FACTOR": "1",
    "WEBHOOKS_MAX_IN_FLIGHT": "40",
    "WEBHOOKS_ENDPOINT_MAX_IN_FLIGHT": "1000",
}


@pytest.fixture
def stack(database_url: str) -> Iterator[Stack]:
    """Web only; each test starts the workers it kills."""
    with Stack(database_url, ENV) as running:
        running.start_web()
        yield running


def test_sigterm_under_load_drains(stack: Stack) -> None:
    """A stopping worker finishes what it sends and gives the rest back: all once, none lost."""
    with Recorder(delay_s=0.3) as receiver:
        stack.register(receiver.url)
        first = stack.start_worker()
        events = stack.emit_sql(400)
        eventually(lambda: len(receiver.requests) > 60)

        assert first.stop() == 0
        left = stack.statuses()
        assert left.get("in_flight", 0) == 0
        assert left["pending"] > 0
        stack.start_worker()
        eventually(lambda: stack.statuses() == {"delivered": 400}, 40)

    assert receiver.counts() == dict.fromkeys(events, 1)


def test_interrupted_workers_lose_nothing(stack: Stack) -> None:
    """SIGINT to master and worker, as a terminal sends it: what is in hand is recorded."""
    with Recorder(delay_s=0.5) as receiver:
        stack.register(receiver.url)
        worker = stack.start_worker()
        events = stack.emit_sql(40)
        eventually(lambda: len(receiver.requests) >= 40)

        for pid in (*worker.children(), worker.pid):
            os.kill(pid, signal.SIGINT)
        worker.popen.wait(20)

        assert stack.statuses() == {"delivered": 40}
    assert receiver.counts() == dict.fromkeys(events, 1)


def test_a_stalled_worker_does_not_send_what_is_no_longer_its_own(stack: Stack) -> None:
    """Stopped beyond its lease and continued: only what it was sending can come twice."""
    with Recorder(delay_s=0.3) as receiver:
        stack.register(receiver.url)
        stalled = stack.start_worker()
        events = stack.emit_sql(300)
        eventually(lambda: len(receiver.requests) > 60)
        (pid,) = stalled.children()
        os.kill(pid, signal.SIGSTOP)
        stack.start_worker()
        eventually(lambda: stack.statuses() == {"delivered": 300}, 60)
        before = sum(receiver.counts().values())

        os.kill(pid, signal.SIGCONT)
        time.sleep(3)

    counts = receiver.counts()
    assert set(counts) == set(events)
    assert sum(counts.values()) == before
    assert before - len(events) <= 40


def test_a_killed_worker_loses_nothing(stack: Stack) -> None:
    """kill -9: every event arrives within the lease and ten seconds, few of them twice."""
    with Recorder(delay_s=0.3) as receiver:
        stack.register(receiver.url)
        doomed = stack.start_worker()
        events = stack.emit_sql(300)
        eventually(lambda: len(receiver.requests) > 60)
        (pid,) = doomed.children()
        stack.start_worker()

        doomed.popen.kill()
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        eventually(lambda: set(receiver.counts()) == set(events), 60)
        eventually(lambda: stack.statuses() == {"delivered": 300}, 60)
        recovered = time.monotonic() - killed

    counts = receiver.counts()
    assert sum(counts.values()) - len(events) <= 40
    assert max(counts.values()) <= 2
    assert recovered < LEASE_S + 10 + DRAIN_S


def test_gunicorn_replaces_a_killed_worker(stack: Stack) -> None:
    """The master forks another one, and what the dead one held comes back to it (W103, W140)."""
    with Recorder(delay_s=1.0) as receiver:
        stack.register(receiver.url)
        master = stack.start_worker()
        events = stack.emit_sql(40)
        eventually(lambda: len(receiver.requests) >= 40)
        (pid,) = master.children()

        os.kill(pid, signal.SIGKILL)
        eventually(lambda: stack.statuses() == {"delivered": 40}, LEASE_S + 20)

        assert master.children() != [pid]
        assert alive(master.pid)
    assert set(receiver.counts()) == set(events)
    assert max(receiver.counts().values()) <= 2


def test_restarts_during_a_drain_send_nothing_twice(stack: Stack) -> None:
    """Two workers, one of them restarted again and again: each event arrives once (W110)."""
    with Recorder(delay_s=0.02) as receiver:
        stack.register(receiver.url)
        stack.start_worker()
        events = stack.emit_sql(1500)
        for _ in range(4):
            assert stack.start_worker().stop() == 0
        eventually(lambda: stack.statuses() == {"delivered": 1500}, 60)

    assert receiver.counts() == dict.fromkeys(events, 1)


def test_outcomes_that_cannot_be_recorded_are_kept_until_they_can(stack: Stack) -> None:
    """A lock on the table outlasts the lease: results wait, nothing is sent again (W109)."""
    with Recorder(delay_s=0.5) as receiver:
        stack.register(receiver.url)
        worker = stack.start_worker()
        events = stack.emit_sql(40)
        eventually(lambda: len(receiver.requests) >= 40)

        with stack.connect() as locker:
            locker.execute("BEGIN")
            locker.execute("LOCK TABLE webhooks.deliveries_queue IN EXCLUSIVE MODE")
            time.sleep(LEASE_S + 2)
            locker.execute("ROLLBACK")
        eventually(lambda: stack.statuses() == {"delivered": 40}, 30)

        assert worker.popen.poll() is None
    assert receiver.counts() == dict.fromkeys(events, 1)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_of_postgresql_loses_nothing(own_server: embedded.Server, mode: str) -> None:
    """Down for two seconds under load: everything accepted arrives, with few duplicates (W113)."""
    upgrade(own_server.url())
    accepted: list[str] = []
    stop = threading.Event()

    with Stack(own_server.url(), ENV) as stack, Recorder(delay_s=0.1) as receiver:
        stack.start_web()
        worker = stack.start_worker()
        stack.register(receiver.url)

        def produce() -> None:
            while not stop.is_set():
                answer = stack.post("/events", {"type": "a", "payload": {}})
                assert answer.status_code in (202, 503), answer.text
                if answer.status_code == 202:
                    accepted.append(answer.json()["id"])
                else:
                    assert int(answer.headers["Retry-After"]) > 0
                time.sleep(0.01)

        producer = threading.Thread(target=produce)
        producer.start()
        eventually(lambda: len(receiver.requests) > 50)
        own_server.stop(mode)
        time.sleep(2)
        own_server.start()
        before = len(receiver.requests)
        eventually(lambda: len(receiver.requests) > before + 50, 30)
        stop.set()
        producer.join()
        eventually(lambda: set(accepted) <= set(receiver.counts()), 30)
        eventually(lambda: stack.statuses().keys() == {"delivered"}, 30)

        assert worker.popen.poll() is None
        assert max(receiver.counts().values()) <= 2
        assert sum(receiver.counts().values()) - len(receiver.counts()) <= 40


def test_a_crash_of_postgresql_while_receivers_think_repeats_nothing(
    own_server: embedded.Server,
) -> None:
    """Two workers, answers that take three seconds, a crash in between: each comes once (W112)."""
    upgrade(own_server.url())
    with Stack(own_server.url(), ENV) as stack, Recorder(delay_s=3) as receiver:
        stack.start_web()
        stack.register(receiver.url)
        stack.start_worker(2)
        events = stack.emit_sql(30)
        eventually(lambda: len(receiver.requests) == 30)
        time.sleep(1)  # until the claims, whose commits do not wait for it, are on the disk
        own_server.stop("immediate")
        own_server.start()
        eventually(lambda: stack.statuses() == {"delivered": 30}, 30)
        time.sleep(LEASE_S)

    assert receiver.counts() == dict.fromkeys(events, 1)
