"""Plans of the hot statements at depth: none reads a whole table, whatever the statistics say."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.queue import claim, delivered, emit, make_endpoint, register
from webhooks import fanouts, workers
from webhooks.db import INDEXES_ONLY, transaction
from webhooks.deliveries import cancelling, claims, health, operator, recovery, settlement, targets
from webhooks.deliveries.claims import PICK, SETTINGS
from webhooks.deliveries.scan import SCAN, THE_END

ROWS = 200_000
MILLION = 1_000_000
LANES = 10_000
BUSY = 200
SECRETS = 10_000
NOBODY = UUID(int=1)
# An id of today: others are pruned from the plan with all the partitions.
TODAY = UUID(int=((int(time.time()) + 3600) * 1000 << 80) | 7 << 76)

# In a chunk of its own, so that a scan of the primary key would find them all.
FILL_SECRETS = """
INSERT INTO webhooks.signing_secrets (tenant_id, endpoint_id, ciphertext)
SELECT tenant_id, id, 'x' FROM webhooks.endpoints, generate_series(1, %s)
"""
FILL_ENDPOINTS = """
INSERT INTO webhooks.endpoints (tenant_id, url, timeout_s, max_in_flight)
SELECT id, 'http://127.0.0.1:1/', 20, 50 FROM webhooks.tenants, generate_series(1, %s)
"""
# All but the first want something else.
SUBSCRIBE = """
INSERT INTO webhooks.subscriptions (tenant_id, endpoint_id, pattern)
SELECT tenant_id, id, CASE WHEN n = 1 THEN 'deep.*' ELSE 'other.' || n END
FROM (SELECT *, row_number() OVER (ORDER BY id) AS n FROM webhooks.endpoints) e
"""
FILL_LANES = """
INSERT INTO webhooks.lanes (shard, endpoint_id, tenant_id, max_in_flight, host)
SELECT shard, webhooks.uuid7(), tenant_id, 50, 1 FROM webhooks.lanes, generate_series(1, %s)
"""
FILL_QUEUE = """
INSERT INTO webhooks.deliveries
    (shard, tenant_id, event_id, endpoint_id, event_type, status, due_at)
SELECT shard, tenant_id, webhooks.uuid7(), endpoint_id, 'a',
       CASE WHEN n %% 4 = 0 THEN 'scheduled' ELSE 'pending' END,
       CASE WHEN n %% 4 = 0 THEN now() + n * interval '1 s' END
FROM (SELECT * FROM webhooks.lanes ORDER BY endpoint_id LIMIT %s) l, generate_series(1, %s) AS n
"""


@pytest.fixture(
    params=[
        "analysed while empty",
        "drained before",
        "fresh statistics",
        pytest.param("a million rows", marks=pytest.mark.slow),
    ]
)
def deep(connection: psycopg.Connection, request: pytest.FixtureRequest) -> None:
    """200,000 live rows over 200 of 10,000 lanes, and what the planner believes of them.

    Drained before: the table once was as large, and was vacuumed when nothing was left; it
    then has many pages and, says the planner, hardly a row.
    """
    connection.execute("ALTER TABLE webhooks.deliveries_queue SET (autovacuum_enabled = off)")
    connection.execute("ANALYZE webhooks.deliveries_queue, webhooks.lanes")
    make_endpoint(connection)
    connection.execute(FILL_LANES, [LANES - 1])
    connection.execute(FILL_SECRETS, [SECRETS])
    rows = MILLION if request.param == "a million rows" else ROWS
    if request.param == "drained before":
        connection.execute(FILL_QUEUE, [BUSY, rows // BUSY])
        connection.execute("DELETE FROM webhooks.deliveries_queue")
        connection.execute("VACUUM ANALYZE webhooks.deliveries_queue")
    connection.execute(FILL_QUEUE, [BUSY, rows // BUSY])
    if request.param in ("fresh statistics", "a million rows"):
        connection.execute("ANALYZE webhooks.deliveries_queue, webhooks.lanes")


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every node of a plan."""
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def explain(connection: psycopg.Connection, statement: str, values: Any) -> list[dict[str, Any]]:
    """The nodes of a statement's plan, under the settings that it runs with."""
    with transaction(connection, *(SETTINGS if statement in CLAIM else INDEXES_ONLY)):
        row = connection.execute(f"EXPLAIN (FORMAT JSON) {statement}", values).fetchone()
    assert row is not None
    return [node for entry in row[0] for node in nodes(entry["Plan"])]


