"""What comes back: the status decides, the body is bounded."""

from __future__ import annotations

import gzip
import threading

import pytest

from tests.conformance.memory import forget_peak, peak_kb
from tests.rawserver import Peer, RawServer, raw, replies, reply
from tests.transports import (
    OK,
    collect,
    post,
    send,
)
from webhooks.transports.base import Transport


@pytest.mark.parametrize("status", [200, 201, 204, 299, 306, 404, 410, 451, 499, 520, 599])
def test_status_headers_and_body_are_reported(transport: Transport, status: int) -> None:
    """Any final status from 200 to 599 is a response, not a transport error (W054, W069)."""
    body = b"" if status == 204 else b"\xff\xfe\x00\x82PNG"
    with RawServer(replies(reply(status, body, [("X-Some", "caf\xe9")]))) as server:
        response = send(transport, post(server.url(), key="mine"))

    assert (response.error, response.status_code, response.body) == (None, status, body)
    assert ("X-Some", "caf\xe9") in response.headers
    assert (response.request.key, response.detail, response.truncated) == ("mine", "", False)


def test_timings_and_peer_are_reported(transport: Transport) -> None:
    """Phases are in order from the attempt's start; a kept connection has no connect phase."""
    with RawServer(replies(OK)) as server:
        first, second = (send(transport, post(server.url())) for _ in range(2))

    timings = first.timings
    assert timings.connect_ms is not None
    assert timings.first_byte_ms is not None
    assert timings.total_ms is not None
    assert 0 < timings.connect_ms <= timings.first_byte_ms <= timings.total_ms < 5000
    assert timings.total_ms == pytest.approx((first.finished - first.started) * 1000)
    assert timings.tls_ms is None
    assert first.peer == "127.0.0.1"
    assert second.timings.connect_ms is None
    assert server.connections == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_never_followed(transport: Transport, status: int) -> None:
    """A redirect is reported with its Location; its target sees nothing (W049, W052)."""
    with RawServer(replies(OK)) as trap:
        redirect = reply(status, headers=[("Location", trap.url("/final"))])
        with RawServer(replies(redirect)) as server:
            response = send(transport, post(server.url()))

    assert (response.error, response.status_code) == (None, status)
    assert dict(response.headers)["Location"] == trap.url("/final")
    assert (len(server.requests), trap.connections) == (1, 0)


@pytest.mark.parametrize(
    "encoding", ["gzip", "br", "zstd", "deflate, gzip"], ids=lambda name: name[:4]
)
def test_encoded_bodies_are_stored_raw(transport: Transport, encoding: str) -> None:
    """A wrong or bomb-like Content-Encoding is never decoded (W058)."""
    bomb = gzip.compress(b"\0" * 20_000_000)
    with RawServer(replies(reply(200, bomb, [("Content-Encoding", encoding)]))) as server:
        response = send(transport, post(server.url()))

    assert (response.error, response.body) == (None, bomb)
    assert server.requests[0].header("accept-encoding") is None


def test_body_of_64_kb_is_whole_and_one_byte_more_is_cut(transport: Transport) -> None:
    """The first 65,536 bytes are kept; more is cut and counts by its status (W060)."""
    for size, cut in ((65_536, False), (65_537, True)):
        with RawServer(replies(reply(200, b"y" * size))) as server:
            response = send(transport, post(server.url()))
        assert (response.status_code, response.error) == (200, None)
        assert (len(response.body), response.truncated) == (65_536, cut)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ],
    ids=["chunked", "10 GB", "until close"],
)
def test_endless_body_is_cut(transport: Transport, head: bytes) -> None:
    """An endless body costs 64 kB and a moment; the status decides (W060)."""

    def script(peer: Peer) -> None:
        peer.read()
        peer.send(head)
        peer.flood(b"4000\r\n" + b"z" * 0x4000 + b"\r\n" if b"chunked" in head else b"z" * 16_384)

    before = forget_peak()
    with RawServer(script) as server:
        response = send(transport, post(server.url()))

    assert (response.status_code, response.error, response.truncated) == (200, None, True)
    assert len(response.body) == 65_536
    assert response.finished - response.started < 2
    assert peak_kb() - before < 20_000


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000000000\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nZZ\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
    ],
    ids=["short", "1e18", "bad chunk", "no last chunk"],
)
def test_trouble_in_the_body_is_a_note(transport: Transport, data: bytes) -> None:
    """Status line and headers decide; a broken body is only noted (W057)."""
    with RawServer(raw(data)) as server:
        response = send(transport, post(server.url()))

    assert (response.error, response.status_code, response.body) == (None, 200, b"ok")
    assert response.detail.startswith("the response body is incomplete: ")


def test_reset_after_the_headers_is_a_note(transport: Transport) -> None:
    """A reset in the body does not undo the status (W057)."""

    def script(peer: Peer) -> None:
        peer.read()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
        seen.wait(5)
        peer.reset()

    seen = threading.Event()
    with RawServer(script) as server:
        transport.start(post(server.url()))
        while not server.requests:
            transport.wait(0.01)
        transport.wait(0.1)
        seen.set()
        (response,) = collect(transport, 1)

    assert (response.error, response.status_code) == (None, 200)
    assert response.detail


def test_endless_trailers_are_cut(transport: Transport) -> None:
    """Trailers count against the header limit and change no verdict."""

    def script(peer: Peer) -> None:
        peer.read()
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n")
        peer.flood(b"X-Trailer: " + b"t" * 1000 + b"\r\n")

    with RawServer(script) as server:
        response = send(transport, post(server.url()))

    assert (response.error, response.status_code, response.body) == (None, 200, b"ok")
    assert response.finished - response.started < 2
