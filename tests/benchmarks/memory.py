"""Memory of a worker process that holds 2,000 deliveries.

    python -m tests.benchmarks.memory [--seconds 5] [--in-flight 2000] [--bytes 1000] [--json]

Worker processes with WEBHOOKS_MAX_IN_FLIGHT set to that, and a receiver that accepts and
never answers, so that each holds as many connections. RSS counts pages that the processes
share in each of them; PSS divides them. Idle: before the first claim.
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

from tests.benchmarks import bench
from tests.benchmarks.arrivals import arrivals
from tests.stack import Process, Stack, eventually, own_server


def main() -> None:
    """Measure and print."""
    arguments = _arguments()
    wanted = arguments.in_flight * arguments.workers
    body = b'{"data": "' + b"x" * (arguments.bytes - 12) + b'"}'
    with own_server() as server, arrivals() as receiver:
        url = bench.database(server, "memory")
        env = {"WEBHOOKS_MAX_IN_FLIGHT": str(arguments.in_flight)}
        with Stack(url, env) as stack:
            worker = stack.start_worker(arguments.workers)
            time.sleep(2)
            idle = _memory_mb(worker)
            # One delivery each: an endpoint may not take all of a worker's room.
            urls = [f"{receiver.url}/hang/{n}" for n in range(2 * wanted)]
            bench.fill(url, bench.add_endpoints(url, urls), body, 1)
            eventually(lambda: bench.metric(worker, "webhooks_in_flight") == wanted, 60, "full")
            eventually(lambda: receiver.count() >= wanted, 20, "the receiver holds all of them")
            peak = _peak_mb(worker, arguments.seconds)
    figures = {"in_flight": arguments.in_flight, "idle": idle, "full": peak}
    rows = [
        [f"{name}, process {number + 1}", each["rss_mb"], each["pss_mb"]]
        for name, processes in (("idle", idle), (f"{arguments.in_flight} in flight", peak))
        for number, each in enumerate(processes)
    ]
    bench.report(figures, ["MB", "RSS", "PSS"], rows, as_json=arguments.json)


def _arguments() -> argparse.Namespace:
    parser = bench.options(__doc__, 5)
    parser.add_argument("--workers", type=int, default=2, help="gunicorn worker processes")
    parser.add_argument("--in-flight", type=int, default=2_000, help="of each process")
    parser.add_argument("--bytes", type=int, default=1_000, help="size of the payload")
    return parser.parse_args()


def _peak_mb(worker: Process, seconds: float) -> list[dict[str, float]]:
    """The most that each process had during these seconds."""
    until = time.monotonic() + seconds
    peak = _memory_mb(worker)
    while time.monotonic() < until:
        time.sleep(0.2)
        for most, now in zip(peak, _memory_mb(worker), strict=True):
            most.update({name: max(most[name], now[name]) for name in now})
    return peak


def _memory_mb(worker: Process) -> list[dict[str, float]]:
    return [_of(pid) for pid in worker.children()]


def _of(pid: int) -> dict[str, float]:
    """Resident and proportional memory in megabytes (10^6 bytes)."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    kib = dict(re.findall(r"^(Rss|Pss):\s+(\d+) kB$", text, re.MULTILINE))
    return {f"{name.lower()}_mb": round(int(size) * 1.024 / 1e3, 1) for name, size in kib.items()}


if __name__ == "__main__":
    main()
