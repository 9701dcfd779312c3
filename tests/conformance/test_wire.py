"""The bytes on the wire are the same, whatever sends them."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import MAKERS
from tests.rawserver import RawServer, replies
from tests.transports import HEADERS, OK, SETTINGS, post, send
from webhooks.attempt import Headers


@pytest.mark.parametrize(
    ("path", "headers", "body"),
    [
        ("/hook", HEADERS, b'{"a": 1.10}'),
        ("/a%2fb/../c//d?x=%zz&y=a%2f+b", HEADERS, b"{}"),
        ("?only=query", HEADERS[:1], b"0"),
        ("/", (*HEADERS, ("X-Last", ',;=:\t"quoted"')), bytes(range(256)) * 300),
    ],
    ids=["plain", "odd path", "no path", "large body"],
)
def test_both_transports_send_the_same_bytes(path: str, headers: Headers, body: bytes) -> None:
    """Request line, headers in their order and case, and body: byte for byte."""
    sent = {}
    with RawServer(replies(OK)) as server:
        for kind, make in MAKERS.items():
            transport = make(SETTINGS)
            for _ in range(2):
                send(transport, post(server.url(path), headers=headers, body=body))
            transport.close()
            first, second = ((r.head, r.body) for r in server.requests[-2:])
            assert first == second
            sent[kind] = first

    assert sent["curl"] == sent["requests"]
    assert sent["curl"][1] == body
