"""Every attempt ends at its deadline, whatever the receiver does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rawserver import Peer, RawServer, silent
from tests.transports import (
    BODY,
    OK,
    SHORT_S,
    collect,
    post,
    send,
)
from webhooks.attempt import ErrorClass
from webhooks.transports.base import Transport


def header_drip(peer: Peer) -> None:
    peer.read()
    peer.send(b"HTTP/1.1 200 OK\r\n")
    peer.drip(b"X-Slow: " + b"s" * 1000, 0.05)


def body_drip(peer: Peer) -> None:
    peer.read()
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    peer.drip(b"b" * 1000, 0.05)


def unread(peer: Peer) -> None:
    peer.stopped.wait(5)


@pytest.mark.parametrize(
    ("script", "body", "error", "status"),
    [
        (silent, BODY, ErrorClass.TIMEOUT, None),
        (header_drip, BODY, ErrorClass.TIMEOUT, 200),
        (body_drip, BODY, None, 200),
        (unread, b"u" * 8_000_000, ErrorClass.TIMEOUT, None),
    ],
    ids=["no answer", "header drip", "body drip", "request not read"],
)
def test_every_attempt_ends_at_its_deadline(
    transport: Transport,
    script: Callable[[Peer], None],
    body: bytes,
    error: ErrorClass | None,
    status: int | None,
) -> None:
    """One wall-clock deadline covers it all; a body that drips is a note (W061, W072)."""
    with RawServer(script) as server:
        response = send(transport, post(server.url(), body=body, timeout_s=SHORT_S))

    assert (response.error, response.status_code) == (error, status)
    assert SHORT_S - 0.01 <= response.finished - response.started < SHORT_S + 0.3
    assert response.detail


def test_timeouts_count_from_each_requests_own_start(transport: Transport) -> None:
    """Many slow answers at once do not add up to timeouts (W099)."""

    def script(peer: Peer) -> None:
        while peer.read() is not None:
            peer.stopped.wait(0.08)
            peer.send(OK)

    with RawServer(script) as server:
        for key in range(100):
            transport.start(post(server.url(), key=key, timeout_s=3.0))
        found = collect(transport, 100)

    assert {response.request.key for response in found} == set(range(100))
    assert all(response.status_code == 200 for response in found)


def test_connect_timeout_covers_the_tls_handshake(transport: Transport) -> None:
    """A handshake that never comes ends after the connect timeout, not the total."""
    with RawServer(silent) as server:
        url = server.url().replace("http:", "https:")
        response = send(transport, post(url, connect_timeout_s=SHORT_S))

    assert response.error is ErrorClass.TIMEOUT
    assert response.finished - response.started < SHORT_S + 0.3
