"""A response that breaks off anywhere harms nobody but its own attempt."""

from __future__ import annotations

import pytest

from tests.rawserver import Peer, RawServer, Script, replies
from tests.transports import OK, SHORT_S, post, send
from webhooks.transports.base import Transport

# Everything that a parser keeps a state for.
STREAM = (
    b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n  ;b\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nX: 1\r\n \t2\r\n \r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2;name=value\r\nok\r\n0\r\nTrailer: 1\r\n  2\r\n\r\n"
)


def ends(data: bytes, how: str) -> Script:
    """Answer with ``data``; then close, reset, or say nothing more."""

    def script(peer: Peer) -> None:
        peer.read()
        peer.send(data)
        if how == "reset":
            peer.reset()
        elif how == "silence":
            peer.hold()

    return script


@pytest.mark.parametrize("how", ["close", "reset"])
def test_cut_at_every_byte(transport: Transport, how: str) -> None:
    """After a response that was cut anywhere, the next receiver's is read as it was sent."""
    cuts = iter(range(len(STREAM) + 1))
    answered = 0

    def script(peer: Peer) -> None:
        ends(STREAM[: next(cuts)], how)(peer)

    with RawServer(script) as hostile, RawServer(replies(OK)) as good:
        for cut in range(len(STREAM) + 1):
            odd = send(transport, post(hostile.url()))
            fine = send(transport, post(good.url()))
            assert (fine.error, fine.status_code, fine.body) == (None, 200, b"ok"), STREAM[:cut]
            assert odd.error is None or odd.error.value in ("protocol", "connect")
            answered += odd.error is None

    # From the end of the final head on, the status has decided.
    assert answered == len(STREAM) - STREAM.index(b"2;name") + 1 or how == "reset"
    assert len(good.requests) == len(STREAM) + 1


@pytest.mark.parametrize(
    "tail", [b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\nX: 1\r\n ", STREAM[:-14], b" ", b"H"]
)
def test_silence_in_the_middle(transport: Transport, tail: bytes) -> None:
    """The same where the deadline ends it, inside a folded line too."""
    with RawServer(ends(tail, "silence")) as hostile, RawServer(replies(OK)) as good:
        send(transport, post(hostile.url(), timeout_s=SHORT_S / 4))
        for _ in range(3):
            fine = send(transport, post(good.url()))
            assert (fine.error, fine.status_code, fine.body) == (None, 200, b"ok")
