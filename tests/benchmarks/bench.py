"""What the benchmarks share: options, statistics, output, a server, a queue, offered load."""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import requests

from tests.stack import Process
from tests.support import KEYRING
from webhooks import deliveries, embedded, ids, workers
from webhooks.attempt import Claim, Outcome, Timings
from webhooks.deliveries import NO_CURSOR, Cursor, Settlement
from webhooks.schema import upgrade
from webhooks.secrets import Keyring, Place

TICK_S = 0.02

ENDPOINTS = """
INSERT INTO webhooks.endpoints (tenant_id, url, timeout_s, max_in_flight)
SELECT t.id, u.url, 20, %s
FROM webhooks.tenants t, unnest(%s::text[]) WITH ORDINALITY AS u (url, n) ORDER BY n
RETURNING id, tenant_id
"""
LANES = """
INSERT INTO webhooks.lanes (shard, endpoint_id, tenant_id, max_in_flight, host)
SELECT webhooks.shard_of(tenant_id), id, tenant_id, max_in_flight, webhooks.host_of(url)
FROM webhooks.endpoints
ON CONFLICT DO NOTHING
"""
SUBSCRIPTIONS = """
INSERT INTO webhooks.subscriptions (tenant_id, endpoint_id, pattern)
SELECT t.id, u.id, u.pattern
FROM webhooks.tenants t, unnest(%s::uuid[], %s::text[]) AS u (id, pattern)
"""
SECRETS = """
COPY webhooks.signing_secrets (id, tenant_id, endpoint_id, ciphertext) FROM STDIN
"""
EVENTS = """
INSERT INTO webhooks.events (shard, id, tenant_id, type, payload, created_at)
SELECT webhooks.shard_of(id), webhooks.uuid7(), id, 'bench.event', %s, now()
FROM webhooks.tenants, generate_series(1, %s)
"""
# One for each event and endpoint.
DELIVERIES = """
INSERT INTO webhooks.deliveries (shard, tenant_id, event_id, endpoint_id, event_type)
SELECT v.shard, v.tenant_id, v.id, e.id, v.type
FROM webhooks.events v, unnest(%s::uuid[]) AS e (id) WHERE v.type = 'bench.event'
"""
EMIT = "SELECT webhooks.emit('default', 'bench.' || n, %s) FROM unnest(%s::int[]) AS n"

HEADERS = (
    ("Content-Type", "application/json"),
    ("User-Agent", "Webhooks/bench"),
    ("webhook-id", "evt_01kbcdefghjkmnpqrstvwxyz01"),
    ("webhook-timestamp", "1700000000"),
    ("webhook-signature", "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
    ("webhook-event-type", "bench.event"),
    ("webhook-attempt", "1"),
)
ANSWERED = (("Content-Type", "text/plain"), ("Content-Length", "2"), ("Server", "bench"))


def options(doc: str | None, seconds: float) -> argparse.ArgumentParser:
    """A parser with what every benchmark understands."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument(
        "--seconds",
        type=float,
        default=seconds,
        help="measured time of each (default: %(default)g)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def report(
    figures: Mapping[str, object], head: Sequence[str], rows: Sequence[Sequence[object]], *,
    as_json: bool,
) -> None:  # fmt: skip
    """Print a table of ``rows``, or ``figures`` as one JSON object."""
    sys.stdout.write(json.dumps(figures) + "\n" if as_json else table(head, rows))


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns as wide as their widest cell; all but the first aligned to the right."""
    cells = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in cells
    )
    return "".join(f"{line.rstrip()}\n" for line in lines)


