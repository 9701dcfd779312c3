"""What healthy endpoints notice of others that hang, are flooded, or are many.

    python -m tests.benchmarks.isolation [--seconds 45] [--rate 1000] [--backlog 100000] [--json]

Four runs with the same load of ``--rate`` events a second, below saturation, each event to
one endpoint at random; the time runs from before the emitting transaction to when the
kernel saw the delivery's first bytes at the receiver:

- healthy: 1,000 endpoints that answer at once;
- hanging: every tenth accepts and never answers (timeout 20 s, cap 50 each);
- backlog: one endpoint more, which has ``--backlog`` deliveries pending;
- many: 10,000 endpoints more, each of which has one delivery pending.

Only the healthy ones' times are shown, and their p99 against the first run's. The first
2 s are a warm-up; with fewer than 30 seconds no attempt that hangs would reach its timeout.
"""

from __future__ import annotations

import argparse
import threading
from dataclasses import dataclass

from tests.benchmarks import bench
from tests.benchmarks.arrivals import Receiver, arrivals
from tests.stack import Stack, own_server
from webhooks.embedded import Server

ENDPOINTS = 1_000
HANGING_EVERY = 10
MANY = 10_000
WARM_UP_S = 2.0
BODY = '{"data": "' + "x" * 980 + '"}'


@dataclass(frozen=True)
class Run:
    """One run: which share of the endpoints hangs, and what else is pending at its start."""

    name: str
    hanging: bool = False
    flooded: int = 0
    events_each: int = 0


def main() -> None:
    """Measure and print."""
    arguments = _arguments()
    runs = (
        Run("healthy"),
        Run("hanging", hanging=True),
        Run("backlog", flooded=1, events_each=arguments.backlog),
        Run("many", flooded=MANY, events_each=1),
    )
    wanted = [run for run in runs if run.name in arguments.runs.split(",")]
    figures: dict[str, dict[str, float]] = {}
    with own_server() as server, arrivals() as receiver:
        for run in wanted:
            bench.note(run.name)
            figures[run.name] = bench.spread(_measure(server, receiver, run, arguments))
    for figure in figures.values():
        figure["ratio"] = round(figure["p99"] / figures[wanted[0].name]["p99"], 2)
    rows = [[name, *figure.values()] for name, figure in figures.items()]
    head = ["ms, healthy ones", "p50", "p95", "p99", "max", "p99 ratio"]
    bench.report(figures, head, rows, as_json=arguments.json)


def _arguments() -> argparse.Namespace:
    parser = bench.options(__doc__, 45)
    parser.add_argument("--workers", type=int, default=2, help="gunicorn worker processes")
    parser.add_argument("--rate", type=float, default=1_000, help="events/s (default: %(default)g)")
    parser.add_argument("--backlog", type=int, default=100_000, help="of one endpoint")
    parser.add_argument("--runs", default="healthy,hanging,backlog,many")
    return parser.parse_args()


def _measure(
    server: Server, receiver: Receiver, run: Run, arguments: argparse.Namespace
) -> list[float]:
    """Milliseconds of each delivery to a healthy endpoint."""
    url = bench.database(server, run.name)
    hanging = set(range(0, ENDPOINTS, HANGING_EVERY)) if run.hanging else set()
    words = ["hang" if number in hanging else "ok" for number in range(ENDPOINTS)]
    bench.add_endpoints(url, [f"{receiver.url}/{w}/{n}" for n, w in enumerate(words)])
    if run.flooded:
        paths = [f"{receiver.url}/ok/{ENDPOINTS + n}" for n in range(run.flooded)]
        flooded = bench.add_endpoints(url, paths, first=ENDPOINTS)
        bench.fill(url, flooded, BODY.encode(), run.events_each)
    healthy = [number for number in range(ENDPOINTS) if number not in hanging]
    with Stack(url) as stack:
        worker = stack.start_worker(arguments.workers)
        # The hanging ones get their share of the load by a second, equally steady stream.
        beside = threading.Thread(target=_load, args=(url, sorted(hanging), arguments))
        beside.start()
        _load(url, healthy, arguments, WARM_UP_S)
        sent = _load(url, healthy, arguments, arguments.seconds)
        beside.join()
        bench.note(f"in flight at the end: {bench.metric(worker, 'webhooks_in_flight'):.0f}")
        return receiver.latencies_ms(sent, within_s=300)


def _load(
    url: str, numbers: list[int], arguments: argparse.Namespace, seconds: float | None = None
) -> dict[str, int]:
    """Offer these endpoints their share of the rate; all of the run unless ``seconds`` says."""
    rate = arguments.rate * len(numbers) / ENDPOINTS
    if not numbers:
        return {}
    return bench.offer(url, BODY, rate, seconds or WARM_UP_S + arguments.seconds, numbers)


if __name__ == "__main__":
    main()
