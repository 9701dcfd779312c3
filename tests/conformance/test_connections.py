"""Connections: kept alive, replaced, repeated once, told apart."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from tests.rawserver import Peer, RawServer, replies, reply
from tests.transports import (
    OK,
    SETTINGS,
    Make,
    collect,
    post,
    send,
    send_after_four_died,
)
from webhooks.attempt import ErrorClass
from webhooks.transports import exchange
from webhooks.transports.base import Transport
from webhooks.transports.threaded import connections


def test_connections_are_kept_alive(transport: Transport) -> None:
    """Requests one after the other share a connection."""
    with RawServer(replies(OK)) as server:
        for _ in range(20):
            send(transport, post(server.url()))

    assert (server.connections, len(server.requests)) == (1, 20)


def test_connection_that_was_closed_while_idle_is_replaced(transport: Transport) -> None:
    """A receiver that closes idle connections is none the wiser, and gets each request once."""

    def script(peer: Peer) -> None:
        peer.read()
        peer.send(OK)

    with RawServer(script) as server:
        for _ in range(5):
            assert send(transport, post(server.url())).status_code == 200
            transport.wait(0.05)

    assert (server.connections, len(server.requests)) == (5, 5)


@pytest.mark.parametrize("limit", ["IDLE_CONNECTION_S", "OLDEST_CONNECTION_S"])
def test_connections_have_an_age(make: Make, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """One that was idle for long, or is old though busy, is replaced: hosts move."""
    for module in (exchange, connections):
        monkeypatch.setattr(module, limit, 1)
    transport = make(SETTINGS)
    pauses = [1.4] if limit.startswith("IDLE") else [0.3] * 5
    with RawServer(replies(OK)) as server:
        send(transport, post(server.url()))
        for pause_s in pauses:
            transport.wait(pause_s)
            assert send(transport, post(server.url())).status_code == 200
    transport.close()

    assert server.connections == 2


def test_new_connection_that_dies_is_not_repeated(transport: Transport) -> None:
    """Only a reused connection's death is worth a second try within the attempt."""

    def script(peer: Peer) -> None:
        peer.read()
        peer.reset()

    with RawServer(script) as server:
        response = send(transport, post(server.url()))

    assert response.error is ErrorClass.CONNECT
    assert len(server.requests) == 1


def test_kept_connection_that_dies_in_its_answer_is_not_repeated(transport: Transport) -> None:
    """Once the status line of an answer came, the request is not sent again."""

    def script(peer: Peer) -> None:
        peer.read()
        peer.send(OK)
        if peer.read() is not None:
            peer.send(b"HTTP/1.1 200 OK\r\nX-")

    with RawServer(script) as server:
        send(transport, post(server.url()))
        response = send(transport, post(server.url()))

    assert response.error is ErrorClass.PROTOCOL
    assert len(server.requests) == 2


def test_handle_serves_normally_after_a_repeat(transport: Transport) -> None:
    """The forced new connection is for the repeat alone: later requests are kept alive again."""
    primed = threading.Semaphore(0)

    def script(peer: Peer) -> None:
        peer.read()
        if peer.number <= 2:
            primed.acquire(timeout=5)
        peer.send(OK)
        while peer.read() is not None and peer.number > 2:
            peer.send(OK)

    with RawServer(script) as server:
        for _ in range(2):
            transport.start(post(server.url()))
        while len(server.requests) < 2:
            assert transport.wait(0.01) == []
        primed.release(2)
        collect(transport, 2)
        for _ in range(5):
            assert send(transport, post(server.url())).status_code == 200

    assert server.connections == 3


@pytest.mark.parametrize(
    "last", [b"", b"HTTP/1.1 200 O", b"HTTP/1.1 103 Early Hints\r\n\r\n", None],
    ids=["close", "in the status line", "after an interim response", "reset"],
)  # fmt: skip
def test_connection_closed_without_an_answer(transport: Transport, last: bytes | None) -> None:
    """A closed or reset connection is a connect failure, not an internal error (W070)."""

    def script(peer: Peer) -> None:
        peer.read()
        if last is None:
            peer.reset()
        else:
            peer.send(last)

    with RawServer(script) as server:
        response = send(transport, post(server.url()))

    assert response.error is ErrorClass.CONNECT
    assert response.body == b""


def test_refused_connection(transport: Transport) -> None:
    """Nobody listens: connect."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    response = send(transport, post(f"http://127.0.0.1:{port}/"))

    assert response.error is ErrorClass.CONNECT
    assert response.peer is None


def test_responses_are_not_mixed_up(transport: Transport) -> None:
    """Each response comes back with its own request, over reused connections and handles."""

    def script(peer: Peer) -> None:
        while (request := peer.read()) is not None:
            peer.send(reply(200, request.body + request.target.encode()))

    with RawServer(script) as server:
        for turn in range(5):
            for number in range(50):
                url, body = server.url(f"/{number}"), f"{turn}-{number}".encode()
                transport.start(post(url, key=(turn, number), body=body))
            for response in collect(transport, 50):
                key = response.request.key
                assert isinstance(key, tuple)
                assert response.body == f"{key[0]}-{key[1]}/{key[1]}".encode()


@pytest.mark.parametrize("how", ["close", "reset"])
def test_kept_connections_that_died_never_cost_an_attempt(transport: Transport, how: str) -> None:
    """With four kept connections that all die, a request goes out at most twice and succeeds."""
    response, server = send_after_four_died(transport, how)

    assert (response.error, response.status_code) == (None, 200)
    assert [request.connection for request in server.requests[4:]][1:] == [5]


def test_what_comes_beyond_a_response_is_no_other_one_s_answer(transport: Transport) -> None:
    """A response with five bytes too many, then a false one: its connection is used no more."""

    def script(peer: Peer) -> None:
        while peer.read() is not None:
            peer.send(reply(200, b"true") + b"stray")
            time.sleep(0.004)
            peer.send(reply(200, b"false"))

    with RawServer(script) as server:
        bodies = [send(transport, post(server.url(), key=n)).body for n in range(30)]

    assert bodies == [b"true"] * 30
