"""The libcurl transport against real sockets on loopback, well-behaved and hostile."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import ipaddress
import resource
import select
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from tests.rawserver import Peer, RawServer, raw, replies, reply, silent
from webhooks.addresses import AddressPolicy
from webhooks.attempt import ErrorClass, Headers
from webhooks.resolver import Resolver
from webhooks.settings import Settings
from webhooks.transports.base import Request, Response, Transport
from webhooks.transports.curl import CurlTransport
from webhooks.transports.exchange import Exchange

# Only 127.0.0.1 and ::1 are open: 127.0.0.2 and up play the internal hosts.
SETTINGS = Settings(
    allow_http=True,
    allow_cidrs=(ipaddress.ip_network("127.0.0.1/32"), ipaddress.ip_network("::1/128")),
    max_in_flight=600,
)
HEADERS: Headers = (
    ("Content-Type", "application/json"),
    ("User-Agent", "Webhooks/1.2.3"),
    ("webhook-id", "evt_01h455vb4pex5vsknk084sn02q"),
    ("X-MiXed-Case", "Kept as Given"),
)
BODY = b'{"type": "invoice.paid",  "amount": 1.10}'
SHORT_S = 0.4
OK = reply(200, b"ok")

Names = dict[str, list[str]]


def resolver(names: Names | None = None) -> Resolver:
    """A resolver that knows only ``names``."""

    def look_up(host: str) -> list[str]:
        if host not in (names or {}):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return (names or {})[host]

    return Resolver(AddressPolicy.from_settings(SETTINGS), look_up)


@pytest.fixture
def transport() -> Iterator[CurlTransport]:
    made = CurlTransport(SETTINGS, resolver=resolver({"receiver.example": ["127.0.0.1"]}))
    yield made
    made.close()


def post(
    url: str,
    *,
    key: object = 1,
    headers: Headers = HEADERS,
    body: bytes = BODY,
    connect_timeout_s: float = 2.0,
    timeout_s: float = 5.0,
) -> Request:
    return Request(key, url, headers, body, connect_timeout_s, timeout_s)


def collect(transport: Transport, count: int, within_s: float = 10.0) -> list[Response]:
    """Wait for ``count`` responses."""
    deadline = time.monotonic() + within_s
    found: list[Response] = []
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} responses"
        found += transport.wait(0.1)
    return found


def send(transport: Transport, request: Request) -> Response:
    transport.start(request)
    return collect(transport, 1)[0]


# What goes out


def test_request_bytes_are_exactly_those_given(transport: CurlTransport) -> None:
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
def test_any_bytes_arrive_as_they_were(transport: CurlTransport, body: bytes) -> None:
    """Bodies are bytes all the way, whatever is in them (W025, W003, W004)."""
    with RawServer(replies(OK)) as server:
        response = send(transport, post(server.url(), body=body))

    assert response.status_code == 200
    assert server.requests[0].body == body
    assert server.requests[0].header("expect") is None


def test_nothing_is_added_to_the_headers(transport: CurlTransport) -> None:
    """Without a User-Agent none is sent: libcurl's name and version are nobody's business."""
    with RawServer(replies(OK)) as server:
        send(transport, post(server.url(), headers=(("Content-Type", "text/plain"),)))

    names = [name for name, _ in server.requests[0].headers]
    assert names == ["Host", "Content-Type", "Content-Length"]


@pytest.mark.parametrize(
    "path", ["/h/a%7Eb?sig=%2f+%2B=", "/a/../b", "/%pp", "/x|y", "/{id}", "/?", "/a//b/./c"]
)
def test_request_target_is_sent_as_stored(transport: CurlTransport, path: str) -> None:
    """Nothing in path or query is rewritten on the way (W028)."""
    with RawServer(replies(OK)) as server:
        send(transport, post(server.url(path)))

    assert server.requests[0].target == path.removesuffix("?")


def test_environment_does_not_reroute(
    transport: CurlTransport, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
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


def test_cookies_are_never_sent_back(transport: CurlTransport) -> None:
    """A cookie that one endpoint sets reaches no other on the same host (W079)."""
    with RawServer(replies(reply(200, headers=[("Set-Cookie", "sid=A; Path=/")]))) as server:
        for path in ("/a", "/b", "/a"):
            send(transport, post(server.url(path)))

    assert [request.header("cookie") for request in server.requests] == [None] * 3


# What comes back


@pytest.mark.parametrize("status", [200, 201, 204, 299, 306, 404, 410, 451, 499, 520, 599])
def test_status_headers_and_body_are_reported(transport: CurlTransport, status: int) -> None:
    """Any final status from 200 to 599 is a response, not a transport error (W054, W069)."""
    body = b"" if status == 204 else b"\xff\xfe\x00\x82PNG"
    with RawServer(replies(reply(status, body, [("X-Some", "caf\xe9")]))) as server:
        response = send(transport, post(server.url(), key="mine"))

    assert (response.error, response.status_code, response.body) == (None, status, body)
    assert ("X-Some", "caf\xe9") in response.headers
    assert (response.request.key, response.detail, response.truncated) == ("mine", "", False)


def test_timings_and_peer_are_reported(transport: CurlTransport) -> None:
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
def test_redirects_are_never_followed(transport: CurlTransport, status: int) -> None:
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
def test_encoded_bodies_are_stored_raw(transport: CurlTransport, encoding: str) -> None:
    """A wrong or bomb-like Content-Encoding is never decoded (W058)."""
    bomb = gzip.compress(b"\0" * 20_000_000)
    with RawServer(replies(reply(200, bomb, [("Content-Encoding", encoding)]))) as server:
        response = send(transport, post(server.url()))

    assert (response.error, response.body) == (None, bomb)
    assert server.requests[0].header("accept-encoding") is None


def test_body_of_64_kb_is_whole_and_one_byte_more_is_cut(transport: CurlTransport) -> None:
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
def test_endless_body_is_cut(transport: CurlTransport, head: bytes) -> None:
    """An endless body costs 64 kB and a moment; the status decides (W060)."""

    def script(peer: Peer) -> None:
        peer.read()
        peer.send(head)
        peer.flood(b"4000\r\n" + b"z" * 0x4000 + b"\r\n" if b"chunked" in head else b"z" * 16_384)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with RawServer(script) as server:
        response = send(transport, post(server.url()))

    assert (response.status_code, response.error, response.truncated) == (200, None, True)
    assert len(response.body) == 65_536
    assert response.finished - response.started < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000


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
def test_trouble_in_the_body_is_a_note(transport: CurlTransport, data: bytes) -> None:
    """Status line and headers decide; a broken body is only noted (W057)."""
    with RawServer(raw(data)) as server:
        response = send(transport, post(server.url()))

    assert (response.error, response.status_code, response.body) == (None, 200, b"ok")
    assert response.detail.startswith("the response body is incomplete: ")


def test_reset_after_the_headers_is_a_note(transport: CurlTransport) -> None:
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


def test_endless_trailers_are_cut(transport: CurlTransport) -> None:
    """Trailers count against the header limit and change no verdict."""

    def script(peer: Peer) -> None:
        peer.read()
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n")
        peer.flood(b"X-Trailer: " + b"t" * 1000 + b"\r\n")

    with RawServer(script) as server:
        response = send(transport, post(server.url()))

    assert (response.error, response.status_code, response.body) == (None, 200, b"ok")
    assert response.finished - response.started < 2


# Hostile headers


@pytest.mark.parametrize(
    "interim", [b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"]
)
def test_interim_responses_are_skipped(transport: CurlTransport, interim: bytes) -> None:
    """Up to five interim responses come before the one that counts, also on the next request."""
    with RawServer(replies(interim * 5 + OK, reply(500))) as server:
        first, second = (send(transport, post(server.url())) for _ in range(2))

    assert (first.status_code, first.body) == (200, b"ok")
    assert all(name != "Link" for name, _ in first.headers)
    assert second.status_code == 500


def test_endless_interim_responses_end_the_attempt(transport: CurlTransport) -> None:
    """The sixth interim response is a protocol error, at once."""

    def script(peer: Peer) -> None:
        peer.read()
        peer.flood(b"HTTP/1.1 100 Continue\r\n\r\n")

    with RawServer(script) as server:
        response = send(transport, post(server.url()))

    assert response.error is ErrorClass.PROTOCOL
    assert "more than 5 interim" in response.detail
    assert response.finished - response.started < 2


@pytest.mark.parametrize(
    "data",
    [
        b"hello, this is HTTP/0.9\r\n",
        b"ok",
        b"ICY 200 OK\r\n\r\n",
        b"SSH-2.0-OpenSSH_9\r\n",
        b"\x15\x03\x01\x00\x02\x02\x50",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/0.9 200 OK\r\n\r\n",
        b"HTTP/1.1 abc Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 000 Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 20 Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 1000 Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 600 Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nX-Nul: a\x00b\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\tContent-Type: x\r\nno-colon-line\r\nX: 1\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"l" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 " + b"r" * 1_000_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-Many: m\r\n" * 120 + b"Content-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n",
    ],
    ids=lambda data: data[:24].decode("latin-1") + f" {len(data)}",
)
def test_what_is_not_a_response_is_a_protocol_error(transport: CurlTransport, data: bytes) -> None:
    """Foreign, malformed, oversized and cut header blocks fail (W066, W067, W069, W070)."""

    def script(peer: Peer) -> None:
        peer.read()
        peer.send(data)
        if b" 101 " in data:
            peer.hold()

    with RawServer(script) as server:
        response = send(transport, post(server.url()))

    assert response.error is ErrorClass.PROTOCOL
    assert response.detail
    assert response.finished - response.started < 2
    assert response.body == b""


def test_a_hundred_headers_are_fine(transport: CurlTransport) -> None:
    """The limit is above 100 headers, not at it."""
    head = b"HTTP/1.1 200 OK\r\n" + b"X-Many: m\r\n" * 99 + b"Content-Length: 0\r\n\r\n"
    with RawServer(replies(head)) as server:
        response = send(transport, post(server.url()))

    assert (response.error, len(response.headers)) == (None, 100)


# Deadlines


def header_drip(peer: Peer) -> None:
    peer.read()
    peer.send(b"HTTP/1.1 200 OK\r\n")
    peer.drip(b"X-Slow: " + b"s" * 1000, 0.05)


def body_drip(peer: Peer) -> None:
    peer.read()
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    peer.drip(b"b" * 1000, 0.05)


def unread(peer: Peer) -> None:
    peer.stopped.wait(5)


@pytest.mark.parametrize(
    ("script", "body", "error", "status"),
    [
        (silent, BODY, ErrorClass.TIMEOUT, None),
        (header_drip, BODY, ErrorClass.TIMEOUT, 200),
        (body_drip, BODY, None, 200),
        (unread, b"u" * 8_000_000, ErrorClass.TIMEOUT, None),
    ],
    ids=["no answer", "header drip", "body drip", "request not read"],
)
def test_every_attempt_ends_at_its_deadline(
    transport: CurlTransport,
    script: Callable[[Peer], None],
    body: bytes,
    error: ErrorClass | None,
    status: int | None,
) -> None:
    """One wall-clock deadline covers it all; a body that drips is a note (W061, W072)."""
    with RawServer(script) as server:
        response = send(transport, post(server.url(), body=body, timeout_s=SHORT_S))

    assert (response.error, response.status_code) == (error, status)
    assert SHORT_S - 0.01 <= response.finished - response.started < SHORT_S + 0.3
    assert response.detail


def test_timeouts_count_from_each_requests_own_start(transport: CurlTransport) -> None:
    """Many slow answers at once do not add up to timeouts (W099)."""

    def script(peer: Peer) -> None:
        while peer.read() is not None:
            peer.stopped.wait(0.08)
            peer.send(OK)

    with RawServer(script) as server:
        for key in range(100):
            transport.start(post(server.url(), key=key, timeout_s=3.0))
        found = collect(transport, 100)

    assert {response.request.key for response in found} == set(range(100))
    assert all(response.status_code == 200 for response in found)


def test_connect_timeout_covers_the_tls_handshake(transport: CurlTransport) -> None:
    """A handshake that never comes ends after the connect timeout, not the total."""
    with RawServer(silent) as server:
        url = server.url().replace("http:", "https:")
        response = send(transport, post(url, connect_timeout_s=SHORT_S))

    assert response.error is ErrorClass.TIMEOUT
    assert response.finished - response.started < SHORT_S + 0.3


# Connections


def test_connections_are_kept_alive(transport: CurlTransport) -> None:
    """Requests one after the other share a connection."""
    with RawServer(replies(OK)) as server:
        for _ in range(20):
            send(transport, post(server.url()))

    assert (server.connections, len(server.requests)) == (1, 20)


def test_connection_that_was_closed_while_idle_is_replaced(transport: CurlTransport) -> None:
    """A receiver that closes idle connections is none the wiser, and gets each request once."""

    def script(peer: Peer) -> None:
        peer.read()
        peer.send(OK)

    with RawServer(script) as server:
        for _ in range(5):
            assert send(transport, post(server.url())).status_code == 200
            transport.wait(0.05)

    assert (server.connections, len(server.requests)) == (5, 5)


@pytest.mark.parametrize("how", ["close", "reset"])
def test_dead_kept_connection_is_repeated_once_on_a_new_one(
    transport: CurlTransport, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With four kept connections that all die, a POST goes out twice, not six times."""
    primed = threading.Semaphore(0)
    repeats: list[float] = []
    again = Exchange.prepare_again

    def counted(exchange: Exchange, now: float) -> None:
        repeats.append(now)
        again(exchange, now)

    monkeypatch.setattr(Exchange, "prepare_again", counted)

    def script(peer: Peer) -> None:
        peer.read()
        if peer.number <= 4:
            primed.acquire(timeout=5)
        peer.send(OK)
        if peer.read() is not None and how == "reset":
            peer.reset()

    with RawServer(script) as server:
        for key in range(4):
            transport.start(post(server.url(), key=key))
        while len(server.requests) < 4:
            assert transport.wait(0.01) == []
        primed.release(4)
        collect(transport, 4)
        assert server.connections == 4

        response = send(transport, post(server.url(), key="fifth"))

    assert (response.error, response.status_code) == (None, 200)
    assert [request.connection for request in server.requests[4:]][1:] == [5]
    assert (len(server.requests), len(repeats)) == (6, 1)


