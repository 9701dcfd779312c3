"""Another method than POST."""

from __future__ import annotations

from msgspec.structs import replace

from tests.conformance.conftest import MAKERS
from tests.rawserver import RawServer, replies
from tests.transports import OK, SETTINGS, post, send


def test_a_method_is_one_requests_own() -> None:
    """OPTIONS goes out without a body, the next one on the connection is a POST again."""
    sent = {}
    with RawServer(replies(OK)) as server:
        for kind, make in MAKERS.items():
            transport = make(SETTINGS)
            for method, body in (("POST", b"{}"), ("OPTIONS", b""), ("POST", b"{}")):
                send(transport, replace(post(server.url("/a?b"), body=body), method=method))
            transport.close()
            sent[kind] = [(r.head, r.body) for r in server.requests[-3:]]
            assert len({r.connection for r in server.requests[-3:]}) == 1

    assert sent["curl"] == sent["requests"]
    assert [head.split(b"\r\n")[0] for head, _ in sent["curl"]] == [
        b"POST /a?b HTTP/1.1", b"OPTIONS /a?b HTTP/1.1", b"POST /a?b HTTP/1.1"
    ]  # fmt: skip
    assert [body for _, body in sent["curl"]] == [b"{}", b"", b"{}"]
