"""Deliveries per second of the real engine, beside the bare loop and the naive worker.

    python -m tests.benchmarks.deliver [--seconds 8] [--workers 2] [--endpoints 50] [--json]
                                       [--statements]

Real gunicorn workers, the embedded PostgreSQL with its durable settings, and a receiver
that is not the bottleneck. The queue is filled by SQL before the clock starts, and a
warm-up is left out. The three run one after the other on the same machine; read the
ratios, not the figures. ``--statements`` adds what each statement took of a delivery in
PostgreSQL, by pg_stat_statements, which itself costs a little.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from typing import Any

import psycopg

from tests.benchmarks import bench
from tests.benchmarks.receivers import receiver
from tests.benchmarks.rivals import NAIVE_TABLE
from tests.stack import Stack, eventually, own_server
from webhooks import embedded

WARM_UP_S = 2.0
# What the queue must hold so that it does not run dry.
MOST_PER_S = 12_000
NAIVE_MOST_PER_S = 2_000
CAP = 1_000
LONGEST_SHOWN = 60
PROFILE = """
SELECT calls, total_exec_time * 1000, regexp_replace(query, '\\s+', ' ', 'g')
FROM pg_stat_statements WHERE toplevel ORDER BY total_exec_time DESC LIMIT 12
"""
PRELOAD = {"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "top"}
HEAD = ("", "per second", "ratio", "worker µs", "PostgreSQL µs")


def main() -> None:
    """Measure and print a table, or one JSON object."""
    arguments = _arguments()
    body = b'{"data": "' + b"x" * (arguments.bytes - 12) + b'"}'
    options = PRELOAD if arguments.statements else None
    with receiver() as (url, name), own_server(options) as server:
        bare = _rival("bare", url, arguments.seconds, str(len(body)))
        ours, python, sql, statements = _engine(server, url, body, arguments)
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
        "statements": statements,
    }
    rows = [
        ["engine", figures["deliveries_per_s"], "", figures["python_us"], figures["postgres_us"]],
        ["engine / bare libcurl loop", figures["bare_per_s"], figures["ratio_bare"], "", ""],
        ["engine / naive worker", figures["naive_per_s"], figures["ratio_naive"], "", ""],
    ]
    rows += [[text, "", "", "", cost] for text, cost in statements.items()]
    bench.report(figures, HEAD, rows, as_json=arguments.json)


def _arguments() -> argparse.Namespace:
    parser = bench.options(__doc__, 8)
    parser.add_argument("--workers", type=int, default=2, help="gunicorn worker processes")
    parser.add_argument("--endpoints", type=int, default=50)
    parser.add_argument("--bytes", type=int, default=1_000, help="size of the payload")
    parser.add_argument("--statements", action="store_true", help="PostgreSQL's time by statement")
    return parser.parse_args()


def _engine(
    server: embedded.Server, url: str, body: bytes, arguments: argparse.Namespace
) -> tuple[float, float, float, dict[str, float]]:
    """Deliveries per second, CPU µs of each in workers and PostgreSQL, and a profile."""
    database_url = bench.database(server, "engine")
    endpoints = bench.add_endpoints(database_url, [url] * arguments.endpoints, CAP)
    wanted = int(MOST_PER_S * (arguments.seconds + WARM_UP_S + 2))
    bench.fill(database_url, endpoints, body, wanted // arguments.endpoints + 1)
    with Stack(database_url) as stack:
        worker = stack.start_worker(arguments.workers)
        eventually(lambda: bench.delivered(worker) > 0, 30, "the first delivery")
        time.sleep(WARM_UP_S)
        workers, postgres = worker.pid, bench.postmaster(server)
        if arguments.statements:
            _ask(database_url, "CREATE EXTENSION pg_stat_statements")
            _ask(database_url, "SELECT pg_stat_statements_reset()")
        before, began = bench.delivered(worker), time.monotonic()
        python, sql = bench.cpu_s(workers), bench.cpu_s(postgres)
        time.sleep(arguments.seconds)
        done = bench.delivered(worker) - before
        elapsed = time.monotonic() - began
        python, sql = bench.cpu_s(workers) - python, bench.cpu_s(postgres) - sql
        profile = _profile(database_url, done) if arguments.statements else {}
        statuses = stack.statuses()
    if statuses.keys() & {"scheduled", "dead_lettered"}:
        raise SystemExit("deliveries failed; the figure would mean nothing")
    if "pending" not in statuses:
        raise SystemExit("the queue ran dry; the figure would mean nothing")
    return done / elapsed, python / done * 1e6, sql / done * 1e6, profile


def _ask(database_url: str, statement: str) -> list[Any]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def _profile(database_url: str, deliveries: float) -> dict[str, float]:
    """The dearest statements: their beginning, and their time in µs of each delivery."""
    return {
        f"{text.strip()[:LONGEST_SHOWN]} ({calls} times)": round(total_us / deliveries, 1)
        for calls, total_us, text in _ask(database_url, PROFILE)
    }


def _naive(server: embedded.Server, url: str, body: bytes, seconds: float) -> float:
    server.ensure_database("naive")
    database_url = server.url("naive")
    with psycopg.connect(database_url) as connection:
        connection.execute(NAIVE_TABLE)
        connection.execute(
            "INSERT INTO naive (url, body) SELECT %s, %s FROM generate_series(1, %s)",
            [url, body, int(NAIVE_MOST_PER_S * (seconds + 2))],
        )
    bench.tidy(database_url)
    return _rival("naive", database_url, seconds)


def _rival(which: str, target: str, seconds: float, *more: str) -> float:
    command = [sys.executable, "-m", "tests.benchmarks.rivals", which, target, str(seconds), *more]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


if __name__ == "__main__":
    main()