def test_new_connection_that_dies_is_not_repeated(transport: CurlTransport) -> None:
    """Only a reused connection's death is worth a second try within the attempt."""

    def script(peer: Peer) -> None:
        peer.read()
        peer.reset()

    with RawServer(script) as server:
        response = send(transport, post(server.url()))

    assert response.error is ErrorClass.CONNECT
    assert len(server.requests) == 1


def test_kept_connection_that_dies_in_its_answer_is_not_repeated(transport: CurlTransport) -> None:
    """Once the status line of an answer came, the request is not sent again."""

    def script(peer: Peer) -> None:
        peer.read()
        peer.send(OK)
        if peer.read() is not None:
            peer.send(b"HTTP/1.1 200 OK\r\nX-")

    with RawServer(script) as server:
        send(transport, post(server.url()))
        response = send(transport, post(server.url()))

    assert response.error is ErrorClass.PROTOCOL
    assert len(server.requests) == 2


def test_handle_serves_normally_after_a_repeat(transport: CurlTransport) -> None:
    """The forced new connection is for the repeat alone: later requests are kept alive again."""
    primed = threading.Semaphore(0)

    def script(peer: Peer) -> None:
        peer.read()
        if peer.number <= 2:
            primed.acquire(timeout=5)
        peer.send(OK)
        while peer.read() is not None and peer.number > 2:
            peer.send(OK)

    with RawServer(script) as server:
        for _ in range(2):
            transport.start(post(server.url()))
        while len(server.requests) < 2:
            assert transport.wait(0.01) == []
        primed.release(2)
        collect(transport, 2)
        for _ in range(5):
            assert send(transport, post(server.url())).status_code == 200

    assert server.connections == 3


