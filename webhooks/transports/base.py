"""The protocol between who sends (a dispatcher) and what sends (a transport)."""

from __future__ import annotations

import time
from typing import Protocol

from msgspec import Struct

from webhooks.addresses import UrlError
from webhooks.attempt import ErrorClass, Headers, Timings
from webhooks.resolver import DnsError

MOST_BODY_BYTES = 65_536
ONLY_THE_FIRST = "only the first 64 kB of the response body were read"
# Idle connections close after a minute and none gets older than five, so that a
# receiver who moves to other addresses is followed.
IDLE_CONNECTION_S = 60
OLDEST_CONNECTION_S = 300


class Request(Struct, frozen=True, gc=False):
    """One POST, or ``method``. ``key`` is the sender's own and comes back with the response.

    ``timeout_s`` bounds the whole attempt from ``start`` on, name look-up included;
    ``connect_timeout_s`` the connection with its TLS handshake. Seconds. ``ca_pem``:
    certificates in PEM that this request trusts instead of the usual authorities.
    """

    key: object
    url: str
    headers: Headers
    body: bytes
    connect_timeout_s: float
    timeout_s: float
    ca_pem: str | None = None
    method: str = "POST"


class Response(Struct, frozen=True, gc=False):
    """What came back. ``error`` is None when a final status line and its headers arrived.

    ``error`` is then decided by the status alone, elsewhere; trouble in the body is a
    note in ``detail``. ``body`` holds at most the first 64 kB, ``truncated`` says that
    there was more. ``started`` and ``finished`` are readings of time.monotonic().
    """

    request: Request
    error: ErrorClass | None
    detail: str
    started: float
    finished: float
    status_code: int | None = None
    headers: Headers = ()
    body: bytes = b""
    truncated: bool = False
    peer: str | None = None
    timings: Timings = Timings()


class Transport(Protocol):
    """Sends requests, many at a time; only ``wake`` may be called from another thread."""

    @property
    def capacity(self) -> int:
        """The most requests that may be in flight."""

    @property
    def in_flight(self) -> int:
        """Requests started whose response ``wait`` has not returned yet."""

    def start(self, request: Request) -> None:
        """Begin to send. Never raises: what is wrong with a request is its response."""

    def wait(self, timeout_s: float) -> list[Response]:
        """Responses that have come in: at once if there are any, else within ``timeout_s``.

        Returns early, perhaps with nothing, after ``wake``.
        """

    def wake(self) -> None:
        """Make the ``wait`` that runs, or else the next one, return."""

    def close(self) -> None:
        """Drop what is in flight and close every connection."""


def failed(request: Request, started: float, kind: ErrorClass, detail: str) -> Response:
    """The response of a request that ended before anything was sent."""
    now = time.monotonic()
    timings = Timings(total_ms=(now - started) * 1000)
    return Response(request, kind, detail, started, now, timings=timings)


def refused(request: Request, started: float, error: UrlError | DnsError) -> Response:
    """The response of a request whose target is not allowed, no URL, or not found."""
    if isinstance(error, DnsError):
        kind = ErrorClass.DNS
    else:
        kind = ErrorClass.BLOCKED_ADDRESS if error.policy else ErrorClass.INVALID_URL
    return failed(request, started, kind, str(error))
