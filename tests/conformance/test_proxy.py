"""The egress proxy: everything goes through it, and its faults are not the endpoint's (W046)."""

from __future__ import annotations

import base64
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import msgspec
import pytest
import trustme

from tests.proxies import ConnectProxy
from tests.rawserver import RawServer, replies, reply
from tests.stack import free_port
from tests.transports import OK, SETTINGS, Make, post, resolver, send
from webhooks.attempt import ErrorClass
from webhooks.transports.base import Request, Transport

NAMES = {
    "receiver.example": ["127.0.0.1"],
    "other.example": ["127.0.0.1"],
    "inside.example": ["127.0.0.2"],
}


@contextmanager
def through(make: Make, url: str) -> Iterator[Transport]:
    transport = make(replace(SETTINGS, egress_proxy=url), resolver=resolver(NAMES))
    try:
        yield transport
    finally:
        transport.close()


def refusing(status: int) -> ConnectProxy:
    return ConnectProxy(lambda head: b"HTTP/1.1 %d No\r\nContent-Length: 2\r\n\r\nno" % status)


def test_the_tunnel_leads_to_the_address_that_was_checked(make: Make) -> None:
    """The proxy is asked for an address, and learns neither name nor headers of the request."""
    with RawServer(replies(OK)) as server, ConnectProxy() as proxy, through(make, proxy.url) as t:
        port = server.url().split(":")[2].split("/")[0]
        got = send(t, post(f"http://receiver.example:{port}/hook"))

    assert (got.status_code, got.body, got.peer) == (200, b"ok", "127.0.0.1")
    assert proxy.asked == [f"CONNECT 127.0.0.1:{port} HTTP/1.1"]
    assert "receiver.example" not in proxy.heads[0]
    assert "webhook" not in proxy.heads[0].lower()
    (request,) = server.requests
    assert request.header("host") == f"receiver.example:{port}"
    assert request.target == "/hook"
    assert all(name.lower() != "via" for name, _ in got.headers)


def test_a_proxy_that_wants_to_know_us_is_told(make: Make) -> None:
    """User and password go to it, and to nobody else."""
    with RawServer(replies(OK)) as server, ConnectProxy() as proxy:
        url = proxy.url.replace("//", "//hooks:p%40ss@")
        with through(make, url) as transport:
            assert send(transport, post(server.url())).status_code == 200

    expected = base64.b64encode(b"hooks:p@ss").decode()
    assert f"Proxy-Authorization: Basic {expected}" in proxy.heads[0]
    assert server.requests[0].header("proxy-authorization") is None


@pytest.mark.parametrize("status", [403, 407, 502, 503])
def test_a_refusal_of_the_proxy_is_no_answer_of_the_endpoint(make: Make, status: int) -> None:
    """It has a class of its own, says who answered, and leaves no status behind."""
    with RawServer(replies(OK)) as server, refusing(status) as proxy, through(make, proxy.url) as t:
        got = send(t, post(server.url()))

    assert (got.error, got.status_code, got.body, got.headers) == (ErrorClass.PROXY, None, b"", ())
    assert f"the egress proxy answered {status}" in got.detail
    assert server.requests == []


def test_an_answer_inside_the_tunnel_is_the_endpoints(make: Make) -> None:
    """A 407 or 502 that the receiver itself sends counts as its own."""
    for status in (407, 502):
        answer = replies(reply(status))
        with RawServer(answer) as server, ConnectProxy() as proxy, through(make, proxy.url) as t:
            got = send(t, post(server.url()))
        assert (got.error, got.status_code) == (None, status)


@pytest.mark.parametrize("how", ["nobody", "silent", "closes", "garbage"])
def test_a_proxy_that_does_not_work_is_named(make: Make, how: str) -> None:
    """Nobody listens, it says nothing, it hangs up, it speaks something else."""

    def answer(head: str) -> bytes:
        if how == "silent":
            time.sleep(3)
        return b"220 mail.example ESMTP\r\n\r\n" if how == "garbage" else b""

    with ConnectProxy(answer) as proxy:
        url = f"http://127.0.0.1:{free_port()}" if how == "nobody" else proxy.url
        with through(make, url) as transport:
            begun = time.monotonic()
            got = send(
                transport, post("http://127.0.0.1:9000/", connect_timeout_s=0.5, timeout_s=1)
            )

    assert got.error is ErrorClass.PROXY, got
    assert "egress proxy" in got.detail
    assert got.status_code is None
    assert time.monotonic() - begun < 1.6


def test_what_is_not_allowed_is_not_even_asked_for(make: Make) -> None:
    """The rule is the target's: the proxy hears nothing of a blocked one."""
    with ConnectProxy() as proxy, through(make, proxy.url) as transport:
        for url in ("http://inside.example:9000/", "http://127.0.0.2:9000/"):
            assert send(transport, post(url)).error is ErrorClass.BLOCKED_ADDRESS

    assert proxy.heads == []


def test_a_tunnel_is_kept_for_its_own_endpoint(make: Make) -> None:
    """Two requests share it; another name at the same address gets one of its own."""
    with RawServer(replies(OK)) as server, ConnectProxy() as proxy, through(make, proxy.url) as t:
        port = server.url().split(":")[2].split("/")[0]
        for name in ("receiver", "receiver", "other"):
            assert send(t, post(f"http://{name}.example:{port}/")).status_code == 200

    assert len(proxy.asked) == 2
    assert [r.header("host") for r in server.requests] == [
        f"receiver.example:{port}", f"receiver.example:{port}", f"other.example:{port}",
    ]  # fmt: skip


def test_a_proxy_of_the_environment_plays_no_part(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTTP_PROXY and its kin are for other programs."""
    with RawServer(replies(OK)) as server, refusing(407) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        transport = make(SETTINGS, resolver=resolver(NAMES))
        assert send(transport, post(server.url())).status_code == 200
        transport.close()

    assert proxy.heads == []


def test_tls_is_spoken_with_the_endpoint_not_with_the_proxy(make: Make) -> None:
    """The certificate is checked against the endpoint's name, end to end."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("receiver.example").configure_cert(context)
    pem = authority.cert_pem.bytes().decode()
    with RawServer(replies(OK), tls=context) as server, ConnectProxy() as proxy:
        port = server.url().split(":")[2].split("/")[0]
        with through(make, proxy.url) as t:
            good = send(t, replace_ca(post(f"https://receiver.example:{port}/"), pem))
            bad = send(t, replace_ca(post(f"https://other.example:{port}/"), pem))

    assert (good.status_code, good.body) == (200, b"ok")
    assert bad.error is ErrorClass.TLS
    assert proxy.asked[0] == f"CONNECT 127.0.0.1:{port} HTTP/1.1"


def replace_ca(request: Request, pem: str) -> Request:
    return msgspec.structs.replace(request, ca_pem=pem)