@pytest.mark.parametrize(
    "last", [b"", b"HTTP/1.1 200 O", b"HTTP/1.1 103 Early Hints\r\n\r\n", None],
    ids=["close", "in the status line", "after an interim response", "reset"],
)  # fmt: skip
def test_connection_closed_without_an_answer(transport: CurlTransport, last: bytes | None) -> None:
    """A closed or reset connection is a connect failure, not an internal error (W070)."""

    def script(peer: Peer) -> None:
        peer.read()
        if last is None:
            peer.reset()
        else:
            peer.send(last)

    with RawServer(script) as server:
        response = send(transport, post(server.url()))

    assert response.error is ErrorClass.CONNECT
    assert response.body == b""


def test_refused_connection(transport: CurlTransport) -> None:
    """Nobody listens: connect."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    response = send(transport, post(f"http://127.0.0.1:{port}/"))

    assert response.error is ErrorClass.CONNECT
    assert response.peer is None


def test_thousands_in_flight_in_one_thread() -> None:
    """600 requests wait for their answers at the same time, in this one thread."""
    transport = CurlTransport(SETTINGS)
    everyone = threading.Semaphore(0)

    def script(peer: Peer) -> None:
        peer.read()
        everyone.acquire()
        peer.send(OK)

    threads = threading.active_count()
    with RawServer(script) as server:
        for key in range(600):
            transport.start(post(server.url(), key=key, timeout_s=20))
        assert transport.in_flight == transport.capacity == 600
        while len(server.requests) < 600:
            assert transport.wait(0.05) == []
        in_flight = transport.in_flight
        mine = threading.active_count() - server.connections - 1 - threads
        everyone.release(600)
        found = collect(transport, 600)
    transport.close()

    assert (in_flight, mine) == (600, 0)
    assert {response.request.key for response in found} == set(range(600))
    assert all(response.status_code == 200 for response in found)


def test_responses_are_not_mixed_up(transport: CurlTransport) -> None:
    """Each response comes back with its own request, over reused connections and handles."""

    def script(peer: Peer) -> None:
        while (request := peer.read()) is not None:
            peer.send(reply(200, request.body + request.target.encode()))

    with RawServer(script) as server:
        for turn in range(5):
            for number in range(50):
                url, body = server.url(f"/{number}"), f"{turn}-{number}".encode()
                transport.start(post(url, key=(turn, number), body=body))
            for response in collect(transport, 50):
                key = response.request.key
                assert isinstance(key, tuple)
                assert response.body == f"{key[0]}-{key[1]}/{key[1]}".encode()


# Addresses


def test_blocked_address_is_never_dialled(transport: CurlTransport) -> None:
    """Literals, spellings and names of denied addresses: no connection, one text for names."""
    names = {
        "mixed.example": ["127.0.0.1", "127.0.0.2"],
        "inner.example": ["127.0.0.2"],
        "six.example": ["fd00::1"],
        "nobody.example": [],
    }
    guarded = CurlTransport(SETTINGS, resolver=resolver(names))
    with RawServer(replies(OK), host="127.0.0.2") as trap:
        hosts = ["127.0.0.2", "[::ffff:127.0.0.2]", "169.254.169.254", *names]
        hosts.append("metadata.google.internal")
        found = [send(guarded, post(trap.url(host=host), key=host)) for host in hosts]
    guarded.close()

    assert {r.error for r in found} == {ErrorClass.BLOCKED_ADDRESS}
    assert {r.detail for r in found if r.request.key in names} == {
        "the target address is not allowed"
    }
    assert {(r.peer, r.status_code, r.body) for r in found} == {(None, None, b"")}
    assert trap.connections == 0


def test_open_socket_is_the_last_gate(transport: CurlTransport) -> None:
    """A denied address that got past every other check is refused before a packet leaves."""
    with RawServer(replies(OK), host="127.0.0.2") as trap:
        transport._resolver._policy = AddressPolicy(allow=(ipaddress.ip_network("127.0.0.0/8"),))
        transport._resolver._look_up = lambda _host: ["127.0.0.2"]
        response = send(transport, post(trap.url(host="passed.example")))

    assert (response.error, response.detail) == (
        ErrorClass.BLOCKED_ADDRESS,
        "the target address is not allowed",
    )
    assert (trap.connections, response.peer) == (0, None)


def test_rebinding_reaches_only_what_was_checked() -> None:
    """Over 100 attempts a name that flips between look-ups never reaches the inside (W035)."""
    flips = iter([["127.0.0.1"], ["127.0.0.2"]] * 100)
    rebinding = Resolver(AddressPolicy.from_settings(SETTINGS), lambda _host: next(flips))
    transport = CurlTransport(SETTINGS, resolver=rebinding)
    with RawServer(replies(OK)) as server, RawServer(replies(OK), host="127.0.0.2") as trap:
        for _ in range(100):
            rebinding._kept.clear()
            response = send(transport, post(server.url(host="flip.example")))
            assert response.error in (None, ErrorClass.BLOCKED_ADDRESS)
    transport.close()

    assert trap.connections == 0
    assert server.requests[0].header("host") == f"flip.example:{server.port}"


def test_name_is_looked_up_once_and_pinned() -> None:
    """One look-up serves many attempts; a new answer is followed by new connections."""
    asked: list[str] = []
    answers = ["127.0.0.1"]

    def look_up(host: str) -> list[str]:
        asked.append(host)
        return list(answers)

    counting = Resolver(AddressPolicy.from_settings(SETTINGS), look_up)
    transport = CurlTransport(SETTINGS, resolver=counting)
    with RawServer(raw(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")) as server:
        first = [send(transport, post(server.url(host="moves.example"))) for _ in range(5)]
        answers[:] = ["::1"]
        counting._kept.clear()
        second = send(transport, post(server.url(host="moves.example")))
    transport.close()

    assert [response.peer for response in first] == ["127.0.0.1"] * 5
    assert len(asked) == 2
    assert second.error is ErrorClass.CONNECT  # nobody listens on ::1


def test_dead_address_falls_back_to_the_next(transport: CurlTransport) -> None:
    """With one dead and one live answer the live one is reached in time (W040)."""
    transport._resolver._look_up = lambda _host: ["::1", "127.0.0.1"]
    with RawServer(replies(OK)) as server:
        response = send(transport, post(server.url(host="two.example")))

    assert (response.status_code, response.peer) == (200, "127.0.0.1")


def test_silent_address_does_not_eat_the_timeout(transport: CurlTransport) -> None:
    """An address that swallows packets is passed over after a moment (W040, W041)."""
    transport._resolver._look_up = lambda _host: ["::1", "127.0.0.1"]
    with RawServer(replies(OK)) as server, contextlib.ExitStack() as stack:
        # A full backlog answers no SYN.
        hole = stack.enter_context(socket.socket(socket.AF_INET6))
        hole.bind(("::1", server.port))
        hole.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket(socket.AF_INET6))
            filler.setblocking(False)
            filler.connect_ex(("::1", server.port))
        response = send(transport, post(server.url(host="two.example")))

    assert (response.status_code, response.peer) == (200, "127.0.0.1")
    assert response.finished - response.started < 1


def test_unknown_name(transport: CurlTransport) -> None:
    """A name that does not exist: dns, with the reason."""
    response = send(transport, post("https://gone.example/"))

    assert response.error is ErrorClass.DNS
    assert response.detail == "the host name has no address: Name or service not known"


def test_slow_look_up_does_not_block_the_others(transport: CurlTransport) -> None:
    """While one name hangs, other requests are served; the hanging one ends as dns."""
    release = threading.Event()

    def look_up(host: str) -> list[str]:
        if host == "hang.example":
            release.wait(10)
        return ["127.0.0.1"]

    transport._resolver._look_up = look_up
    with RawServer(replies(OK)) as server:
        transport.start(post(server.url(host="hang.example"), key="slow", timeout_s=SHORT_S))
        for key in range(10):
            transport.start(post(server.url(host="fine.example"), key=key))
        found = collect(transport, 10)
        (slow,) = collect(transport, 1)
        release.set()

    assert all(response.status_code == 200 for response in found)
    assert (slow.request.key, slow.error) == ("slow", ErrorClass.DNS)
    assert slow.detail == "the host name was not resolved within 0.4 s"
    assert SHORT_S <= slow.finished - slow.started < SHORT_S + 0.3


def test_total_deadline_includes_the_look_up(transport: CurlTransport) -> None:
    """Time spent on the name is not given again to the answer."""

    def look_up(_host: str) -> list[str]:
        threading.Event().wait(0.25)
        return ["127.0.0.1"]

    transport._resolver._look_up = look_up
    with RawServer(silent) as server:
        response = send(transport, post(server.url(host="slow.example"), timeout_s=0.5))

    assert response.error is ErrorClass.TIMEOUT
    assert 0.49 <= response.finished - response.started < 0.7
    assert response.timings.dns_ms == pytest.approx(250, abs=100)


def test_ipv6_literal(transport: CurlTransport) -> None:
    """An allowed IPv6 literal is dialled with its brackets in Host."""
    with RawServer(replies(OK), host="::1") as server:
        response = send(transport, post(server.url()))

    assert (response.status_code, response.peer) == (200, "::1")
    assert server.requests[0].header("host") == f"[::1]:{server.port}"


# Requests that cannot be sent


@pytest.mark.parametrize(
    "url",
    ["http://a..b/", f"http://{'a' * 64}.com/", "http://*.ex.test/", "http://[::1", "ftp://x.y/",
     "", "no url", "http://", "http://h.example:99999/", "http://h.example/\x00", "http://é\ud800/"],
)  # fmt: skip
def test_bad_url_is_a_response(transport: CurlTransport, url: str) -> None:
    """A URL that was stored wrong is an attempt of class invalid_url, and nothing else (W029)."""
    with RawServer(replies(OK)) as server:
        transport.start(post(url, key="bad"))
        transport.start(post(server.url(), key="good"))
        found = {response.request.key: response for response in collect(transport, 2)}

    assert found["bad"].error is ErrorClass.INVALID_URL
    assert found["bad"].detail
    assert found["good"].status_code == 200


def test_setting_that_closes_http_does_not_make_urls_invalid() -> None:
    """What the operator's settings refuse is blocked, so that nothing is thrown away for ever."""
    transport = CurlTransport(Settings())
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
def test_bad_header_is_a_response(transport: CurlTransport, header: tuple[str, str]) -> None:
    """A header that could be read in two ways is never sent; the next request is served."""
    with RawServer(replies(OK)) as server:
        response = send(transport, post(server.url(), headers=(*HEADERS, header)))
        after = send(transport, post(server.url()))

    assert response.error is ErrorClass.INTERNAL
    assert "header" in response.detail
    assert after.status_code == 200
    assert len(server.requests) == 1


