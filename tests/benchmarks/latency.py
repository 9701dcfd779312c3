"""From emit by the API to the first byte at the receiver: idle, and at half load.

    python -m tests.benchmarks.latency [--seconds 20] [--rate N] [--json]

Real gunicorn web and delivery workers, the embedded PostgreSQL with its durable settings,
the receiver and the emitters on the same cores. Idle: single emits, one after the other at
random distances. Then the full rate is measured (batches as fast as they are accepted and
delivered), and half of it offered in batches while the same single emits go on; ``--rate``
names another background rate. The time runs from before the request is sent to when the
kernel saw the delivery's first bytes.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from tests.benchmarks import bench
from tests.benchmarks.arrivals import Receiver, arrivals
from tests.stack import Stack, own_server

ENDPOINTS = 50
BATCH = 50
EMITTERS = 2
PROBES_PER_S = 20
WARM_UP_S = 2.0
BODY = {"data": "x" * 980}


def main() -> None:
    """Measure and print."""
    arguments = _arguments()
    with own_server() as server, arrivals() as receiver:
        url = bench.database(server, "latency")
        bench.add_endpoints(url, [f"{receiver.url}/ok/{n}" for n in range(ENDPOINTS)], cap=1000)
        with Stack(url) as stack:
            stack.start_web()
            stack.start_worker(arguments.workers)
            figures = _measure(Client(stack.base_url, stack.key), receiver, arguments)
    rows = [[name, *figures[name].values()] for name in ("idle", "half_load")]
    rows.append([f"full rate {figures['full_per_s']}/s", "", "", "", ""])
    bench.report(figures, ["ms", "p50", "p95", "p99", "max"], rows, as_json=arguments.json)


def _arguments() -> argparse.Namespace:
    parser = bench.options(__doc__, 20)
    parser.add_argument("--workers", type=int, default=2, help="gunicorn worker processes")
    parser.add_argument("--rate", type=float, help="events/s of the load (default: half the full)")
    return parser.parse_args()


@dataclass
class Client:
    """An emitter over HTTP; ``sent`` is when each event was emitted, in ns."""

    base_url: str
    key: str
    sent: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._connection = http.client.HTTPConnection(self.base_url.removeprefix("http://"))

    def another(self) -> Client:
        return Client(self.base_url, self.key)

    def emit(self) -> None:
        now = time.time_ns()
        self.sent[self._post("/api/v1/events", _event())["id"]] = now

    def emit_batch(self) -> int:
        """Emit a batch; answers how many were accepted."""
        now = time.time_ns()
        answers = self._post("/api/v1/events/batch", [_event() for _ in range(BATCH)])["data"]
        self.sent.update(dict.fromkeys((answer["id"] for answer in answers), now))
        return len(answers)

    def _post(self, path: str, body: object) -> Any:
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        self._connection.request("POST", path, json.dumps(body), headers)
        answer = self._connection.getresponse()
        text = answer.read()
        assert answer.status in (200, 202), text
        return json.loads(text)


def _event() -> dict[str, object]:
    return {"type": f"bench.{random.randrange(ENDPOINTS)}", "payload": BODY}


def _measure(client: Client, receiver: Receiver, arguments: argparse.Namespace) -> dict[str, Any]:
    _probe(client, WARM_UP_S)
    bench.note("idle")
    idle = _probe(client, arguments.seconds)
    idle_ms = receiver.latencies_ms(idle)
    bench.note("full rate")
    full = _full_rate(client, receiver, arguments.seconds)
    rate = arguments.rate or full / 2
    bench.note(f"load of {rate:.0f}/s")
    loaded_ms = receiver.latencies_ms(_under_load(client, rate, arguments.seconds))
    return {
        "idle": bench.spread(idle_ms),
        "half_load": bench.spread(loaded_ms),
        "full_per_s": round(full),
        "load_per_s": round(rate),
    }


def _probe(client: Client, seconds: float) -> dict[str, int]:
    """Single emits at random distances; when each was sent."""
    prober = client.another()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        prober.emit()
        time.sleep(random.uniform(0, 2 / PROBES_PER_S))
    return prober.sent


def _full_rate(client: Client, receiver: Receiver, seconds: float) -> float:
    """Events per second that are emitted and delivered when emitters never wait."""
    emitters = [client.another() for _ in range(EMITTERS)]
    until = time.monotonic() + seconds

    def work(emitter: Client) -> None:
        while time.monotonic() < until:
            emitter.emit_batch()

    began = time.time_ns()
    _together([threading.Thread(target=work, args=(emitter,)) for emitter in emitters])
    sent = {event: at for emitter in emitters for event, at in emitter.sent.items()}
    receiver.latencies_ms(sent, within_s=300)
    return len(sent) / (max(receiver.arrivals[event] for event in sent) - began) * 1e9


def _under_load(client: Client, rate: float, seconds: float) -> dict[str, int]:
    """Single emits while ``rate`` events a second go in by batches; those of the single ones."""
    loader = client.another()
    until = time.monotonic() + WARM_UP_S + seconds

    def load() -> None:
        began, given = time.monotonic(), 0
        while time.monotonic() < until:
            given += loader.emit_batch()
            time.sleep(max(0.0, began + given / rate - time.monotonic()))

    thread = threading.Thread(target=load)
    thread.start()
    time.sleep(WARM_UP_S)
    sent = _probe(client, seconds)
    thread.join()
    return sent


def _together(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
