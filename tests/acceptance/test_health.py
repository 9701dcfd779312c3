"""What /healthz and /livez say while the database goes away and comes back."""

from __future__ import annotations

import pytest
import requests

from tests.recorder import Recorder
from tests.stack import Stack, eventually
from webhooks import embedded
from webhooks.schema import upgrade

pytestmark = pytest.mark.acceptance

ENV = {"WEBHOOKS_HEARTBEAT_S": "0.5", "WEBHOOKS_LEASE_S": "3"}


def test_health_goes_red_and_green_with_the_database(own_server: embedded.Server) -> None:
    """Web and worker say so, live on and need no restart; then events arrive again (W113)."""
    upgrade(own_server.url())
    with Stack(own_server.url(), ENV) as stack, Recorder() as receiver:
        web, worker = stack.start_web(), stack.start_worker()
        stack.register(receiver.url)
        pids = [web.pid, *web.children(), worker.pid, *worker.children()]

        def say(page: str, status: int) -> bool:
            urls = [f"http://127.0.0.1:{each.port}{page}" for each in (web, worker)]
            return [requests.get(url, timeout=10).status_code for url in urls] == [status] * 2

        assert say("/healthz", 200)
        own_server.stop("immediate")
        eventually(lambda: say("/healthz", 503), 10, "red")
        assert say("/livez", 200)
        own_server.start()
        eventually(lambda: say("/healthz", 200), 15, "green")
        event = stack.emit({"n": 1})
        eventually(lambda: receiver.counts() == {event: 1}, 10, "the event arrives")
        assert pids == [web.pid, *web.children(), worker.pid, *worker.children()]
