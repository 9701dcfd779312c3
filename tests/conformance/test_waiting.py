"""wait, wake and close."""

from __future__ import annotations

import threading
import time

from tests.rawserver import Peer, RawServer, silent
from tests.transports import (
    SETTINGS,
    Make,
    post,
)
from webhooks.transports.base import Transport


def test_what_is_known_is_returned_at_once(transport: Transport) -> None:
    """A request that failed on its start does not wait for anything else."""
    began = time.monotonic()
    transport.start(post("no url"))

    assert len(transport.wait(5)) == 1
    assert time.monotonic() - began < 1


def test_wake_ends_a_wait(transport: Transport) -> None:
    """wake from another thread makes a wait return at once, and a wake before it too."""
    timer = threading.Timer(0.05, transport.wake)
    began = time.monotonic()
    timer.start()
    assert transport.wait(5) == []
    transport.wake()
    transport.wake()
    assert transport.wait(5) == []
    timer.join()

    assert time.monotonic() - began < 2


def test_wait_keeps_to_its_time(transport: Transport) -> None:
    """With nothing to return, wait returns nothing after its time; zero means now."""
    began = time.monotonic()
    assert transport.wait(0) == []
    assert transport.wait(0.1) == []

    assert 0.09 < time.monotonic() - began < 0.5


def test_close_with_requests_in_flight(make: Make) -> None:
    """close ends what is in flight at once; a wake that comes later harms nobody."""
    closed = threading.Event()

    def script(peer: Peer) -> None:
        silent(peer)
        closed.set()

    transport = make(SETTINGS)
    with RawServer(script) as server:
        transport.start(post(server.url(), timeout_s=20))
        while not server.requests:
            transport.wait(0.01)
        transport.close()
        transport.wake()
        assert closed.wait(2)

    assert len(server.requests) == 1
