"""Both transports against the same receiver, keep-alive, http: requests a second, CPU, memory.

    python -m tests.benchmarks.transports --seconds 3

Every measurement is a process of its own; "cpu" is the sender's, RSS what it grew by while
that many requests were in flight.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.bench import HEADERS
from tests.benchmarks.receivers import receiver
from webhooks.settings import Settings
from webhooks.transports import choice
from webhooks.transports.base import Request

BODY = b"x" * 1024
IN_FLIGHT = (1, 16, 64, 128, 256)
LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)


def measure(kind: str, url: str, in_flight: int, seconds: float) -> dict[str, Any]:
    """Keep ``in_flight`` requests under way; what came of it."""
    settings = Settings(transport=kind, allow_http=True, allow_cidrs=LOOPBACK)
    before = resident_kb()
    transport = choice.make(settings)
    request = Request(None, url, HEADERS, BODY, 5.0, 20.0)
    for _ in range(min(in_flight, transport.capacity)):
        transport.start(request)
    done, began, cpu = 0, 0.0, 0.0
    warm_until = time.monotonic() + 0.5
    while not began or time.monotonic() < began + seconds:
        responses = transport.wait(0.1)
        assert all(each.status_code == 200 for each in responses), responses
        for _ in responses:
            transport.start(request)
        done += len(responses)
        if not began and time.monotonic() >= warm_until:
            began, done, cpu = time.monotonic(), 0, cpu_s()
    took, spent = time.monotonic() - began, cpu_s() - cpu
    grown = resident_kb() - before
    transport.close()
    return {"per_s": done / took, "cpu_us": spent / done * 1e6, "grown_kb": grown}


def resident_kb() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def apart(kind: str, url: str, in_flight: int, seconds: float) -> dict[str, Any]:
    """``measure`` in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.transports", "--one", kind, url]
    done = subprocess.run(
        [*command, str(in_flight), str(seconds)], stdout=subprocess.PIPE, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return {"transport": kind, "in_flight": in_flight, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        kind, url, in_flight, seconds = chosen.one
        found = measure(kind, url, int(in_flight), float(seconds))
        sys.stdout.write(json.dumps(found) + "\n")
        return
    with receiver() as (url, _):
        rows = [
            apart(kind, url, in_flight, chosen.seconds)
            for in_flight in IN_FLIGHT
            for kind in (choice.CURL, choice.REQUESTS)
        ]
    if chosen.json:
        sys.stdout.write(json.dumps(rows) + "\n")
        return
    for row in rows:
        sys.stdout.write(
            "{transport:8} {in_flight:4} in flight {per_s:8.0f} requests/s {cpu_us:6.0f} µs each "
            "{grown_kb:7} kB\n".format(**row)
        )


if __name__ == "__main__":
    main()
