"""Where a response's head and body end: what every transport takes, and what it refuses.

What two readers could read in two ways is refused (RFC 9112 section 11.2); the rest is
taken as libcurl takes it, and the body never changes a verdict.
"""

from __future__ import annotations

import pytest

from tests.rawserver import Peer, RawServer, raw, replies
from tests.transports import OK, post, send
from webhooks.transports.base import Transport

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
TWO = b"Content-Length: 2\r\n\r\nok"

# A response, and the body that is taken from it; its status is 200.
TAKEN = {
    "folded header": (HEAD + b"X: 1\r\n  more\r\n" + TWO, b"ok"),
    "leading blank": (HEAD + b" X: 1\r\n" + TWO, b"ok"),
    "8-bit name": (HEAD + b"X\xff: 1\r\n" + TWO, b"ok"),
    "escape in a value": (HEAD + b"X: \x1b[31mred\r\n" + TWO, b"ok"),
    "bare line feeds": (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", b"ok"),
    "no reason": (b"HTTP/1.1 200\r\n" + TWO, b"ok"),
    "interim 199": (b"HTTP/1.1 199 x\r\n\r\n" + OK, b"ok"),
    "the same length twice": (HEAD + b"Content-Length: 2\r\n" + TWO, b"ok"),
    "the same length in a list": (HEAD + b"Content-Length: 2, 2\r\n\r\nok", b"ok"),
    "30 digits": (HEAD + b"Content-Length: " + b"9" * 30 + b"\r\n\r\nok", b"ok"),
    "5,000 digits": (HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\nok", b"ok"),
    "chunked and a length": (
        HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"ok",
    ),
    "CHUNKED": (HEAD + b"Transfer-Encoding: CHUNKED\r\n\r\n2\r\nok\r\n0\r\n\r\n", b"ok"),
    "chunk extension": (CHUNKED + b"2;a=b\r\nok\r\n0\r\n\r\n", b"ok"),
    "trailer": (CHUNKED + b"2\r\nok\r\n0\r\nX: 1\r\n\r\n", b"ok"),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\n\r\nok", b"ok"),
    "HTTP/1.0 chunked": (
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"ok",
    ),
    "more than announced": (HEAD + TWO + b"EXTRA", b"ok"),
    "charset of no kind": (HEAD + b"Content-Type: text/plain; charset=banana\r\n" + TWO, b"ok"),
    "charset cut": (HEAD + b"Content-Type: text/plain; charset=utf-16\r\n" + TWO, b"ok"),
}
# A response whose body is not as announced, and what is taken of it.
NOTED = {
    "size with 0x": (CHUNKED + b"0x2\r\nok\r\n0\r\n\r\n", b""),
    "negative size": (CHUNKED + b"-2\r\nok\r\n0\r\n\r\n", b""),
    "size with _": (CHUNKED + b"0_2\r\nok\r\n0\r\n\r\n", b""),
    "huge size": (CHUNKED + b"F" * 20 + b"\r\nok", b""),
    "no size": (CHUNKED + b"\r\n2\r\nok\r\n0\r\n\r\n", b""),
    "chunk too long": (CHUNKED + b"2\r\nokXX0\r\n\r\n", b"ok"),
    "cut before the last chunk": (CHUNKED + b"2\r\nok\r\n", b"ok"),
    "cut in the trailers": (CHUNKED + b"2\r\nok\r\n0\r\nX: 1\r\n", b"ok"),
}
REFUSED = {
    "no colon": HEAD + b"X: 1\r\nnocolon\r\n" + TWO,
    "NUL in a name": HEAD + b"X\0: 1\r\n" + TWO,
    "NUL in a folded line": HEAD + b"X: 1\r\n \0\r\n" + TWO,
    "bare carriage return": HEAD + b"X: a\rb\r\n" + TWO,
    "NUL in the status line": b"HTTP/1.1 200 O\0K\r\n" + TWO,
    "length of letters": HEAD + b"Content-Length: abc\r\n\r\nok",
    "negative length": HEAD + b"Content-Length: -5\r\n\r\nok",
    "length with a plus": HEAD + b"Content-Length: +2\r\n\r\nok",
    "empty length": HEAD + b"Content-Length: \r\n\r\nok",
    "length and more": HEAD + b"Content-Length: 2x\r\n\r\nok",
    "two lengths in a list": HEAD + b"Content-Length: 2, 3\r\n\r\nok",
    "length in other digits": HEAD + b"Content-Length: \xef\xbc\x92\r\n\r\nok",
    "gzip": HEAD + b"Transfer-Encoding: gzip\r\n\r\nok",
    "gzip, chunked": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "chunked, gzip": HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "a blank line first": b"\r\nHTTP/1.1 200 OK\r\n" + TWO,
    "a tab in the status line": b"HTTP/1.1\t200 OK\r\n" + TWO,
    "two blanks in it": b"HTTP/1.1  200 OK\r\n" + TWO,
    "no blank in it": b"HTTP/1.1 200OK\r\n" + TWO,
    "HTTP/1.2": b"HTTP/1.2 200 OK\r\n" + TWO,
    "small letters": b"http/1.1 200 OK\r\n" + TWO,
    "cut interim": b"HTTP/1.1 100 Continue\r\nX",
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken(transport: Transport, name: str) -> None:
    """Odd but clear: the attempt is delivered, without a note (W064)."""
    data, body = TAKEN[name]
    with RawServer(raw(data)) as server:
        response = send(transport, post(server.url()))

    assert (response.error, response.status_code, response.detail) == (None, 200, "")
    assert (response.body, response.truncated) == (body, False)


@pytest.mark.parametrize("name", NOTED)
def test_what_is_noted(transport: Transport, name: str) -> None:
    """The status has decided; what is wrong with the body is a note (W057)."""
    data, body = NOTED[name]
    with RawServer(raw(data)) as server:
        response = send(transport, post(server.url()))

    assert (response.error, response.status_code, response.body) == (None, 200, body)
    assert response.detail.startswith("the response body is incomplete: ")


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(transport: Transport, name: str) -> None:
    """What could be read in two ways, or is no HTTP/1, is a protocol error (W067)."""
    with RawServer(raw(REFUSED[name])) as server:
        response = send(transport, post(server.url()))

    assert response.error == "protocol", response
    assert (response.body, response.headers) == (b"", ())
    assert response.detail


@pytest.mark.parametrize("status", [204, 304])
def test_no_body_follows_204_and_304(transport: Transport, status: int) -> None:
    """Whatever length they announce (RFC 9112 section 6.3)."""
    head = b"HTTP/1.1 %d x\r\nContent-Length: 2\r\n\r\n" % status
    with RawServer(replies(head)) as server:
        found = [send(transport, post(server.url())) for _ in range(2)]

    assert [(each.error, each.status_code, each.body) for each in found] == [
        (None, status, b"")
    ] * 2
    assert found[0].finished - found[0].started < 1


def test_what_follows_a_response_is_not_the_next_one(transport: Transport) -> None:
    """A second answer that nobody asked for is dropped with its connection (SECURITY 0.4)."""

    def script(peer: Peer) -> None:
        while (request := peer.read()) is not None:
            peer.send(OK if request.target == "/next" else OK + HEAD + b"X-Forged: 1\r\n" + TWO)

    with RawServer(script) as server:
        for _ in range(10):
            assert send(transport, post(server.url("/odd"))).status_code == 200
            following = send(transport, post(server.url("/next")))
            assert "X-Forged" not in dict(following.headers)

    assert len(server.requests) == 20


@pytest.mark.parametrize("greeting", [b"SSH-2.0-OpenSSH_9", b"220 mail ESMTP", b"\x4a\0\0\0\x0a8"])
def test_another_protocols_greeting_ends_the_attempt_at_once(
    transport: Transport, greeting: bytes
) -> None:
    """A line that never ends is not waited for when it cannot be a status line (W070)."""

    def script(peer: Peer) -> None:
        peer.read()
        peer.send(greeting)
        peer.hold()

    with RawServer(script) as server:
        response = send(transport, post(server.url()))

    assert response.error == "protocol"
    assert response.finished - response.started < 1
