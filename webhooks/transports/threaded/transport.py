"""The transport on `requests`: a bounded number of threads, one request in each.

For where libcurl has no wheel, or by choice. It goes through requests' adapter alone: a
Session would read the whole body of a redirect, keep cookies, and look into the environment.
"""

from __future__ import annotations

import contextlib
import http.client
import queue
import re
import threading
import time
from functools import lru_cache
from urllib.parse import urlsplit

import requests
import urllib3

from webhooks.addresses import NOT_ALLOWED, AddressPolicy, Url, UrlError, parse_url
from webhooks.attempt import ErrorClass, Timings
from webhooks.resolver import DEADLINE_S, DnsError, Resolver
from webhooks.settings import Settings
from webhooks.transports.base import (
    MOST_BODY_BYTES,
    ONLY_THE_FIRST,
    Request,
    Response,
    failed,
    refused,
)
from webhooks.transports.proxy import Proxy
from webhooks.transports.threaded.adapter import Adapter
from webhooks.transports.threaded.arenas import limit_arenas
from webhooks.transports.threaded.attempt import Attempt, attempting
from webhooks.transports.threaded.connections import Blocked
from webhooks.transports.threaded.faults import TIMED_OUT, Fault, fault_of, reason_of
from webhooks.transports.threaded.tls import Trust
from webhooks.transports.threaded.tunnel import ProxyFault
from webhooks.transports.threaded.watchdog import Watchdog

# More only wait for the interpreter's lock: what the threads are for is receivers that hang.
MOST_THREADS = 256
KEPT_URLS = 10_000
PIECE_BYTES = 16_384
SWEEP_EVERY_S = 10.0
ESCAPE = re.compile("%[0-9a-f]{2}", re.IGNORECASE)