def test_wrong_type_is_a_response(transport: CurlTransport) -> None:
    """Even a body of the wrong type comes back as a response."""
    response = send(transport, post("http://127.0.0.1:9999/", body=3))  # type: ignore[arg-type]

    assert response.error is ErrorClass.INTERNAL


# The loop


def test_what_is_known_is_returned_at_once(transport: CurlTransport) -> None:
    """A request that failed on its start does not wait for anything else."""
    began = time.monotonic()
    transport.start(post("no url"))

    assert len(transport.wait(5)) == 1
    assert time.monotonic() - began < 1


def test_closed_idle_connections_cost_nothing(
    transport: CurlTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a receiver closes kept connections the loop sleeps on, it does not spin."""
    with RawServer(replies(OK)) as server:
        for _ in range(3):
            send(transport, post(server.url()))
    turns: list[float] = []
    wait = transport._sockets.wait

    def counted(pause_s: float) -> tuple[bool, list[tuple[int, int]]]:
        turns.append(pause_s)
        return wait(pause_s)

    monkeypatch.setattr(transport._sockets, "wait", counted)
    assert transport.wait(0.2) == []

    assert len(turns) < 10


def test_wake_ends_a_wait(transport: CurlTransport) -> None:
    """wake from another thread makes a wait return at once, and a wake before it too."""
    timer = threading.Timer(0.05, transport.wake)
    began = time.monotonic()
    timer.start()
    assert transport.wait(5) == []
    transport.wake()
    transport.wake()
    assert transport.wait(5) == []
    timer.join()

    assert time.monotonic() - began < 2


def test_wait_keeps_to_its_time(transport: CurlTransport) -> None:
    """With nothing to return, wait returns nothing after its time; zero means now."""
    began = time.monotonic()
    assert transport.wait(0) == []
    assert transport.wait(0.1) == []

    assert 0.09 < time.monotonic() - began < 0.5


def test_sockets_are_served_though_starts_fail(transport: CurlTransport) -> None:
    """A steady stream of failing starts does not starve what is in flight."""
    with RawServer(replies(OK)) as server:
        transport.start(post(server.url(), key="good"))
        keys: list[object] = []
        for _ in range(2000):
            transport.start(post("no url", key="bad"))
            keys += [response.request.key for response in transport.wait(0)]
            if "good" in keys:
                break

    assert "good" in keys


def test_close_with_requests_in_flight() -> None:
    """close drops what is in flight; a wake that comes later harms nobody."""
    transport = CurlTransport(SETTINGS)
    with RawServer(silent) as server:
        transport.start(post(server.url()))
        while not server.requests:
            transport.wait(0.01)
        transport.close()
        transport.wake()

    assert len(server.requests) == 1


def test_poll_serves_where_epoll_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a system without epoll the same loop runs over poll."""
    monkeypatch.delattr(select, "epoll")
    transport = CurlTransport(SETTINGS)

    def script(peer: Peer) -> None:
        for _ in range(2):
            if peer.read() is not None:
                peer.send(OK)

    with RawServer(script) as server:
        for _ in range(6):
            assert send(transport, post(server.url())).status_code == 200
            transport.wait(0.02)
    transport.close()

    assert server.connections == 3


def test_without_pycurl_the_import_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is named, so that nobody has to guess."""
    monkeypatch.setitem(sys.modules, "pycurl", None)
    monkeypatch.delitem(sys.modules, "webhooks.transports.curl")

    with pytest.raises(ImportError, match=r"pip install 'webhooks-platform\[curl\]'"):
        importlib.import_module("webhooks.transports.curl")


# TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def tls_context(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(context)
    return context


@pytest.fixture
def trusting(authority: trustme.CA, tmp_path: Path) -> Iterator[CurlTransport]:
    """A transport that trusts the test's own authority and knows secure.example."""
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(bundle)
    names = {"secure.example": ["127.0.0.1"], "other.example": ["127.0.0.1"]}
    made = CurlTransport(SETTINGS, resolver=resolver(names), ca_file=str(bundle))
    yield made
    made.close()


def test_tls_with_a_good_certificate(authority: trustme.CA, trusting: CurlTransport) -> None:
    """The certificate is checked against the name, which is also what SNI and Host say."""
    seen: list[str | None] = []
    context = tls_context(authority.issue_cert("secure.example"))
    context.sni_callback = lambda _socket, name, _context: seen.append(name)
    with RawServer(replies(OK), tls=context) as server:
        responses = [send(trusting, post(server.url(host="secure.example"))) for _ in range(2)]

    assert [response.status_code for response in responses] == [200, 200]
    assert (seen, server.connections) == (["secure.example"], 1)
    timings = responses[0].timings
    assert timings.connect_ms is not None
    assert timings.tls_ms is not None
    assert timings.connect_ms <= timings.tls_ms


def test_tls_faults_are_told_apart(authority: trustme.CA, trusting: CurlTransport) -> None:
    """Unknown authority, wrong name and plain HTTP: class tls, each with its reason (W043)."""
    good = authority.issue_cert("secure.example")
    contexts = {
        "secure.example": tls_context(trustme.CA().issue_cert("secure.example")),
        "other.example": tls_context(good),
    }
    details = []
    for host, context in contexts.items():
        with RawServer(replies(OK), tls=context) as server:
            response = send(trusting, post(server.url(host=host)))
            assert (response.error, server.requests) == (ErrorClass.TLS, [])
            details.append(response.detail)
    with RawServer(lambda peer: peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as server:
        url = server.url(host="secure.example").replace("http:", "https:")
        response = send(trusting, post(url))
        assert response.error is ErrorClass.TLS
        details.append(response.detail)

    assert "certificate" in details[0]
    assert "other.example" in details[1]
    assert len(set(details)) == 3
