"""For tests of transports: settings, a resolver that knows only some names, send and collect."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Callable

from tests.rawserver import Peer, RawServer, reply
from webhooks.addresses import AddressPolicy
from webhooks.attempt import Headers
from webhooks.resolver import Resolver
from webhooks.settings import Settings
from webhooks.transports.base import Request, Response, Transport

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
Make = Callable[..., Transport]


def resolver(names: Names | None = None) -> Resolver:
    """A resolver that knows only ``names``."""

    def look_up(host: str) -> list[str]:
        if host not in (names or {}):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return (names or {})[host]

    return Resolver(AddressPolicy.from_settings(SETTINGS), look_up)


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


def send_after_four_died(transport: Transport, how: str) -> tuple[Response, RawServer]:
    """A request to a receiver whose four kept-alive connections die under it (close or reset)."""
    primed = threading.Semaphore(0)

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
        return send(transport, post(server.url(), key="fifth")), server
