"""What goes out on the wire: exactly what was given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rawserver import RawServer, replies, reply
from tests.transports import (
    BODY,
    HEADERS,
    OK,
    post,
    send,
)
from webhooks.transports.base import Transport


def test_request_bytes_are_exactly_those_given(transport: Transport) -> None:
    """POST, the headers in their order and case, one Content-Length, the body untouched (W022)."""
    with RawServer(replies(OK)) as server:
        send(transport, post(server.url("/hook?x=1")))

    (request,) = server.requests
    assert request.start_line == "POST /hook?x=1 HTTP/1.1"
    assert request.body == BODY
    assert request.headers == [
        ("Host", f"127.0.0.1:{server.port}"),
        *HEADERS,
        ("Content-Length", str(len(BODY))),
    ]


@pytest.mark.parametrize(
    "body",
    [
        '{"text":"Привет 😱"}'.encode(),
        '{"sku":"\u2028\u2028724812-22\u2029"}'.encode(),
        b'{"m":"\\u001b[31mred\\u0007\\t"}',
        b"\x00\x01 NUL inside \x00",
        b"x" * 1_500_000,
    ],
    ids=["W025", "W003", "W004", "nul", "large"],
)
def test_any_bytes_arrive_as_they_were(transport: Transport, body: bytes) -> None:
    """Bodies are bytes all the way, whatever is in them (W025, W003, W004)."""
    with RawServer(replies(OK)) as server:
        response = send(transport, post(server.url(), body=body))

    assert response.status_code == 200
    assert server.requests[0].body == body
    assert server.requests[0].header("expect") is None


def test_nothing_is_added_to_the_headers(transport: Transport) -> None:
    """Without a User-Agent none is sent: libcurl's name and version are nobody's business."""
    with RawServer(replies(OK)) as server:
        send(transport, post(server.url(), headers=(("Content-Type", "text/plain"),)))

    names = [name for name, _ in server.requests[0].headers]
    assert names == ["Host", "Content-Type", "Content-Length"]


@pytest.mark.parametrize(
    "path", ["/h/a%7Eb?sig=%2f+%2B=", "/a/../b", "/%pp", "/x|y", "/{id}", "/?", "/a//b/./c"]
)
def test_request_target_is_sent_as_stored(transport: Transport, path: str) -> None:
    """Nothing in path or query is rewritten on the way (W028)."""
    with RawServer(replies(OK)) as server:
        send(transport, post(server.url(path)))

    assert server.requests[0].target == path.removesuffix("?")


def test_environment_does_not_reroute(
    transport: Transport, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Proxy variables and netrc files of the process are ignored (W046)."""
    (tmp_path / ".netrc").write_text("default login canary password canary\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    with RawServer(replies(reply(407))) as proxy, RawServer(replies(OK)) as server:
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url())
        response = send(transport, post(server.url()))

    assert (response.status_code, proxy.connections) == (200, 0)
    assert server.requests[0].header("authorization") is None


def test_cookies_are_never_sent_back(transport: Transport) -> None:
    """A cookie that one endpoint sets reaches no other on the same host (W079)."""
    with RawServer(replies(reply(200, headers=[("Set-Cookie", "sid=A; Path=/")]))) as server:
        for path in ("/a", "/b", "/a"):
            send(transport, post(server.url(path)))

    assert [request.header("cookie") for request in server.requests] == [None] * 3
