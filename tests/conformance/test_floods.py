"""Receivers that send as fast as they can: bounded in time and memory, whatever they send."""

from __future__ import annotations

import pytest

from tests.conformance.memory import forget_peak, peak_kb
from tests.rawserver import Peer, RawServer, Script, replies
from tests.transports import OK, SHORT_S, collect, post, send
from webhooks.transports.base import Transport

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
BLOCK = 16_384

# What comes once, what comes again and again, and the attempt's class. Blank folded lines
# are not seen by a callback of libcurl: they end at the deadline.
FLOODS: dict[str, tuple[bytes, bytes, set[str | None]]] = {
    "status line": (b"HTTP/1.1 200 ", b"r", {"protocol"}),
    "no HTTP": (b"", b"j", {"protocol"}),
    "NULs": (b"", b"\0", {"protocol"}),
    "blank lines": (b"", b"\r\n", {"protocol"}),
    "one header": (HEAD + b"X: ", b"h", {"protocol"}),
    "many headers": (HEAD, b"X: h\r\n", {"protocol"}),
    "folded lines": (HEAD + b"X: 1\r\n", b" fold\r\n", {"protocol"}),
    "blank folded lines": (HEAD + b"X: 1\r\n", b" \r\n", {"protocol", "timeout"}),
    "interim": (b"", b"HTTP/1.1 102 Processing\r\nX: 1\r\n\r\n", {"protocol"}),
    "chunk of one byte": (CHUNKED, b"1\r\nx\r\n", {None}),
    "chunk extension": (CHUNKED + b"1;", b"e", {None}),
    "chunk extensions": (CHUNKED, b"1;" + b"e" * 10_000 + b"\r\nx\r\n", {None}),
    "one trailer": (CHUNKED + b"0\r\nX: ", b"h", {None}),
    "trailers": (CHUNKED + b"0\r\n", b"X: h\r\n", {None}),
    "body": (HEAD + b"\r\n", b"b", {None}),
}


def flood(first: bytes, again: bytes) -> Script:
    def script(peer: Peer) -> None:
        peer.read()
        peer.send(first)
        peer.flood(again * max(1, BLOCK // len(again)), most_bytes=2_000_000_000)

    return script


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_is_bounded(transport: Transport, name: str) -> None:
    """It ends by its deadline, costs little memory, and a good endpoint is served meanwhile."""
    first, again, expected = FLOODS[name]
    before = forget_peak()
    with RawServer(flood(first, again)) as server, RawServer(replies(OK)) as good:
        transport.start(post(server.url(), key="flood", timeout_s=SHORT_S))
        transport.start(post(good.url(), key="good"))
        found = {each.request.key: each for each in collect(transport, 2)}
        after = send(transport, post(good.url()))

    response = found["flood"]
    assert response.error in expected, response
    assert len(response.body) <= 65_536
    assert response.finished - response.started < SHORT_S + 0.5
    assert (found["good"].status_code, after.status_code) == (200, 200)
    assert after.finished - after.started < 0.5
    assert peak_kb() - before < 20_000
