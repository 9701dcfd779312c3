"""How fast events are accepted: one by one, in batches, and by the SQL function.

    python -m tests.benchmarks.emit [--seconds 2] [--rounds 3] [--json]

Each against its yardstick in the same run, taken in turn:
single emits against an empty handler on the same gunicorn (one process, the product's own
configuration), the SQL function against a plain one-row INSERT of the same payload, each
committed. With 1, 10 and 100 matching endpoints. Read the ratios; the medians of the
rounds are shown.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import psycopg
import requests

from tests.benchmarks import bench, empty
from tests.benchmarks.load import load, post
from tests.stack import Process, Stack, eventually, free_port, own_server
from webhooks import embedded

MATCHING = (1, 10, 100)
# As many as gunicorn has threads: more would only wait in line.
CONNECTIONS = 16
BATCH = 100
BATCH_CONNECTIONS = 4
SQL_CONNECTIONS = 4
TYPE = "invoice.paid"

SUBSCRIBE = """
INSERT INTO webhooks.subscriptions (tenant_id, endpoint_id, pattern)
SELECT tenant_id, id, 'invoice.*' FROM webhooks.endpoints
"""
PLAIN_TABLE = """
CREATE TABLE plain (
    id uuid PRIMARY KEY DEFAULT webhooks.uuid7(), tenant text NOT NULL, type text NOT NULL,
    payload text NOT NULL, created_at timestamptz NOT NULL DEFAULT now())
"""
# A new server makes each WAL file as it goes; one that has run for a while uses old ones
# again. What this writes becomes such files at the next checkpoint.
WARM_UP = """
CREATE TABLE warm_up AS
SELECT gen_random_uuid(), repeat('x', 1000) FROM generate_series(1, 600000)
"""
PLAIN = "INSERT INTO plain (tenant, type, payload) VALUES (%s, %s, %s)"
EMIT = "SELECT webhooks.emit(%s, %s, %s)"

HEAD = (
    "matching", "empty/s", "single/s", "ratio", "batch events/s", "NDJSON events/s",
    "INSERT/s", "SQL emit/s", "ratio", f"ratio, {SQL_CONNECTIONS} connections",
)  # fmt: skip


def main() -> None:
    """Measure and print a table, or one JSON object."""
    parser = bench.options(__doc__, seconds=2.0)
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured")
    parser.add_argument("--bytes", type=int, default=1_000, help="size of the payload")
    arguments = parser.parse_args()
    payload = json.dumps({"data": "x" * (arguments.bytes - 12)})
    figures: dict[str, Any] = {}
    with own_server() as made:
        _warm_up(made)
        for matching in MATCHING:
            bench.note(f"{matching} matching endpoints")
            url = _prepare(made, matching)
            figures[str(matching)] = {
                **_api(url, payload, arguments.seconds, arguments.rounds),
                **_sql(url, payload, arguments.seconds, arguments.rounds),
            }
    rows = [_row(matching, found) for matching, found in figures.items()]
    bench.report(figures, HEAD, rows, as_json=arguments.json)


def _warm_up(made: embedded.Server) -> None:
    url = bench.database(made, "warm_up")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(WARM_UP)
        connection.execute("DROP TABLE warm_up")
    bench.tidy(url)


def _prepare(made: embedded.Server, matching: int) -> str:
    url = bench.database(made, f"emit_{matching}")
    bench.add_endpoints(url, ["http://127.0.0.1:1/"] * matching)
    with psycopg.connect(url) as connection:
        connection.execute(SUBSCRIBE)
        connection.execute(PLAIN_TABLE)
    bench.tidy(url)
    return url


def _api(url: str, payload: str, seconds: float, rounds: int) -> dict[str, float]:
    item = f'{{"type":"{TYPE}","payload":{payload}}}'.encode()
    with Stack(url) as stack:
        web = _start_web(stack)
        single = post("/api/v1/events", stack.key, item)
        nothing = post(empty.PATH, stack.key, item)
        path = "/api/v1/events/batch"
        array = post(path, stack.key, b"[" + b",".join([item] * BATCH) + b"]")
        lines = post(path, stack.key, b"\n".join([item] * BATCH), "application/x-ndjson")
        return _medians(
            rounds,
            {
                "empty_per_s": lambda: load(web.port, nothing, CONNECTIONS, seconds),
                "single_per_s": lambda: load(web.port, single, CONNECTIONS, seconds),
                "batch_per_s": lambda: BATCH * load(web.port, array, BATCH_CONNECTIONS, seconds),
                "ndjson_per_s": lambda: BATCH * load(web.port, lines, BATCH_CONNECTIONS, seconds),
            },
            {"ratio_single": ("single_per_s", "empty_per_s")},
        )


def _start_web(stack: Stack) -> Process:
    port = free_port()
    web = stack.start(
        "gunicorn", "--config", "python:webhooks.web", "--workers", "1",
        "--bind", f"127.0.0.1:{port}", "tests.benchmarks.empty:app()", port=port,
    )  # fmt: skip
    eventually(lambda: _answers(port), 20, "the web process answers")
    return web


def _answers(port: int) -> bool:
    try:
        return requests.get(f"http://127.0.0.1:{port}/healthz", timeout=2).ok
    except requests.RequestException:
        return False


def _sql(url: str, payload: str, seconds: float, rounds: int) -> dict[str, float]:
    def calls(statement: str, connections: int) -> Callable[[], float]:
        return lambda: _calls(url, statement, payload, connections, seconds)

    return _medians(
        rounds,
        {
            "insert_per_s": calls(PLAIN, 1),
            "sql_per_s": calls(EMIT, 1),
            "insert_many_per_s": calls(PLAIN, SQL_CONNECTIONS),
            "sql_many_per_s": calls(EMIT, SQL_CONNECTIONS),
        },
        {
            "ratio_sql": ("sql_per_s", "insert_per_s"),
            "ratio_sql_many": ("sql_many_per_s", "insert_many_per_s"),
        },
    )


def _calls(url: str, statement: str, payload: str, connections: int, seconds: float) -> float:
    """Committed calls per second over connections that each wait for the commit."""
    counts = [0] * connections

    def call(number: int) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                connection.execute(statement, ["default", TYPE, payload])
                counts[number] += 1

    threads = [threading.Thread(target=call, args=(number,)) for number in range(connections)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.monotonic() - began)


def _medians(
    rounds: int,
    measure: Mapping[str, Callable[[], float]],
    ratios: Mapping[str, tuple[str, str]],
) -> dict[str, float]:
    """Medians of figures taken in turn; a ratio is the median of each round's own."""
    found: dict[str, list[float]] = {name: [] for name in measure}
    for _ in range(rounds):
        for name, take in measure.items():
            found[name].append(take())
    medians = {name: round(statistics.median(values), 1) for name, values in found.items()}
    for name, (one, other) in ratios.items():
        each = [a / b for a, b in zip(found[one], found[other], strict=True)]
        medians[name] = round(statistics.median(each), 3)
    return medians


def _row(matching: str, found: Mapping[str, float]) -> tuple[object, ...]:
    names = (
        "empty_per_s", "single_per_s", "ratio_single", "batch_per_s", "ndjson_per_s",
        "insert_per_s", "sql_per_s", "ratio_sql", "ratio_sql_many",
    )  # fmt: skip
    return (matching, *(found[name] for name in names))


if __name__ == "__main__":
    main()
