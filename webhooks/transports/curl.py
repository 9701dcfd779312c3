"""The default transport: libcurl's multi interface, thousands in flight in one thread.

The event loop is our own, over ``socket_action``: pycurl offers neither poll nor wake-up
of a multi handle, and its fdset stops at 1,024 descriptors.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

try:
    import certifi
    import pycurl
except ImportError as missing:
    raise ImportError("pycurl is not installed; pip install 'webhooks-platform[curl]'") from missing

from webhooks.addresses import AddressPolicy, Url, UrlError, parse_url
from webhooks.attempt import ErrorClass
from webhooks.resolver import Answer, DnsError, Resolver
from webhooks.settings import Settings
from webhooks.transports.base import Request, Response, failed, refused
from webhooks.transports.exchange import Exchange
from webhooks.transports.proxy import Proxy
from webhooks.transports.sockets import Sockets

KEPT_URLS = 10_000


@dataclass(slots=True)
class _Waiting:
    """A request whose host name is being looked up."""

    request: Request
    url: Url
    started: float
    patience_s: float
    over: bool = field(default=False)


class CurlTransport:
    """Sends through libcurl. See ``base.Transport``; not safe to share between threads."""

    def __init__(
        self, settings: Settings, *, resolver: Resolver | None = None, ca_file: str | None = None
    ) -> None:
        policy = AddressPolicy.from_settings(settings)
        self._allows = policy.allows
        self._resolver = resolver or Resolver(policy)
        self._ca_file = ca_file or certifi.where()
        self._parse = lru_cache(KEPT_URLS)(lambda text: parse_url(text, policy))
        self._proxy = Proxy.parse(settings.egress_proxy)
        self._capacity = settings.max_in_flight
        self._in_flight = 0
        self._idle: list[Exchange] = []
        self._busy: set[Exchange] = set()
        self._done: list[Response] = []
        self._waiting: dict[str, list[_Waiting]] = {}
        self._deadlines: list[tuple[float, int, _Waiting]] = []
        self._numbers = itertools.count()
        self._answers: deque[tuple[str, Answer]] = deque()
        self._sockets = Sockets()
        self._due: float | None = None
        self._multi = self._open_multi()

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
        try:
            url = self._parse(request.url)
        except UrlError as error:
            self._refuse(request, started, error)
            return
        if url.literal:
            self._begin(request, url, (), started, started)
            return
        answer = self._resolver.known(url.host)
        if answer is None:
            patience_s = self._resolver.patience_s(url.host, request.timeout_s)
            self._look_up(_Waiting(request, url, started, patience_s))
        else:
            self._go_on(request, url, answer, started, started)

    def wait(self, timeout_s: float) -> list[Response]:
        """Responses that have come in: at once if there are any, else within ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        while True:
            now = time.monotonic()
            self._run_timers(now)
            # Sockets are served even when there is something to return: none may starve.
            woken = self._serve(0.0 if self._done else min(deadline, self._next_timer()) - now)
            if self._done or woken or time.monotonic() >= deadline:
                break
        done, self._done = self._done, []
        self._in_flight -= len(done)
        return done

    def wake(self) -> None:
        """Make the ``wait`` that runs, or else the next one, return. Any thread may call it."""
        self._sockets.wake()

    def close(self) -> None:
        """Drop what is in flight and close every connection."""
        for exchange in self._busy:
            self._multi.remove_handle(exchange.easy)
        self._multi.close()
        for exchange in (*self._busy, *self._idle):
            exchange.easy.close()
        self._resolver.close()
        self._sockets.close()

    # Name look-up.

    def _look_up(self, waiting: _Waiting) -> None:
        until = waiting.started + waiting.patience_s
        heapq.heappush(self._deadlines, (until, next(self._numbers), waiting))
        host = waiting.url.host
        if host in self._waiting:
            self._waiting[host].append(waiting)
        else:
            self._waiting[host] = [waiting]
            self._resolver.ask(host, self._on_answer)

    def _on_answer(self, host: str, answer: Answer) -> None:
        """Called in a thread of the resolver."""
        self._answers.append((host, answer))
        self.wake()

    def _take_answers(self, now: float) -> None:
        while self._answers:
            host, answer = self._answers.popleft()
            for waiting in self._waiting.pop(host):
                if not waiting.over:
                    waiting.over = True
                    self._go_on(waiting.request, waiting.url, answer, waiting.started, now)

    def _give_up_look_ups(self, now: float) -> None:
        while self._deadlines and (self._deadlines[0][0] <= now or self._deadlines[0][2].over):
            waiting = heapq.heappop(self._deadlines)[2]
            if not waiting.over:
                waiting.over = True
                answer = self._resolver.give_up(waiting.url.host, waiting.patience_s)
                self._go_on(waiting.request, waiting.url, answer, waiting.started, now)

    def _go_on(
        self, request: Request, url: Url, answer: Answer, started: float, now: float
    ) -> None:
        if answer.error is None:
            self._begin(request, url, answer.addresses, started, now)
        else:
            self._refuse(request, started, answer.error)

    def _refuse(self, request: Request, started: float, error: UrlError | DnsError) -> None:
        self._done.append(refused(request, started, error))

    def _fail(self, request: Request, started: float, detail: str) -> None:
        self._done.append(failed(request, started, ErrorClass.INTERNAL, detail))

    # Transfers.

    def _begin(
        self, request: Request, url: Url, addresses: tuple[str, ...], started: float, now: float
    ) -> None:
        exchange = self._idle.pop() if self._idle else self._new_exchange()
        try:
            exchange.prepare(request, url, addresses, started, now)
            self._multi.add_handle(exchange.easy)
        except (pycurl.error, TypeError, ValueError) as error:
            exchange.easy.close()  # half prepared: not for another request
            self._fail(request, started, f"it cannot be sent: {error}")
            return
        self._busy.add(exchange)

    def _new_exchange(self) -> Exchange:
        return Exchange(self._allows, self._sockets.opened, self._ca_file, self._proxy)

    def _finish(self, easy: Any, code: int, text: str, now: float) -> None:
        exchange: Exchange = easy.exchange
        self._multi.remove_handle(easy)
        if exchange.may_repeat(code):
            exchange.prepare_again(now)
            self._multi.add_handle(easy)
            return
        self._done.append(exchange.response(code, text, now))
        self._busy.discard(exchange)
        if exchange.is_clean(code):
            exchange.release()
            self._idle.append(exchange)
        else:
            exchange.discard()

    def _collect(self) -> None:
        _, good, bad = self._multi.info_read(self._capacity)
        now = time.monotonic()
        for easy, code, text in [*((easy, 0, "") for easy in good), *bad]:
            try:
                self._finish(easy, code, text, now)
            except Exception as error:  # one odd transfer must not cost its neighbours theirs
                self._abandon(easy, error)

    def _abandon(self, easy: Any, error: Exception) -> None:
        exchange: Exchange = easy.exchange
        self._busy.discard(exchange)
        easy.close()
        detail = f"its end could not be understood: {type(error).__name__}"
        self._fail(exchange.request, time.monotonic(), detail)

    # The event loop.

    def _run_timers(self, now: float) -> None:
        self._take_answers(now)
        self._give_up_look_ups(now)
        if self._due is not None and self._due <= now:
            self._due = None
            self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
            self._collect()

    def _next_timer(self) -> float:
        due = self._deadlines[0][0] if self._deadlines else float("inf")
        return due if self._due is None else min(due, self._due)

    def _serve(self, pause_s: float) -> bool:
        """Wait for sockets and let libcurl work on them. True: ``wake`` was called."""
        woken, ready = self._sockets.wait(max(0.0, pause_s))
        for descriptor, events in ready:
            self._multi.socket_action(descriptor, events)
        if ready:
            self._collect()
        return woken

    def _open_multi(self) -> Any:
        multi = pycurl.CurlMulti()
        multi.setopt(pycurl.M_SOCKETFUNCTION, self._sockets.watch)
        multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        multi.setopt(pycurl.M_MAXCONNECTS, self._capacity)
        multi.setopt(pycurl.M_MAX_TOTAL_CONNECTIONS, 2 * self._capacity)
        return multi

    def _on_timer(self, timeout_ms: int) -> None:
        self._due = None if timeout_ms < 0 else time.monotonic() + timeout_ms / 1000
