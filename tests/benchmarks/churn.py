"""Whether the hot tables stay small under churn: dead rows and sizes must level off.

    python -m tests.benchmarks.churn [--seconds 600] [--rate 1000] [--lanes 200] [--json]

Events at ``--rate`` a second, two workers without a network that claim and settle (one
attempt in ten fails and is tried again within seconds, so that lanes and due times are
written too), promotion, and a heartbeat ten times a second. Dead rows and sizes are sampled
every second; shown is the most of each third of the run, and the last third against the
middle one. Autovacuum runs with the tables' own settings, as installed.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import psycopg

from tests.benchmarks import bench
from tests.stack import own_server
from webhooks import deliveries, workers
from webhooks.attempt import Claim, ErrorClass
from webhooks.db import connect
from webhooks.deliveries import Settlement

TABLES = ("deliveries_queue", "lanes", "workers")
WORKERS = 2
ROOM = 200
PAUSE_S = 0.02
BEAT_S = 0.1
FAILING = 0.1
BODY = '{"data": "' + "x" * 980 + '"}'

SAMPLE = """
SELECT s.relname, s.n_dead_tup, pg_relation_size(s.relid) / 1024, pg_indexes_size(s.relid) / 1024,
       s.autovacuum_count
FROM pg_stat_user_tables s WHERE s.schemaname = 'webhooks' AND s.relname = ANY (%s)
"""
MEASURES = ("dead_rows", "table_kb", "indexes_kb")
Sample = dict[str, tuple[int, ...]]


def main() -> None:
    """Churn, sample, print."""
    arguments = _arguments()
    with own_server() as server:
        url = bench.database(server, "churn")
        bench.add_endpoints(url, [f"http://127.0.0.1:1/{n}" for n in range(arguments.lanes)])
        samples = _churn(url, arguments)
    figures = {
        f"{table}.{name}": _thirds([sample[table][place] for sample in samples])
        for table in TABLES
        for place, name in enumerate(MEASURES)
    }
    runs = {table: samples[-1][table][-1] for table in TABLES}
    rows = [[name, *each.values()] for name, each in figures.items()]
    rows += [[f"{table}: autovacuum ran {count} times", *[""] * 4] for table, count in runs.items()]
    head = ["most of", "first third", "middle third", "last third", "last / middle"]
    bench.report({**figures, "autovacuums": runs}, head, rows, as_json=arguments.json)


def _arguments() -> argparse.Namespace:
    parser = bench.options(__doc__, 600)
    parser.add_argument("--rate", type=float, default=1_000, help="events/s (default: %(default)g)")
    parser.add_argument("--lanes", type=int, default=200, help="endpoints (default: %(default)d)")
    return parser.parse_args()


def _churn(url: str, arguments: argparse.Namespace) -> list[Sample]:
    stop = threading.Event()
    works: list[Callable[[], object]] = [
        lambda: bench.offer(url, BODY, arguments.rate, arguments.seconds, range(arguments.lanes)),
        *(lambda: _work(url, stop) for _ in range(WORKERS)),
        lambda: _keep(url, stop),
    ]
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    samples = []
    with psycopg.connect(url, autocommit=True) as connection:
        while threads[0].is_alive():
            time.sleep(1)
            rows = connection.execute(SAMPLE, [list(TABLES)]).fetchall()
            samples.append({row[0]: row[1:] for row in rows})
    stop.set()
    for thread in threads:
        thread.join()
    return samples


def _work(url: str, stop: threading.Event) -> None:
    with connect(url, "bench") as connection:
        worker = bench.Cycles(connection)
        while not stop.is_set():
            claims = worker.claim(ROOM)
            if claims:
                deliveries.settle(connection, worker.worker_id, [_outcome(c) for c in claims])
            time.sleep(PAUSE_S)


def _outcome(claim: Claim) -> Settlement:
    if random.random() < FAILING:
        wait = timedelta(seconds=random.uniform(0.5, 5))
        return Settlement(claim, bench.answered(ErrorClass.HTTP_4XX, 400), wait)
    return Settlement(claim, bench.answered(), None)


def _keep(url: str, stop: threading.Event) -> None:
    with connect(url, "bench") as connection:
        worker_id = workers.register(connection, 1_000, 30)
        while not stop.wait(BEAT_S):
            workers.beat(connection, worker_id, 0)
            deliveries.promote(connection)


def _thirds(values: list[int]) -> dict[str, float]:
    length = max(1, len(values) // 3)
    first, middle, last = (max(values[n * length : (n + 1) * length]) for n in range(3))
    return {
        "first": first, "middle": middle, "last": last,
        "ratio": round(last / middle, 2) if middle else 1.0,
    }  # fmt: skip


if __name__ == "__main__":
    main()
