"""Claims while a long transaction elsewhere keeps vacuum from removing dead rows.

    python -m tests.benchmarks.xmin [--seconds 180] [--rate 200] [--lanes 10] [--json]

Two databases on one server, with the same load at the same time (vacuum is held back only
in the database of the transaction): events emitted at ``--rate``, and a worker without a
network that claims every 25 ms and settles. In "held" a REPEATABLE READ transaction is open
from the start. The 95th percentile of a claim's time in the first and in the last third.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from dataclasses import dataclass, field

import psycopg

from tests.benchmarks import bench
from tests.stack import own_server
from webhooks.db import connect

CLAIM_EVERY_S = 0.025
ROOM = 500
BODY = '{"data": "' + "x" * 980 + '"}'
DEAD = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'deliveries_queue'"


@dataclass
class Load:
    """One database's load, and when each claim began and how long it took, in s and ms."""

    url: str
    arguments: argparse.Namespace
    claims: list[tuple[float, float]] = field(default_factory=list)
    settles: list[tuple[float, float]] = field(default_factory=list)

    def emit(self) -> None:
        numbers = range(self.arguments.lanes)
        bench.offer(self.url, BODY, self.arguments.rate, self.arguments.seconds, numbers)

    def work(self) -> None:
        began = time.monotonic()
        with connect(self.url, "bench") as connection:
            worker = bench.Cycles(connection)
            while (elapsed := time.monotonic() - began) < self.arguments.seconds:
                begun = time.perf_counter()
                claims = worker.claim(ROOM)
                claimed = time.perf_counter()
                worker.settle(claims)
                self.claims.append((elapsed, (claimed - begun) * 1e3))
                self.settles.append((elapsed, (time.perf_counter() - claimed) * 1e3))
                time.sleep(CLAIM_EVERY_S * random.uniform(0.9, 1.1))

    def p95(self, what: list[tuple[float, float]], third: int) -> float:
        length = self.arguments.seconds / 3
        chosen = [ms for at, ms in what if int(at / length) == third]
        return round(bench.quantile(chosen, 0.95), 2)


def main() -> None:
    """Measure both at once, and print."""
    arguments = _arguments()
    with own_server() as server:
        loads = {
            name: Load(bench.database(server, name), arguments) for name in ("free", "held")
        }  # fmt: skip
        for load in loads.values():
            bench.add_endpoints(
                load.url, [f"http://127.0.0.1:1/{n}" for n in range(arguments.lanes)]
            )
        with psycopg.connect(loads["held"].url, application_name="a long report") as reader:
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT 1")
            _run(list(loads.values()))
            dead = {name: _dead(load.url) for name, load in loads.items()}
    figures: dict[str, dict[str, float]] = {}
    for name, load in loads.items():
        figures[name] = {
            "first_ms": load.p95(load.claims, 0),
            "last_ms": load.p95(load.claims, 2),
            "last_settle_ms": load.p95(load.settles, 2),
            "dead_rows": dead[name],
        }
        figures[name]["growth"] = round(figures[name]["last_ms"] / figures[name]["first_ms"], 2)
    ratio = round(figures["held"]["last_ms"] / figures["free"]["last_ms"], 2)
    rows = [[name, *each.values()] for name, each in figures.items()]
    rows.append(["held / free, last third", "", ratio, "", "", ""])
    head = ["p95 of a claim", "first third", "last third", "settle", "dead rows", "last / first"]
    bench.report({**figures, "ratio": ratio}, head, rows, as_json=arguments.json)


def _arguments() -> argparse.Namespace:
    parser = bench.options(__doc__, 180)
    parser.add_argument("--rate", type=float, default=200, help="events/s (default: %(default)g)")
    parser.add_argument("--lanes", type=int, default=10, help="endpoints (default: %(default)d)")
    return parser.parse_args()


def _run(loads: list[Load]) -> None:
    threads = [
        threading.Thread(target=work) for load in loads for work in (load.emit, load.work)
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _dead(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(DEAD).fetchone()
    return int(row[0]) if row else 0


if __name__ == "__main__":
    main()
