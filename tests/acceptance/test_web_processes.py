"""The web process as gunicorn runs it: several workers, and one that dies at work."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from tests.queue import make_endpoint, one
from tests.stack import Stack, eventually, free_port

pytestmark = pytest.mark.acceptance

# The first delivery is slow to be written, so that its writer can be killed meanwhile.
SLOW_ONCE = """
CREATE TABLE public.armed AS SELECT 1;
CREATE FUNCTION public.wait() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM public.armed) THEN
        PERFORM pg_sleep(2);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER wait BEFORE INSERT ON webhooks.deliveries_queue
    FOR EACH ROW EXECUTE FUNCTION public.wait();
"""
SLEEPING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"


@pytest.fixture
def stack(database_url: str) -> Iterator[Stack]:
    """Nothing runs yet."""
    with Stack(database_url) as running:
        yield running


def test_workers_that_share_a_parent_share_no_connection(stack: Stack) -> None:
    """With --preload and four workers every one of 200 concurrent requests is answered (W125)."""
    port = free_port()
    web = stack.start(
        "gunicorn", "--config", "python:webhooks.web", "--preload", "--workers", "4",
        "--bind", f"127.0.0.1:{port}", "webhooks.web:app()", port=port,
    )  # fmt: skip
    stack.base_url = f"http://127.0.0.1:{port}"
    eventually(lambda: "Listening" in web.output() and len(web.children()) == 4)

    def ask(number: int) -> int:
        if number % 2:
            return stack.post("/events", {"type": "a", "payload": {"n": number}}).status_code
        headers = {"Authorization": f"Bearer {stack.key}"}
        url = f"{stack.base_url}/api/v1/endpoints"
        return requests.get(url, headers=headers, timeout=15).status_code

    with ThreadPoolExecutor(40) as pool:
        answers = Counter(pool.map(ask, range(200)))

    assert answers == {202: 100, 200: 100}
    with stack.connect() as connection:
        assert one(connection, "SELECT count(*) FROM webhooks.events") == 100


def test_a_crash_inside_an_emit_leaves_nothing_and_blocks_nothing(stack: Stack) -> None:
    """Killed between event and delivery: the repeated request does the whole of it (W116)."""
    web = stack.start_web()
    body = {"type": "a", "payload": {}, "idempotency_key": "k1"}
    with stack.connect() as connection:
        make_endpoint(connection)
        connection.execute(SLOW_ONCE)
        first = threading.Thread(target=lambda: _broken(stack, body))
        first.start()
        eventually(lambda: one(connection, SLEEPING) == 1)
        for pid in web.children():
            os.kill(pid, signal.SIGKILL)
        first.join(20)
        connection.execute(
            "DROP TABLE public.armed; DROP TRIGGER wait ON webhooks.deliveries_queue"
        )

        answer = eventually(lambda: _answer(stack, body))

        assert answer["deliveries"] == 1
        assert one(connection, "SELECT count(*) FROM webhooks.deliveries") == 1
        assert one(connection, "SELECT count(*) FROM webhooks.events") == 1


def _broken(stack: Stack, body: object) -> None:
    with pytest.raises(requests.RequestException):
        stack.post("/events", body)


def _answer(stack: Stack, body: object) -> dict[str, int] | None:
    try:
        answer = stack.post("/events", body)
    except requests.RequestException:
        return None
    assert answer.status_code in (202, 503), answer.text
    found: dict[str, int] = answer.json()
    return found if answer.status_code == 202 else None
