"""What only the libcurl transport does; the rest is in tests/conformance."""

from __future__ import annotations

import importlib
import ipaddress
import select
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.rawserver import Peer, RawServer, replies
from tests.transports import (
    OK,
    SETTINGS,
    collect,
    post,
    resolver,
    send,
    send_after_four_died,
)
from webhooks.addresses import AddressPolicy
from webhooks.attempt import ErrorClass
from webhooks.transports.curl import CurlTransport
from webhooks.transports.exchange import Exchange


@pytest.fixture
def transport() -> Iterator[CurlTransport]:
    made = CurlTransport(SETTINGS, resolver=resolver({"receiver.example": ["127.0.0.1"]}))
    yield made
    made.close()


@pytest.mark.parametrize("how", ["close", "reset"])
def test_dead_kept_connection_is_repeated_once_on_a_new_one(
    transport: CurlTransport, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With four kept connections that all die, a POST goes out twice, not six times."""
    repeats: list[float] = []
    again = Exchange.prepare_again

    def counted(exchange: Exchange, now: float) -> None:
        repeats.append(now)
        again(exchange, now)

    monkeypatch.setattr(Exchange, "prepare_again", counted)

    response, server = send_after_four_died(transport, how)

    assert (response.error, response.status_code) == (None, 200)
    assert [request.connection for request in server.requests[4:]][1:] == [5]
    assert (len(server.requests), len(repeats)) == (6, 1)


def test_thousands_in_flight_in_one_thread() -> None:
    """600 requests wait for their answers at the same time, in this one thread."""
    transport = CurlTransport(SETTINGS)
    everyone = threading.Semaphore(0)

    def script(peer: Peer) -> None:
        peer.read()
        everyone.acquire()
        peer.send(OK)

    others = set(threading.enumerate())  # of tests before, some of them about to end
    with RawServer(script) as server:
        for key in range(600):
            transport.start(post(server.url(), key=key, timeout_s=20))
        assert transport.in_flight == transport.capacity == 600
        while len(server.requests) < 600:
            assert transport.wait(0.05) == []
        in_flight = transport.in_flight
        mine = len(set(threading.enumerate()) - others) - server.connections - 1
        everyone.release(600)
        found = collect(transport, 600)
    transport.close()

    assert (in_flight, mine) == (600, 0)
    assert {response.request.key for response in found} == set(range(600))
    assert all(response.status_code == 200 for response in found)


def test_open_socket_is_the_last_gate(transport: CurlTransport) -> None:
    """A denied address that got past every other check is refused before a packet leaves."""
    with RawServer(replies(OK), host="127.0.0.2") as trap:
        transport._resolver._policy = AddressPolicy(allow=(ipaddress.ip_network("127.0.0.0/8"),))
        transport._resolver._look_up = lambda _host: ["127.0.0.2"]
        response = send(transport, post(trap.url(host="passed.example")))

    assert (response.error, response.detail) == (
        ErrorClass.BLOCKED_ADDRESS,
        "the target address is not allowed",
    )
    assert (trap.connections, response.peer) == (0, None)


def test_closed_idle_connections_cost_nothing(
    transport: CurlTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a receiver closes kept connections the loop sleeps on, it does not spin."""
    with RawServer(replies(OK)) as server:
        for _ in range(3):
            send(transport, post(server.url()))
    turns: list[float] = []
    wait = transport._sockets.wait

    def counted(pause_s: float) -> tuple[bool, list[tuple[int, int]]]:
        turns.append(pause_s)
        return wait(pause_s)

    monkeypatch.setattr(transport._sockets, "wait", counted)
    assert transport.wait(0.2) == []

    assert len(turns) < 10


def test_sockets_are_served_though_starts_fail(transport: CurlTransport) -> None:
    """A steady stream of failing starts does not starve what is in flight."""
    with RawServer(replies(OK)) as server:
        transport.start(post(server.url(), key="good"))
        keys: list[object] = []
        for _ in range(2000):
            transport.start(post("no url", key="bad"))
            keys += [response.request.key for response in transport.wait(0)]
            if "good" in keys:
                break

    assert "good" in keys


def test_poll_serves_where_epoll_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a system without epoll the same loop runs over poll."""
    monkeypatch.delattr(select, "epoll")
    transport = CurlTransport(SETTINGS)

    def script(peer: Peer) -> None:
        for _ in range(2):
            if peer.read() is not None:
                peer.send(OK)

    with RawServer(script) as server:
        for _ in range(6):
            assert send(transport, post(server.url())).status_code == 200
            transport.wait(0.02)
    transport.close()

    assert server.connections == 3


def test_without_pycurl_the_import_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is named, so that nobody has to guess."""
    monkeypatch.setitem(sys.modules, "pycurl", None)
    monkeypatch.delitem(sys.modules, "webhooks.transports.curl")

    with pytest.raises(ImportError, match=r"pip install 'webhooks-platform\[curl\]'"):
        importlib.import_module("webhooks.transports.curl")
