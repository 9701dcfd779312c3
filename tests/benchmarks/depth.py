"""Claim and settle in a deep queue against an empty one.

    python -m tests.benchmarks.depth [--seconds 20] [--pending 3000000] [--scheduled 1000000]
                                     [--finished 5000000] [--lanes 1000] [--json]

Two databases on one server: "shallow" holds only what is measured, "deep" holds the rows
given as well. One worker without a network claims and settles (record of the attempt
included), in turns in the one and the other, so that what else the machine does falls on
both. Loading takes about 25 µs a row, so some four minutes by default.
"""

from __future__ import annotations

import argparse
import statistics
import time

import psycopg

from tests.benchmarks import bench
from tests.stack import own_server
from webhooks.db import connect
from webhooks.embedded import Server

ROUNDS = 10
ROOM = 300
WARM_UP_S = 1.0
# What the shallow queue holds, so that it does not run dry.
MOST_PER_S = 12_000
BODY = b'{"data": "' + b"x" * 980 + b'"}'
CHUNK = 500_000

# Endpoints turn by turn, as a busy system would have them, not sorted by lane.
LIVE = """
INSERT INTO webhooks.deliveries
    (shard, tenant_id, event_id, endpoint_id, event_type, status, tries, attempts, due_at)
SELECT l.shard, l.tenant_id, v.id, l.endpoint_id, 'bench.event', %(status)s, 0, 0,
       CASE WHEN %(status)s = 'scheduled' THEN now() + interval '1 day' * (1 + n %% 100) END
FROM generate_series(1, %(rows)s) AS n
JOIN (SELECT *, row_number() OVER (ORDER BY endpoint_id) - 1 AS turn FROM webhooks.lanes) l
    ON l.turn = n %% %(lanes)s
JOIN (SELECT id, row_number() OVER (ORDER BY id) - 1 AS turn FROM webhooks.events) v
    ON v.turn = n %% %(events)s
"""
FINISHED = """
INSERT INTO webhooks.deliveries
    (shard, tenant_id, event_id, endpoint_id, event_type, status, tries, attempts, status_code,
     finished_at)
SELECT l.shard, l.tenant_id, webhooks.uuid7(), l.endpoint_id, 'bench.event', 'delivered', 1, 1,
       200, now()
FROM generate_series(1, %(rows)s) AS n
JOIN (SELECT *, row_number() OVER (ORDER BY endpoint_id) - 1 AS turn FROM webhooks.lanes) l
    ON l.turn = n %% %(lanes)s
"""
EVENTS = 1_000


def main() -> None:
    """Load, measure in turns, print."""
    arguments = _arguments()
    with own_server() as server:
        shallow = _database(server, "shallow", arguments)
        deep = _database(server, "deep", arguments)
        began = time.monotonic()
        _load(deep, "pending", arguments.pending, arguments)
        _load(deep, "scheduled", arguments.scheduled, arguments)
        _load(deep, "finished", arguments.finished, arguments)
        for url in (shallow, deep):
            _load(url, "pending", int(MOST_PER_S * (arguments.seconds + WARM_UP_S)), arguments)
            bench.tidy(url)
        loaded_s = time.monotonic() - began
        rates = _measure(shallow, deep, arguments)
    medians = {name: statistics.median(each) for name, each in rates.items()}
    pairs = zip(rates["deep"], rates["shallow"], strict=True)
    ratio = round(statistics.median(deep / shallow for deep, shallow in pairs), 3)
    figures = {
        **{f"{name}_per_s": round(rate) for name, rate in medians.items()},
        "ratio": ratio,
        "rows": {name: getattr(arguments, name) for name in ("pending", "scheduled", "finished")},
        "loaded_in_s": round(loaded_s),
    }
    rows = [[name, *map(round, each), round(medians[name])] for name, each in rates.items()]
    rows.append(["ratio, round by round", *[""] * ROUNDS, ratio])
    head = ["claim + settle /s", *(str(number + 1) for number in range(ROUNDS)), "median"]
    bench.report(figures, head, rows, as_json=arguments.json)


def _arguments() -> argparse.Namespace:
    parser = bench.options(__doc__, 20)
    parser.add_argument("--pending", type=int, default=3_000_000)
    parser.add_argument("--scheduled", type=int, default=1_000_000)
    parser.add_argument("--finished", type=int, default=5_000_000)
    parser.add_argument("--lanes", type=int, default=1_000)
    return parser.parse_args()


def _database(server: Server, name: str, arguments: argparse.Namespace) -> str:
    url = bench.database(server, name)
    bench.add_endpoints(url, [f"http://127.0.0.1:1/{n}" for n in range(arguments.lanes)])
    with psycopg.connect(url) as connection:
        connection.execute(bench.EVENTS, [BODY, EVENTS])
    return url


def _load(url: str, what: str, rows: int, arguments: argparse.Namespace) -> None:
    bench.note(f"{rows:,} {what}")
    statement = FINISHED if what == "finished" else LIVE
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        for first in range(0, rows, CHUNK):
            values = {
                "rows": min(CHUNK, rows - first), "lanes": arguments.lanes,
                "events": EVENTS, "status": what,
            }  # fmt: skip
            connection.execute(statement, values)


def _measure(shallow: str, deep: str, arguments: argparse.Namespace) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {"shallow": [], "deep": []}
    bench.note("measuring")
    with connect(shallow, "bench") as first, connect(deep, "bench") as second:
        workers = {"shallow": bench.Cycles(first), "deep": bench.Cycles(second)}
        for worker in workers.values():
            worker.run(WARM_UP_S, ROOM)
        for _ in range(ROUNDS):
            for name, worker in workers.items():
                rates[name].append(worker.run(arguments.seconds / ROUNDS, ROOM))
    return rates


if __name__ == "__main__":
    main()
