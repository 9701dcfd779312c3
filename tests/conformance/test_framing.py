"""Where a response's head and body end: what every transport takes, and what it refuses.

What two readers could read in two ways is refused (RFC 9112 section 11.2); the rest is
taken as libcurl takes it, and the body never changes a verdict.
"""

from __future__ import annotations

import pytest

from tests.conformance.framings import HEAD, NOTED, REFUSED, TAKEN, TWO
from tests.rawserver import Peer, RawServer, raw, replies
from tests.transports import OK, post, send
from webhooks.transports.base import Transport


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