class ThreadsTransport:
    """Sends through requests. See ``base.Transport``."""

    def __init__(
        self, settings: Settings, *, resolver: Resolver | None = None, ca_file: str | None = None
    ) -> None:
        limit_arenas()
        policy = AddressPolicy.from_settings(settings)
        self._allows = policy.allows
        self._resolver = resolver or Resolver(policy)
        self._parse = lru_cache(KEPT_URLS)(lambda text: parse_url(text, policy))
        self._proxy = Proxy.parse(settings.egress_proxy)
        self._capacity = min(settings.max_in_flight, MOST_THREADS)
        self._adapter = Adapter(Trust(ca_file), self._capacity)
        self._dog = Watchdog()
        self._to_send: queue.SimpleQueue[tuple[Request, float] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Response | None] = queue.SimpleQueue()
        self._in_flight = 0
        self._threads = 0
        self._closed = False
        self._swept = time.monotonic()

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def in_flight(self) -> int:
        return self._in_flight

    def start(self, request: Request) -> None:
        """Begin to send. Never raises: what is wrong with a request is its response."""
        self._in_flight += 1
        started = time.monotonic()
        if self._threads >= min(self._in_flight, self._capacity) or self._start_thread():
            self._to_send.put((request, started))
        else:
            why = "no thread could be started"
            self._done.put(failed(request, started, ErrorClass.CONNECT, why))

    def wait(self, timeout_s: float) -> list[Response]:
        """Responses that have come in: at once if there are any, else within ``timeout_s``."""
        done = []
        with contextlib.suppress(queue.Empty):
            done.append(self._done.get(timeout=max(0.0, timeout_s)))
            while True:
                done.append(self._done.get_nowait())
        responses = [response for response in done if response is not None]
        self._in_flight -= len(responses)
        if time.monotonic() - self._swept >= SWEEP_EVERY_S:
            self._swept = time.monotonic()
            self._adapter.pools.sweep(2 * self._capacity)
        return responses

    def wake(self) -> None:
        """Make the ``wait`` that runs, or else the next one, return. Any thread may call it."""
        self._done.put(None)

    def close(self) -> None:
        """Drop what is in flight and close every connection."""
        self._closed = True
        self._dog.close()
        for _ in range(self._threads):
            self._to_send.put(None)
        self._adapter.close()
        self._resolver.close()

    def _start_thread(self) -> bool:
        """Whether there is a thread, a new one or, where the system allows no more, any."""
        try:
            threading.Thread(target=self._run, name="sender", daemon=True).start()
        except RuntimeError:
            return self._threads > 0
        self._threads += 1
        return True

    def _run(self) -> None:
        while (item := self._to_send.get()) is not None:
            if self._closed:
                continue
            request, started = item
            try:
                response = self._send(request, started)
            except Exception as error:  # one odd request must not cost the others a thread
                why = f"it cannot be sent: {error}"
                response = failed(request, started, ErrorClass.INTERNAL, why)
            self._done.put(response)

    def _send(self, request: Request, started: float) -> Response:
        try:
            url = self._parse(request.url)
            known = url.literal or self._resolver.known(url.host) is not None
            addresses = self._resolve(url, request)
        except (UrlError, DnsError) as error:
            return refused(request, started, error)
        resolved = None if known else time.monotonic()
        watch = self._dog.watch(started + request.timeout_s)
        attempt = Attempt(
            request, url, _target(url), addresses, self._allows, started, watch, self._proxy
        )
        try:
            with attempting(attempt):
                return self._exchange(attempt, resolved)
        finally:
            watch.end()

    def _resolve(self, url: Url, request: Request) -> tuple[str, ...]:
        if url.literal:
            return (url.host.strip("[]"),)
        return self._resolver.resolve(url.host, min(DEADLINE_S, request.timeout_s))

    def _exchange(self, attempt: Attempt, resolved: float | None) -> Response:
        body: list[bytes] = []
        fault: Fault | None = None
        note = ""
        try:
            raw = self._post(attempt)
            note = _read(raw, body, attempt)
        except Blocked:
            fault = ErrorClass.BLOCKED_ADDRESS, NOT_ALLOWED
        except ProxyFault as error:
            fault = ErrorClass.PROXY, str(error)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            fault = TIMED_OUT if attempt.watch.fired else fault_of(error, attempt)
        kept, now = b"".join(body), time.monotonic()
        return Response(
            request=attempt.request,
            error=fault and fault[0],
            detail=fault[1] if fault else note,
            started=attempt.started,
            finished=now,
            status_code=attempt.head.status or None,
            headers=attempt.head.headers,
            body=kept[:MOST_BODY_BYTES],
            truncated=len(kept) > MOST_BODY_BYTES,
            peer=attempt.peer,
            timings=_timings(attempt, resolved, now),
        )

    def _post(self, attempt: Attempt) -> urllib3.BaseHTTPResponse:
        """Send and read the head; once again if a kept-alive connection had died meanwhile.

        Only when no byte of an answer came, and not after a deadline: the receiver closed
        the connection while it was idle, and has not seen the request.
        """
        try:
            return self._adapter.post(attempt)
        except requests.ConnectionError:
            if not attempt.reused or attempt.head.size or attempt.watch.fired:
                raise
        attempt.again()
        return self._adapter.post(attempt)


def _read(raw: urllib3.BaseHTTPResponse, body: list[bytes], attempt: Attempt) -> str:
    """Read up to the limit into ``body``; a note says what is missing. The status has decided."""
    room = MOST_BODY_BYTES + 1
    try:
        while room > 0 and (piece := raw.read1(min(room, PIECE_BYTES), decode_content=False)):
            body.append(piece)
            room -= len(piece)
    except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError) as error:
        raw.close()
        why = TIMED_OUT[1] if attempt.watch.fired else attempt.head.fault or reason_of(error)
        return f"the response body is incomplete: {why}"
    if room <= 0:
        raw.close()
        return ONLY_THE_FIRST
    if attempt.watch.fired:
        raw.close()
        return f"the response body is incomplete: {TIMED_OUT[1]}"
    raw.release_conn()
    return ""


def _timings(attempt: Attempt, resolved: float | None, now: float) -> Timings:
    def ms(at: float | None) -> float | None:
        return None if at is None else (at - attempt.started) * 1000

    return Timings(
        dns_ms=ms(resolved),
        connect_ms=ms(attempt.connected_at),
        tls_ms=ms(attempt.secured_at),
        first_byte_ms=ms(attempt.first_byte_at),
        total_ms=ms(now),
    )


def _target(url: Url) -> str:
    """The request target as libcurl sends it: as it stands, escapes of the path in capitals."""
    parts = urlsplit(url.text)
    path = ESCAPE.sub(lambda escape: escape[0].upper(), parts.path or "/")
    return path + (f"?{parts.query}" if parts.query else "")
