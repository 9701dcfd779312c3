"""A worker between hostile receivers and a good one, over each transport."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trustme
from psycopg.rows import dict_row

from tests.chaos import no_dns
from tests.rawserver import Peer, RawServer, Script, raw, replies, reply, silent
from tests.recorder import Recorder, verify
from tests.stack import Stack, eventually, free_port
from webhooks import ids

pytestmark = pytest.mark.acceptance

EVENTS = 4
MOST_GROWTH_KB = 20_000
# RFC 6761 section 6.4: never a name.
NO_NAME = "receiver.invalid"
# Two tries at most, so that each kind of failure is also seen to be retried.
ENV = {
    "WEBHOOKS_RETRY_BASE_S": "0.1",
    "WEBHOOKS_RETRY_FACTOR": "1",
    "WEBHOOKS_RETRY_ATTEMPTS": "2",
    "WEBHOOKS_CONNECT_TIMEOUT_S": "1",
    "WEBHOOKS_BREAKER_FAILURES": "1000",
}


def header_drip(peer: Peer) -> None:
    peer.read()
    peer.send(b"HTTP/1.1 200 OK\r\n")
    peer.drip(b"X-Slow: " + b"s" * 1000, 0.05)


def interim_flood(peer: Peer) -> None:
    peer.read()
    peer.flood(b"HTTP/1.1 100 Continue\r\n\r\n")


def body_flood(peer: Peer) -> None:
    peer.read()
    peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    peer.flood(b"4000\r\n" + b"z" * 0x4000 + b"\r\n")


def reset(peer: Peer) -> None:
    peer.read()
    peer.reset()


ODD = (
    b"HTTP/1.1 500 \x1b[31m<script>\r\nX-Odd: <script>\xff\r\n"
    b"Content-Length: 10\r\n\r\n\x00\xff<script>"
)

# What each answers, and the class and status that its attempts are recorded with.
HOSTILE: dict[str, tuple[Script, str, int | None]] = {
    "silent": (silent, "timeout", None),
    "header drip": (header_drip, "timeout", 200),
    "500": (replies(reply(500)), "http_5xx", 500),
    "503": (replies(reply(503)), "http_5xx", 503),
    "404": (replies(reply(404)), "http_4xx", 404),
    "odd bytes": (raw(ODD), "http_5xx", 500),
    "reset": (reset, "connect", None),
    "interim flood": (interim_flood, "protocol", 100),
    "no HTTP": (raw(b"SSH-2.0-OpenSSH_9\r\n"), "protocol", None),
    "many headers": (raw(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 120 + b"\r\n"), "protocol", 200),
    "body flood": (body_flood, "delivered", 200),
    "broken body": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nok"), "delivered", 200),
}
ATTEMPTS = """
SELECT a.endpoint_id, coalesce(a.error_class, 'delivered') AS kind, a.status_code AS status,
    count(*) AS attempts, count(DISTINCT a.delivery_id) AS deliveries,
    max(a.total_ms) AS slowest_ms,
    max(octet_length(a.response_body)) AS most_bytes,
    max((SELECT count(*) FROM json_array_elements(a.response_headers))) AS most_headers