def note(text: str) -> None:
    """Say on standard error what is being done: a run may take minutes."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


def quantile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` of all are not above (nearest rank)."""
    ranked = sorted(values)
    return ranked[math.ceil(share * len(ranked)) - 1]


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, 95th and 99th percentile, and the largest."""
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    return {name: round(quantile(values, share), 2) for name, share in shares.items()}


def database(made: embedded.Server, name: str) -> str:
    """URL of a new database with our schema."""
    made.ensure_database(name)
    upgrade(made.url(name))
    return made.url(name)


def add_endpoints(
    database_url: str, urls: Sequence[str], cap: int = 50, first: int = 0
) -> list[UUID]:
    """Endpoints of the default tenant; the n-th, from ``first``, gets the event type bench.<n>."""
    keyring = Keyring.parse(KEYRING)
    with psycopg.connect(database_url) as connection:
        made = connection.execute(ENDPOINTS, [cap, list(urls)]).fetchall()
        endpoints = [row[0] for row in made]
        patterns = [f"bench.{number}" for number in range(first, first + len(made))]
        connection.execute(LANES)
        connection.execute(SUBSCRIPTIONS, [endpoints, patterns])
        with connection.cursor() as cursor, cursor.copy(SECRETS) as copy:
            for number, (endpoint_id, tenant_id) in enumerate(made):
                # An id of their own kind is not needed: any that is unique.
                secret_id = UUID(int=endpoint_id.int ^ (number + 1))
                place = Place("signing_secrets", tenant_id, secret_id, "ciphertext")
                secret = keyring.encrypt(place, b"whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX")
                copy.write_row((secret_id, tenant_id, endpoint_id, secret))
    return endpoints


def fill(database_url: str, endpoints: Sequence[UUID], body: bytes, events: int) -> None:
    """Make ``events`` events, each pending for each of the endpoints."""
    with psycopg.connect(database_url) as connection:
        connection.execute(EVENTS, [body, events])
        connection.execute(DELIVERIES, [list(endpoints)])
    tidy(database_url)


def tidy(database_url: str) -> None:
    """Vacuum and analyse as autovacuum would in time, and write what is dirty."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def emit(connection: psycopg.Connection, body: str, numbers: Sequence[int]) -> list[str]:
    """Emit one event to each numbered endpoint in one transaction; their public ids."""
    rows = connection.execute(EMIT, [body, list(numbers)]).fetchall()
    return [ids.encode(ids.EVENT, row[0]) for row in rows]


def offer(
    database_url: str, body: str, rate: float, seconds: float, numbers: Sequence[int]
) -> dict[str, int]:
    """Emit ``rate`` events a second, each to a random endpoint; when each was emitted, in ns.

    An open loop: when the database is late, the next events do not wait for it. The
    time is that before the transaction, by the clock of the receiver (CLOCK_REALTIME).
    """
    sent: dict[str, int] = {}
    began, given = time.monotonic(), 0
    with psycopg.connect(database_url, autocommit=True) as connection:
        while (elapsed := time.monotonic() - began) < seconds:
            due = int(elapsed * rate) - given
            if due:
                now = time.time_ns()
                chosen = random.choices(numbers, k=due)
                sent.update(dict.fromkeys(emit(connection, body, chosen), now))
                given += due
            time.sleep(max(0.0, TICK_S - (time.monotonic() - began - elapsed)))
    return sent


def delivered(worker: Process) -> float:
    """Attempts that the workers have settled as delivered."""
    name = "webhooks_attempts_total{"
    lines = [
        line for line in _metrics(worker) if line.startswith(name) and 'outcome="delivered"' in line
    ]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def metric(worker: Process, name: str) -> float:
    """A metric without labels, over all worker processes."""
    lines = [line for line in _metrics(worker) if line.startswith(f"{name} ")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def _metrics(worker: Process) -> list[str]:
    answer = requests.get(f"http://127.0.0.1:{worker.port}/metrics", timeout=10)
    return answer.text.splitlines()


def postmaster(made: embedded.Server) -> int:
    return int((made.cluster / "postmaster.pid").read_text().splitlines()[0])


def cpu_s(parent: int) -> float:
    """CPU seconds that a process and its children have used."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    ticks = 0
    for pid in [str(parent), *children]:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class Cycles:
    """A worker without a network: claims, and settles what it claimed, on one connection."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self.connection = connection
        self.worker_id = workers.register(connection, 1_000, 30)
        self.cursor: Cursor = NO_CURSOR

    def claim(self, room: int) -> tuple[Claim, ...]:
        batch = deliveries.claim(self.connection, self.worker_id, self.cursor, room)
        self.cursor = batch.cursor
        return batch.claims

    def settle(self, claims: Sequence[Claim]) -> None:
        if claims:
            done = [Settlement(claim, answered(), None) for claim in claims]
            deliveries.settle(self.connection, self.worker_id, done)

    def run(self, seconds: float, room: int) -> float:
        """Deliveries claimed and settled per second."""
        began, count = time.monotonic(), 0
        while (elapsed := time.monotonic() - began) < seconds:
            claims = self.claim(room)
            self.settle(claims)
            count += len(claims)
        return count / elapsed


@lru_cache(maxsize=1)
def _timings() -> Timings:
    return Timings(0.1, 0.2, None, 1.0, 1.2)


def answered(error: Any = None, status_code: int = 200) -> Outcome:
    """An outcome as the transport makes it, with headers and body to record."""
    now = time.monotonic()
    return Outcome(
        error, status_code=status_code, started=now, finished=now, timings=_timings(),
        url="http://127.0.0.1:1/", peer="127.0.0.1", request_headers=HEADERS,
        response_headers=ANSWERED, body=b"ok",
    )  # fmt: skip
