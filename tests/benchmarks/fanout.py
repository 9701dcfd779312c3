"""One emit to many endpoints: when it is answered, expanded and delivered.

    python -m tests.benchmarks.fanout [--workers 2] [--rounds 3] [--json]

Real web process and workers, the embedded PostgreSQL with its durable settings, and a
receiver that is not the bottleneck, for 500 endpoints (within the emit) and 1,000 and
10,000 (left to the workers). Times in milliseconds from the request on, medians of rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time

import psycopg

from tests.benchmarks import bench
from tests.benchmarks.receivers import receiver
from tests.stack import Stack, eventually, own_server

SIZES = (500, 1_000, 10_000)
POLL_S = 0.005

SUBSCRIBE = """
INSERT INTO webhooks.subscriptions (tenant_id, endpoint_id, pattern)
SELECT tenant_id, id, 'fanout' FROM webhooks.endpoints
"""
EXPANDED = "SELECT NOT EXISTS (SELECT FROM webhooks.fanouts)"
DELIVERED = "SELECT NOT EXISTS (SELECT FROM webhooks.deliveries_queue)"

HEAD = ("endpoints", "answered ms", "expanded ms", "delivered ms", "deliveries/s")


def main() -> None:
    """Measure and print a table, or one JSON object."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--workers", type=int, default=2, help="gunicorn worker processes")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured")
    arguments = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    with own_server() as made, receiver() as (url, _):
        for size in SIZES:
            bench.note(f"{size} endpoints")
            database_url = bench.database(made, f"fanout_{size}")
            bench.add_endpoints(database_url, [url] * size)
            with psycopg.connect(database_url) as connection:
                connection.execute(SUBSCRIBE)
            bench.tidy(database_url)
            figures[str(size)] = _measure(database_url, size, arguments)
    rows = [(size, *found.values()) for size, found in figures.items()]
    bench.report(figures, HEAD, rows, as_json=arguments.json)


def _measure(database_url: str, size: int, arguments: argparse.Namespace) -> dict[str, float]:
    with Stack(database_url) as stack, psycopg.connect(database_url, autocommit=True) as connection:
        stack.start_web()
        stack.start_worker(arguments.workers)
        stack.emit({}, "nobody.listens")
        rounds = [_round(stack, connection, size) for _ in range(arguments.rounds + 1)]
        if stack.statuses().keys() != {"delivered"}:
            raise SystemExit("deliveries failed; the figures would mean nothing")
    # The first is the warm-up.
    answered, expanded, delivered = (
        round(statistics.median(column) * 1e3, 1) for column in zip(*rounds[1:], strict=True)
    )
    return {
        "answered_ms": answered,
        "expanded_ms": expanded,
        "delivered_ms": delivered,
        "deliveries_per_s": round(size / delivered * 1e3),
    }


def _round(stack: Stack, connection: psycopg.Connection, size: int) -> tuple[float, float, float]:
    began = time.monotonic()
    answer = stack.post("/events", {"type": "fanout", "payload": {"data": "x" * 1_000}})
    answered = time.monotonic() - began
    assert answer.json()["deliveries"] == size
    expanded = _when(connection, EXPANDED, began)
    return answered, expanded, _when(connection, DELIVERED, began)


def _when(connection: psycopg.Connection, question: str, began: float) -> float:
    """Seconds after ``began`` when the answer became yes."""

    def yes() -> bool:
        row = connection.execute(question).fetchone()
        time.sleep(POLL_S)
        return bool(row and row[0])

    eventually(yes, 60, question)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