def whole_reads(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of a plan's nodes, those that read a table or index without a condition to start from."""
    return [
        node
        for node in found
        if "Relation Name" in node
        and "Scan" in node["Node Type"]
        and not node.keys() & {"Index Cond", "TID Cond", "Recheck Cond"}
        and node.get("Index Name") not in SMALL
    ]


# Never more rows than there are workers, or than all of them hold, or lanes to be shown closed.
SMALL = {
    "pk_workers",
    "ix_deliveries_queue_worker",
    "ix_deliveries_queue_in_flight",
    "ix_lanes_closed_status",
}

CLAIM = {PICK, claims.LOCK, claims.SPEND, claims.SIZES, claims.PAYLOADS, targets.TARGETS,
         targets.SECRETS, claims.UNDO}  # fmt: skip

# These lock a given batch in the order of its ids; the others have nothing to sort.
SORTING = {"hold", "give back", "undo", "held by dead", "lock rows", "orphaned", "lane lock",
           "dead workers"}  # fmt: skip

ALL_LANES = {
    "shard": -1, "endpoint": NOBODY, "last_shard": THE_END.shard,
    "last_endpoint": THE_END.endpoint_id, "lanes": 100, "probes": 2000, "full": [1],
}  # fmt: skip

ONE = f"{{{NOBODY}}}"
# As many as a claim brings: with one alone a bad plan can look cheap.
MANY = "{" + ",".join(str(UUID(int=n)) for n in range(100)) + "}"
NUMBERS = "{" + ",".join("1" for _ in range(100)) + "}"
LANE = {"shards": NUMBERS, "endpoints": MANY}
MINE = {"ids": MANY, "attempts": NUMBERS, "worker": NOBODY}

STATEMENTS: dict[str, tuple[str, Any]] = {
    "scan": (SCAN, ALL_LANES),
    "fence": (workers.FENCE, [NOBODY]),
    "lock": (claims.LOCK, LANE),
    "pick": (PICK, {**LANE, "caps": NUMBERS, "bulk_first": True, "mosts": NUMBERS,
                    "worker": uuid4()}),
    "spend": (claims.SPEND, {**LANE, "taken": NUMBERS}),
    "sizes": (claims.SIZES, [f"{{{TODAY}}}"]),
    "payloads": (claims.PAYLOADS, [f"{{{TODAY}}}"]),
    "targets": (targets.TARGETS, [MANY]),
    "secrets": (targets.SECRETS, [MANY]),
    "undo": (claims.UNDO, MINE),
    "give back": (claims.GIVE_BACK, MINE),
    "hold": (settlement.HOLD, MINE),
    "recorded": (settlement.RECORDED, MINE),
    "schedule": (
        settlement.SCHEDULE, {"ids": MANY, "delays": NUMBERS, "code": 500, "error": "http_5xx"},
    ),
    "finish": (
        settlement.FINISH,
        {"ids": MANY, "status": "delivered", "reason": None, "code": 200, "error": None},
    ),
    "lane lock": (health.LANE_LOCK, {**LANE, "failed": [True] * 100}),
    "lane write": (
        health.LANE_WRITE,
        {
            **LANE,
            **dict.fromkeys(("failures", "blocked", "strikes", "broken_s"), NUMBERS),
            **dict.fromkeys(("codes", "close_s", "throttle_s"), NUMBERS),
            **dict.fromkeys(("recovered", "reopened", "failed", "warned", "noted"), [True] * 100),
            "goes_on": "",
            **dict.fromkeys(("errors", "deliveries", "statuses", "reasons"), [None] * 100),
        },
    ),
    "promote": (recovery.PROMOTE, {"rows": 5000}),
    "dead workers": (recovery.LOCK_DEAD, None),
    "held by dead": (recovery.HELD_BY_DEAD, {"workers": [NOBODY]}),
    "held": (recovery.HELD, {"worker": NOBODY}),
    "orphaned": (recovery.ORPHANED, None),
    "lock rows": (recovery.LOCK_ROWS, {"ids": [NOBODY]}),
    "record lost": (recovery.RECORD_LOST, {"ids": [NOBODY]}),
    "return lost": (recovery.RETURN_LOST, {"ids": [NOBODY]}),
    "bury lost": (recovery.BURY_LOST, {"ids": [NOBODY]}),
    "still orphaned": (recovery.STILL_ORPHANED, {"ids": [NOBODY]}),
    "cancel": (cancelling.CANCEL, {"ids": [NOBODY], "reason": "x"}),
    "retry now": (operator.RETRY_NOW, {"id": NOBODY}),
    "of endpoint": (cancelling.OF_ENDPOINT, {"shard": 1, "endpoint": NOBODY, "rows": 500}),
    "expand": (fanouts.TAKE, {"chunk": 1000, "tenant": NOBODY}),
}  # fmt: skip


def test_no_hot_statement_reads_a_whole_table(connection: psycopg.Connection, deep: None) -> None:
    """Every hot statement finds its rows by an index's condition or their place, unsorted."""
    register(connection)

    faults = {}
    for name, (statement, values) in STATEMENTS.items():
        found = explain(connection, statement, values)
        assert any("Scan" in node["Node Type"] for node in found), name
        bad = whole_reads(found)
        if name not in SORTING:
            bad += [node for node in found if "Sort" in node["Node Type"]]
        if bad:
            faults[name] = [(node["Node Type"], node.get("Index Name")) for node in bad]
    assert faults == {}


def logged_plans(connection: psycopg.Connection, count: int) -> list[list[dict[str, Any]]]:
    """The plans of what ``count`` emits really ran, those within functions too (auto_explain)."""
    logged: list[str] = []
    connection.add_notice_handler(lambda notice: logged.append(notice.message_primary or ""))
    connection.execute("SET client_min_messages = log")
    connection.execute("SET auto_explain.log_min_duration = 0")
    for _ in range(count):
        connection.execute("SELECT webhooks.emit('default', 'deep.event', '{}')")
    connection.execute("SET auto_explain.log_min_duration = -1")
    plans = (json.loads(text.partition("plan:")[2]) for text in logged if "plan:" in text)
    return [list(nodes(plan["Plan"])) for plan in plans]


def test_emit_finds_its_endpoints_by_index(connection: psycopg.Connection) -> None:
    """Among 20,000 subscriptions, with plans that the session cached while there were none."""
    connection.execute("LOAD 'auto_explain'")
    connection.execute("SET auto_explain.log_nested_statements = on")
    connection.execute("SET auto_explain.log_format = 'json'")
    # After five runs a function's statement may keep a plan for good.
    logged_plans(connection, 10)
    connection.execute(FILL_ENDPOINTS, [20_000])
    connection.execute(SUBSCRIBE)

    plans = logged_plans(connection, 1)

    every = [node for plan in plans for node in plan]
    assert {"deliveries_queue", "events"} <= {node.get("Relation Name") for node in every}
    # By name: PostgreSQL 18 also starts in the middle of an index and reads all of it.
    indexes = {node.get("Index Name") for node in every}
    assert indexes >= {"ix_subscriptions_tenant_id_pattern", "pk_endpoints"}
    assert {node["Relation Name"] for node in whole_reads(every)} <= {"tenants"}


def test_dead_rows_are_passed_once(database_url: str, connection: psycopg.Connection) -> None:
    """While a transaction elsewhere keeps vacuum away, a scan reads each dead row once (W129)."""
    make_endpoint(connection, cap=100)
    worker_id = register(connection)
    with psycopg.connect(database_url) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        for _ in range(10):
            emit(connection, 100)
            done = [delivered(each) for each in claim(connection, worker_id)]
            settlement.settle(connection, worker_id, done)
        emit(connection, 1)
        values = ALL_LANES
        with transaction(connection, *INDEXES_ONLY):
            row = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {SCAN}", values).fetchone()

    assert row is not None
    fetches = sum(node.get("Heap Fetches", 0) for node in nodes(row[0][0]["Plan"]))
    # Those of 1,000 delivered ones, and the live one.
    assert 900 < fetches <= 1_100
