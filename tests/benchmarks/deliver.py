"""Deliveries per second of the real engine, beside the bare loop and the naive worker.

    python -m tests.benchmarks.deliver [--seconds 8] [--workers 2] [--endpoints 50] [--json]

Real gunicorn workers, the embedded PostgreSQL with its durable settings, and a receiver
that is not the bottleneck. The queue is filled by SQL before the clock starts, and a
warm-up is left out. The three run one after the other on the same machine; read the
ratios, not the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import requests

from tests.benchmarks.receivers import receiver
from tests.benchmarks.rivals import NAIVE_TABLE
from tests.stack import Process, Stack, eventually
from tests.support import KEYRING
from webhooks import embedded
from webhooks.schema import upgrade
from webhooks.secrets import Keyring, Place

WARM_UP_S = 2.0
# What the queue must hold so that it does not run dry.
MOST_PER_S = 9_000
NAIVE_MOST_PER_S = 2_000

ENDPOINTS = """
INSERT INTO webhooks.endpoints (tenant_id, url, timeout_s, max_in_flight)
SELECT id, %s, 20, 1000 FROM webhooks.tenants, generate_series(1, %s)
RETURNING id, tenant_id
"""
LANES = """
INSERT INTO webhooks.lanes (shard, endpoint_id, tenant_id, max_in_flight)
SELECT webhooks.shard_of(tenant_id), id, tenant_id, max_in_flight FROM webhooks.endpoints
"""
EVENTS = """
INSERT INTO webhooks.events (shard, id, tenant_id, type, payload, created_at)
SELECT webhooks.shard_of(id), webhooks.uuid7(), id, 'bench.event', %s, now()
FROM webhooks.tenants, generate_series(1, %s)
"""
DELIVERIES = """
INSERT INTO webhooks.deliveries (shard, tenant_id, event_id, endpoint_id, event_type)
SELECT v.shard, v.tenant_id, v.id, e.id, v.type FROM webhooks.events v, webhooks.endpoints e
"""


def main() -> None:
    """Measure and print a table, or one JSON object."""
    arguments = _arguments()
    body = json.dumps({"data": "x" * (arguments.bytes - 12)}).encode()
    with receiver() as (url, name), _server() as server:
        bare = _rival("bare", url, arguments.seconds, str(len(body)))
        ours, python, sql = _engine(server, url, body, arguments)
        naive = _naive(server, url, body, arguments.seconds)
    figures = {
        "deliveries_per_s": round(ours, 1),
        "bare_per_s": round(bare, 1),
        "naive_per_s": round(naive, 1),
        "ratio_bare": round(ours / bare, 3),
        "ratio_naive": round(ours / naive, 2),
        "python_us": round(python, 1),
        "postgres_us": round(sql, 1),
        "receiver": name,
    }
    sys.stdout.write(json.dumps(figures) + "\n" if arguments.json else _table(figures))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=8.0, help="measured time of each")
    parser.add_argument("--workers", type=int, default=2, help="gunicorn worker processes")
    parser.add_argument("--endpoints", type=int, default=50)
    parser.add_argument("--bytes", type=int, default=1_000, help="size of the payload")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


@contextmanager
def _server() -> Iterator[embedded.Server]:
    folder = Path(tempfile.mkdtemp(prefix="webhooks-bench-"))
    folder.chmod(0o711)
    server = embedded.open_server(folder)
    server.start()
    server.ensure_database()
    server.ensure_database("naive")
    try:
        yield server
    finally:
        server.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)


def _engine(
    server: embedded.Server, url: str, body: bytes, arguments: argparse.Namespace
) -> tuple[float, float, float]:
    """Deliveries per second, and the workers' and PostgreSQL's CPU time of each in µs."""
    upgrade(server.url())
    wanted = int(MOST_PER_S * (arguments.seconds + WARM_UP_S + 2))
    _fill(server.url(), url, body, arguments.endpoints, wanted // arguments.endpoints + 1)
    with Stack(server.url()) as stack:
        worker = stack.start_worker(arguments.workers)
        eventually(lambda: _delivered(worker) > 0, 30, "the first delivery")
        time.sleep(WARM_UP_S)
        workers, postgres = worker.pid, _postmaster(server)
        before, began = _delivered(worker), time.monotonic()
        python, sql = _cpu_s(workers), _cpu_s(postgres)
        time.sleep(arguments.seconds)
        done = _delivered(worker) - before
        elapsed = time.monotonic() - began
        python, sql = _cpu_s(workers) - python, _cpu_s(postgres) - sql
        if stack.statuses().keys() & {"scheduled", "dead_lettered"}:
            raise SystemExit("deliveries failed; the figure would mean nothing")
    return done / elapsed, python / done * 1e6, sql / done * 1e6


def _fill(database_url: str, url: str, body: bytes, endpoints: int, events: int) -> None:
    keyring = Keyring.parse(KEYRING)
    with psycopg.connect(database_url) as connection:
        with connection.cursor() as cursor:
            made = cursor.execute(ENDPOINTS, [url, endpoints]).fetchall()
        connection.execute(LANES)
        for endpoint_id, tenant_id in made:
            row = connection.execute("SELECT webhooks.uuid7()").fetchone()
            assert row is not None
            place = Place("signing_secrets", tenant_id, row[0], "ciphertext")
            secret = keyring.encrypt(place, b"whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX")
            connection.execute(
                "INSERT INTO webhooks.signing_secrets (id, tenant_id, endpoint_id, ciphertext) "
                "VALUES (%s, %s, %s, %s)", [row[0], tenant_id, endpoint_id, secret])  # fmt: skip
        connection.execute(EVENTS, [body, events])
        connection.execute(DELIVERIES)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE webhooks.deliveries_queue, webhooks.events")
        connection.execute("CHECKPOINT")


def _delivered(worker: Process) -> float:
    text = requests.get(f"http://127.0.0.1:{worker.port}/metrics", timeout=10).text
    name = "webhooks_attempts_total{"
    lines = [line for line in text.splitlines() if line.startswith(name) and "delivered" in line]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def _postmaster(server: embedded.Server) -> int:
    return int((server.cluster / "postmaster.pid").read_text().splitlines()[0])


def _cpu_s(parent: int) -> float:
    """CPU seconds that a process and its children have used."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    ticks = 0
    for pid in [str(parent), *children]:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _naive(server: embedded.Server, url: str, body: bytes, seconds: float) -> float:
    database_url = server.url("naive")
    with psycopg.connect(database_url) as connection:
        connection.execute(NAIVE_TABLE)
        connection.execute(
            "INSERT INTO naive (url, body) SELECT %s, %s FROM generate_series(1, %s)",
            [url, body, int(NAIVE_MOST_PER_S * (seconds + 2))],
        )
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE naive")
    return _rival("naive", database_url, seconds)


def _rival(which: str, target: str, seconds: float, *more: str) -> float:
    command = [sys.executable, "-m", "tests.benchmarks.rivals", which, target, str(seconds), *more]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def _table(figures: dict[str, object]) -> str:
    rows = [
        (
            "engine",
            "deliveries_per_s",
            f"CPU each: {figures['python_us']} µs workers, {figures['postgres_us']} µs PostgreSQL",
        ),
        ("bare libcurl", "bare_per_s", f"engine = {figures['ratio_bare']} of it"),
        ("naive worker", "naive_per_s", f"engine = {figures['ratio_naive']} times it"),
    ]
    lines = [f"{name:14}{figures[figure]:>10}/s  {note}" for name, figure, note in rows]
    return "\n".join([*lines, f"receiver: {figures['receiver']}", ""])


if __name__ == "__main__":
    main()