FROM webhooks.attempts a GROUP BY 1, 2, 3
"""
UNFINISHED = """
SELECT count(*) FROM webhooks.deliveries d
WHERE d.finished_at = 'infinity' AND d.endpoint_id <> ALL(%s)
"""


@pytest.fixture
def names_asked(tmp_path: Path) -> Path:
    """A file with a line for each name that a process wanted to look up."""
    return tmp_path / "names"


@pytest.fixture(params=["curl", "requests"])
def stack(database_url: str, request: pytest.FixtureRequest, names_asked: Path) -> Iterator[Stack]:
    """Web and worker, sending over the named transport; no DNS server is asked."""
    env = {
        "WEBHOOKS_TRANSPORT": request.param,
        "PYTHONPATH": str(Path(next(iter(no_dns.__path__)))),
        "NAMES_ASKED": str(names_asked),
    }
    with Stack(database_url, ENV | env) as running:
        running.start_web()
        yield running


def resident_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


def untrusted() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    return context


Expected = tuple[str, str, int | None]


def register_hostile(
    stack: Stack, running: contextlib.ExitStack
) -> tuple[dict[UUID, Expected], RawServer]:
    """Start every hostile receiver. By endpoint: its name, and the class and status to expect."""
    found: dict[UUID, Expected] = {}

    def serve(script: Script, tls: ssl.SSLContext | None = None) -> str:
        return running.enter_context(RawServer(script, tls=tls)).url("/hook")

    def add(name: str, url: str, kind: str, status: int | None) -> None:
        endpoint_id, _ = stack.register(url, timeout_s=1)
        found[ids.decode(ids.ENDPOINT, endpoint_id)] = name, kind, status

    for name, (script, kind, status) in HOSTILE.items():
        add(name, serve(script), kind, status)
    trap = running.enter_context(RawServer(replies(reply(200))))
    moved = reply(302, headers=[("Location", trap.url("/trap")), ("Set-Cookie", "sid=1")])
    add("redirect", serve(replies(moved)), "redirect", 302)
    add("unknown CA", serve(replies(reply(200)), untrusted()), "tls", None)
    add("refused", f"http://127.0.0.1:{free_port()}/hook", "connect", None)
    add("no name", f"http://{NO_NAME}/hook", "dns", None)
    return found, trap


def attempts(stack: Stack) -> dict[UUID, list[dict[str, Any]]]:
    """By endpoint: its attempts, those of one class and status together."""
    found: dict[UUID, list[dict[str, Any]]] = {}
    with stack.connect() as connection, connection.cursor(row_factory=dict_row) as cursor:
        for row in cursor.execute(ATTEMPTS):
            found.setdefault(row["endpoint_id"], []).append(row)
    return found


def delivery_ids(stack: Stack) -> list[str]:
    with stack.connect() as connection:
        rows = connection.execute("SELECT id FROM webhooks.deliveries").fetchall()
    return [ids.encode(ids.DELIVERY, row[0]) for row in rows]


def test_hostile_receivers_cost_nobody_else(stack: Stack, names_asked: Path) -> None:
    """Each failure has its own class and is retried, the good endpoint gets all.

    W051, W052, W061, W063, W073 and W075.
    """
    with contextlib.ExitStack() as running:
        expected, trap = register_hostile(stack, running)
        good = running.enter_context(Recorder())
        _, secret = stack.register(good.url)
        worker = stack.start_worker()
        pids = worker.children()
        slow = [each for each, (name, *_) in expected.items() if name == "503"]
        gone, _ = stack.register(running.enter_context(RawServer(replies(reply(410)))).url("/hook"))
        unfinished = [*slow, ids.decode(ids.ENDPOINT, gone)]

        def settled() -> bool:
            with stack.connect() as connection:
                row = connection.execute(UNFINISHED, [unfinished]).fetchone()
            return row == (0,)

        sent = {stack.emit({"n": 0})}
        eventually(settled, 30, "the first event's deliveries are over")
        before = resident_kb(pids[0])
        sent |= {stack.emit({"n": n}) for n in range(1, EVENTS)}
        eventually(lambda: set(good.counts()) == sent, 3, "the good endpoint's come at once")
        eventually(settled, 30, "all deliveries are over")
        grown, after = resident_kb(pids[0]) - before, worker.children()
        found = attempts(stack)
        (of_gone,) = found[ids.decode(ids.ENDPOINT, gone)]
        disabled = stack.get(f"/endpoints/{gone}")
        details = [stack.get(f"/deliveries/{each}") for each in delivery_ids(stack)]

    assert after == pids
    assert grown < MOST_GROWTH_KB
    assert set(good.counts().values()) == {1}
    assert all(verify(secret, each) for each in good.requests)
    assert trap.connections == 0
    assert set(names_asked.read_text().split()) == {NO_NAME}
    # Whatever came back can be read: these are JSON documents by now.
    shown = [each for delivery in details for each in delivery["attempts"]]
    assert {each["status_code"] for each in shown} >= {None, 100, 200, 302, 404, 500, 503}
    assert any("<script>" in str(each["response_body"]) for each in shown)
    assert (of_gone["status"], of_gone["attempts"], disabled["status"]) == (410, 1, "disabled")
    recorded = {
        name: [(row["kind"], row["status"]) for row in found.get(endpoint_id, [])]
        for endpoint_id, (name, *_) in expected.items()
    }
    assert recorded == {name: [(kind, status)] for name, kind, status in expected.values()}
    for endpoint_id, (name, kind, _) in expected.items():
        (row,) = found[endpoint_id]
        if endpoint_id not in slow:
            tries = EVENTS if kind == "delivered" else 2 * EVENTS
            assert (row["deliveries"], row["attempts"]) == (EVENTS, tries), name
        assert row["slowest_ms"] < 1500, name
        assert (row["most_bytes"] or 0) <= 65_536, name
        assert (row["most_headers"] or 0) <= 50, name
    assert {kind for _, kind, _ in expected.values()} == {
        "timeout", "http_5xx", "http_4xx", "connect", "dns", "tls", "protocol", "redirect",
        "delivered",
    }  # fmt: skip
