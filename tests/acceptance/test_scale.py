"""What must not grow with the number of workers, endpoints, events or paths."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
import requests

from tests.recorder import Recorder
from tests.stack import Process, Stack, eventually

pytestmark = pytest.mark.acceptance

LEASE_S = 4
WORKERS = 4
IDLE_S = 6

COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
WRITES = """
SELECT relname, n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_user_tables
WHERE schemaname = 'webhooks' AND n_tup_ins + n_tup_upd + n_tup_del > 0
"""


@pytest.fixture
def stack(database_url: str) -> Iterator[Stack]:
    """No process yet; leases short enough to wait for."""
    env = {"WEBHOOKS_LEASE_S": str(LEASE_S), "WEBHOOKS_HEARTBEAT_S": "1"}
    with Stack(database_url, env) as running:
        yield running


def counted(connection: psycopg.Connection) -> tuple[int, dict[str, int]]:
    """Transactions so far, and rows written so far by table; both once they are told."""
    time.sleep(1.5)  # sessions tell at most once a second
    row = connection.execute(COMMITS).fetchone()
    assert row is not None
    return row[0], dict(connection.execute(WRITES).fetchall())


def test_idle_workers_only_read(stack: Stack, connection: psycopg.Connection) -> None:
    """On an empty queue each polls a few times a second and writes its own heartbeat (W131)."""
    stack.start_worker(WORKERS)
    time.sleep(3)
    commits, written = counted(connection)
    time.sleep(IDLE_S)
    later_commits, later_written = counted(connection)

    changed = {table: count - written.get(table, 0) for table, count in later_written.items()}
    assert {table for table, count in changed.items() if count} == {"workers"}
    assert changed["workers"] <= WORKERS * (IDLE_S + 3)
    # Claim, promote and expand every quarter of a second, the rest more rarely.
    assert later_commits - commits < WORKERS * (IDLE_S + 2) * 20


def test_metrics_do_not_grow_with_use(stack: Stack) -> None:
    """Fifty endpoints, 1,000 deliveries and 300 odd paths add hardly a line (W138)."""
    stack.start_web()
    worker = stack.start_worker()
    with Recorder() as receiver:
        stack.register(f"{receiver.url}/first")
        stack.emit_sql(1)
        eventually(lambda: stack.statuses() == {"delivered": 1})
        before = metrics(worker)
        for number in range(49):
            stack.register(f"{receiver.url}/secret-path-{number}")
        stack.emit_sql(20)
        for number in range(300):
            page = f"http://127.0.0.1:{worker.port}/no-such-page-{number}"
            assert requests.get(page, timeout=10).status_code == 404
        eventually(lambda: stack.statuses() == {"delivered": 1_001}, 60)

    after = metrics(worker)
    assert len(after) - len(before) < 50
    for word in ("secret-path", "no-such-page", "http://", "ep_", "evt_"):
        assert [line for line in after if word in line] == []


def metrics(worker: Process) -> list[str]:
    text = requests.get(f"http://127.0.0.1:{worker.port}/metrics", timeout=10).text
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_a_burst_arrives_once_each(stack: Stack) -> None:
    """500 events from 20 threads at once, two workers: 500 requests, 500 events (W134)."""
    stack.start_web()
    stack.start_worker(2)
    with Recorder() as receiver:
        stack.register(f"{receiver.url}/hook")
        with ThreadPoolExecutor(20) as producers:
            emitted = list(producers.map(lambda n: stack.emit({"n": n}), range(500)))
        eventually(lambda: stack.statuses() == {"delivered": 500}, 60)

        assert receiver.counts() == dict.fromkeys(emitted, 1)


def test_a_dead_workers_slots_are_freed(stack: Stack) -> None:
    """What it held counts against the cap no longer than its lease (W140)."""
    with Recorder(delay_s=30) as receiver:
        stack.start_web()
        stack.register(receiver.url, max_in_flight=8)
        doomed = stack.start_worker()
        stack.emit_sql(10)
        eventually(lambda: stack.statuses() == {"in_flight": 8, "pending": 2})

        for pid in [doomed.pid, *doomed.children()]:
            os.kill(pid, signal.SIGKILL)
        receiver.delay_s = 0
        stack.start_worker()
        eventually(lambda: stack.statuses() == {"delivered": 10}, 2 * LEASE_S + 10)
