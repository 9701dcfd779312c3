"""Heads of responses: interim responses, limits, what is no HTTP."""

from __future__ import annotations

import pytest

from tests.rawserver import Peer, RawServer, replies, reply
from tests.transports import (
    OK,
    post,
    send,
)
from webhooks.attempt import ErrorClass
from webhooks.transports.base import Transport


@pytest.mark.parametrize(
    "interim", [b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"]
)
def test_interim_responses_are_skipped(transport: Transport, interim: bytes) -> None:
    """Up to five interim responses come before the one that counts, also on the next request."""
    with RawServer(replies(interim * 5 + OK, reply(500))) as server:
        first, second = (send(transport, post(server.url())) for _ in range(2))

    assert (first.status_code, first.body) == (200, b"ok")
    assert all(name != "Link" for name, _ in first.headers)
    assert second.status_code == 500


def test_endless_interim_responses_end_the_attempt(transport: Transport) -> None:
    """The sixth interim response is a protocol error, at once."""

    def script(peer: Peer) -> None:
        peer.read()
        peer.flood(b"HTTP/1.1 100 Continue\r\n\r\n")

    with RawServer(script) as server:
        response = send(transport, post(server.url()))

    assert response.error is ErrorClass.PROTOCOL
    assert "more than 5 interim" in response.detail
    assert response.finished - response.started < 2


@pytest.mark.parametrize(
    "data",
    [
        b"hello, this is HTTP/0.9\r\n",
        b"ok",
        b"ICY 200 OK\r\n\r\n",
        b"SSH-2.0-OpenSSH_9\r\n",
        b"\x15\x03\x01\x00\x02\x02\x50",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/0.9 200 OK\r\n\r\n",
        b"HTTP/1.1 abc Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 000 Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 20 Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 1000 Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 600 Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nX-Nul: a\x00b\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\tContent-Type: x\r\nno-colon-line\r\nX: 1\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"l" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 " + b"r" * 1_000_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-Many: m\r\n" * 120 + b"Content-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n",
    ],
    ids=lambda data: data[:24].decode("latin-1") + f" {len(data)}",
)
def test_what_is_not_a_response_is_a_protocol_error(transport: Transport, data: bytes) -> None:
    """Foreign, malformed, oversized and cut header blocks fail (W066, W067, W069, W070)."""

    def script(peer: Peer) -> None:
        peer.read()
        peer.send(data)
        if b" 101 " in data:
            peer.hold()

    with RawServer(script) as server:
        response = send(transport, post(server.url()))

    assert response.error is ErrorClass.PROTOCOL
    assert response.detail
    assert response.finished - response.started < 2
    assert response.body == b""


def test_a_hundred_headers_are_fine(transport: Transport) -> None:
    """The limit is above 100 headers, not at it."""
    head = b"HTTP/1.1 200 OK\r\n" + b"X-Many: m\r\n" * 99 + b"Content-Length: 0\r\n\r\n"
    with RawServer(replies(head)) as server:
        response = send(transport, post(server.url()))

    assert (response.error, len(response.headers)) == (None, 100)
