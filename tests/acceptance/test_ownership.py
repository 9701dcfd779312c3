"""Ownership proof with real processes: web asks, worker delivers what was held."""

from __future__ import annotations

import pytest

from tests.rawserver import Peer, RawServer, reply
from tests.stack import Stack, eventually

pytestmark = pytest.mark.acceptance

ORIGIN = "hooks.example.com"
ENV = {"WEBHOOKS_OWNERSHIP_PROOF": "options", "WEBHOOKS_ORIGIN": ORIGIN}


def agreeing(peer: Peer) -> None:
    while peer.read() is not None:
        peer.send(reply(200, b"", [("WebHook-Allowed-Origin", ORIGIN)]))


def test_nothing_is_sent_before_the_proof_and_all_of_it_after(database_url: str) -> None:
    """The events of the time before arrive, with the name that the endpoint agreed to."""
    with RawServer(agreeing) as server, Stack(database_url, ENV) as stack:
        stack.start_web()
        stack.start_worker()
        endpoint, _ = stack.register(server.url("/hook"))
        stack.emit({"n": 1})
        held = stack.get("/deliveries")["data"]
        before = len(server.requests)
        proved = stack.post(f"/endpoints/{endpoint}/prove")
        server.wait_for_requests(2)

        assert [each["status"] for each in held] == ["pending"]
        assert before == 0
        assert (proved.status_code, proved.json()["status"]) == (200, "active")
        assert [each.method for each in server.requests] == ["OPTIONS", "POST"]
        assert server.requests[1].header("WebHook-Request-Origin") == ORIGIN
        eventually(
            lambda: stack.get("/deliveries")["data"][0]["status"] == "delivered", 10, "delivered"
        )
