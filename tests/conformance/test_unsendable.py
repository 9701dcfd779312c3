"""A request that cannot be sent is a response."""

from __future__ import annotations

import pytest

from tests.rawserver import RawServer, replies
from tests.transports import (
    HEADERS,
    OK,
    Make,
    collect,
    post,
    send,
)
from webhooks.attempt import ErrorClass
from webhooks.settings import Settings
from webhooks.transports.base import Transport


@pytest.mark.parametrize(
    "url",
    ["http://a..b/", f"http://{'a' * 64}.com/", "http://*.ex.test/", "http://[::1", "ftp://x.y/",
     "", "no url", "http://", "http://h.example:99999/", "http://h.example/\x00", "http://é\ud800/"],
)  # fmt: skip
def test_bad_url_is_a_response(transport: Transport, url: str) -> None:
    """A URL that was stored wrong is an attempt of class invalid_url, and nothing else (W029)."""
    with RawServer(replies(OK)) as server:
        transport.start(post(url, key="bad"))
        transport.start(post(server.url(), key="good"))
        found = {response.request.key: response for response in collect(transport, 2)}

    assert found["bad"].error is ErrorClass.INVALID_URL
    assert found["bad"].detail
    assert found["good"].status_code == 200


def test_setting_that_closes_http_does_not_make_urls_invalid(make: Make) -> None:
    """What the operator's settings refuse is blocked, so that nothing is thrown away for ever."""
    transport = make(Settings())
    responses = [
        send(transport, post(f"{base}/")) for base in ("http://a.example", "https://a.example:22")
    ]
    transport.close()

    assert [response.error for response in responses] == [ErrorClass.BLOCKED_ADDRESS] * 2


@pytest.mark.parametrize(
    "header",
    [("X", "a\r\nY: b"), ("X", "a\nY: b"), ("X ", "a"), ("X:Y", "a"), ("X", "☃"), ("X", "a\0b"),
     ("", "a"), ("X", ""), ("X\r\nY", "a"), ("X", " a"), ("X", "a ")],
)  # fmt: skip
def test_bad_header_is_a_response(transport: Transport, header: tuple[str, str]) -> None:
    """A header that could be read in two ways is never sent; the next request is served."""
    with RawServer(replies(OK)) as server:
        response = send(transport, post(server.url(), headers=(*HEADERS, header)))
        after = send(transport, post(server.url()))

    assert response.error is ErrorClass.INTERNAL
    assert "header" in response.detail
    assert after.status_code == 200
    assert len(server.requests) == 1


def test_wrong_type_is_a_response(transport: Transport) -> None:
    """Even a body of the wrong type comes back as a response."""
    response = send(transport, post("http://127.0.0.1:9999/", body=3))  # type: ignore[arg-type]

    assert response.error is ErrorClass.INTERNAL
