"""Plans of the hot statements at depth: none reads a whole table, whatever the statistics say."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.queue import make_endpoint, register
from webhooks.db import INDEXES_ONLY, transaction
from webhooks.deliveries.claims import GIVE_BACK, LOCK, PAYLOADS, PICK, SETTINGS
from webhooks.deliveries.operator import CANCEL, OF_ENDPOINT, RETRY_NOW
from webhooks.deliveries.recovery import (
    BURY_LOST,
    HELD,
    HELD_BY_DEAD,
    PROMOTE,
    RECORD_LOST,
    RETURN_LOST,
    STILL_ORPHANED,
)
from webhooks.deliveries.scan import SCAN
from webhooks.deliveries.settlement import FINISH, HOLD, SCHEDULE

ROWS = 200_000
NOBODY = UUID(int=1)
# An id of today: others are pruned from the plan with all the partitions.
TODAY = UUID(int=((int(time.time()) + 3600) * 1000 << 80) | 7 << 76)


@pytest.fixture(params=["stale statistics", "fresh statistics"])
def deep(connection: psycopg.Connection, request: pytest.FixtureRequest) -> UUID:
    """200,000 live rows over 200 lanes; stale: analysed while the tables were empty."""
    connection.execute("ALTER TABLE webhooks.deliveries_queue SET (autovacuum_enabled = off)")
    connection.execute("ANALYZE webhooks.deliveries_queue, webhooks.lanes")
    endpoint_id = make_endpoint(connection)
    connection.execute(
        "INSERT INTO webhooks.lanes (shard, endpoint_id, tenant_id, max_in_flight) "
        "SELECT shard, webhooks.uuid7(), tenant_id, 50 FROM webhooks.lanes, generate_series(1, 199)"
    )
    connection.execute(
        "INSERT INTO webhooks.deliveries (shard, tenant_id, event_id, endpoint_id, event_type, "
        "status, due_at) SELECT shard, tenant_id, webhooks.uuid7(), endpoint_id, 'a', "
        "CASE WHEN n %% 4 = 0 THEN 'scheduled' ELSE 'pending' END, "
        "CASE WHEN n %% 4 = 0 THEN now() + n * interval '1 s' END "
        "FROM webhooks.lanes, generate_series(1, %s) AS n",
        [ROWS // 200],
    )
    if request.param == "fresh statistics":
        connection.execute("ANALYZE webhooks.deliveries_queue, webhooks.lanes")
    return endpoint_id


def scans(connection: psycopg.Connection, statement: str, values: Any) -> list[dict[str, Any]]:
    """The nodes of a statement's plan that read a table."""
    with transaction(connection, *(SETTINGS if statement == PICK else INDEXES_ONLY)):
        row = connection.execute(f"EXPLAIN (FORMAT JSON) {statement}", values).fetchone()
    assert row is not None
    found = []
    stack = [entry["Plan"] for entry in row[0]]
    while stack:
        node = stack.pop()
        if "Relation Name" in node and "Scan" in node["Node Type"]:
            found.append(node)
        stack += node.get("Plans", [])
    return found


# Never more rows than there are workers, or than all of them hold.
SMALL = {"pk_workers", "ix_deliveries_queue_worker", "ix_deliveries_queue_in_flight"}

STATEMENTS: dict[str, tuple[str, Any]] = {
    "scan": (
        SCAN,
        {"shard": -1, "endpoint": NOBODY, "lanes": 100, "probes": 2000},
    ),
    "lock": (LOCK, {"shards": "{1}", "endpoints": f"{{{NOBODY}}}"}),
    "pick": (
        PICK,
        {
            "shards": "{1}",
            "endpoints": f"{{{NOBODY}}}",
            "caps": "{50}",
            "mosts": "{5}",
            "worker": uuid4(),
        },
    ),
    "payloads": (PAYLOADS, [f"{{{TODAY}}}"]),
    "hold": (HOLD, {"ids": f"{{{NOBODY}}}", "attempts": "{1}", "worker": NOBODY}),
    "schedule": (
        SCHEDULE,
        {"ids": f"{{{NOBODY}}}", "delays": "{1}", "code": 500, "error": "http_5xx"},
    ),
    "finish": (
        FINISH,
        {
            "ids": f"{{{NOBODY}}}",
            "status": "delivered",
            "reason": None,
            "code": 200,
            "error": None,
        },
    ),
    "promote": (PROMOTE, {"rows": 5000}),
    "held by dead": (HELD_BY_DEAD, {"workers": [NOBODY]}),
    "held": (HELD, {"worker": NOBODY}),
    "record lost": (RECORD_LOST, {"ids": [NOBODY]}),
    "return lost": (RETURN_LOST, {"ids": [NOBODY]}),
    "bury lost": (BURY_LOST, {"ids": [NOBODY]}),
    "still orphaned": (STILL_ORPHANED, {"ids": [NOBODY]}),
    "give back": (
        GIVE_BACK,
        {"ids": f"{{{NOBODY}}}", "attempts": "{1}", "worker": NOBODY},
    ),
    "cancel": (CANCEL, {"ids": [NOBODY], "reason": "x"}),
    "retry now": (RETRY_NOW, {"id": NOBODY}),
    "of endpoint": (OF_ENDPOINT, {"shard": 1, "endpoint": NOBODY, "rows": 500}),
}


def test_no_hot_statement_reads_a_whole_table(connection: psycopg.Connection, deep: UUID) -> None:
    """Every hot statement finds its rows by an index's condition or by their place."""
    register(connection)

    for name, (statement, values) in STATEMENTS.items():
        nodes = scans(connection, statement, values)
        assert nodes, name
        for node in nodes:
            assert node.keys() & {"Index Cond", "TID Cond", "Recheck Cond"} or (
                node.get("Index Name") in SMALL
            ), (name, node)
