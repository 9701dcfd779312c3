"""Host names to addresses: a few threads, every look-up bounded in time and remembered.

getaddrinfo has no time limit and cannot be stopped, so it runs in daemon threads, and
who waits for it gives up by himself. A name is good only if every answer is allowed.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from webhooks.addresses import AddressPolicy, UrlError, blocked

DEADLINE_S = 3.0
THREADS = 16
KEEP_S = 60.0
KEEP_FAILURE_S = 5.0
MOST_KEPT = 10_000
MOST_ADDRESSES = 8

Lookup: TypeAlias = Callable[[str], list[str]]


class DnsError(Exception):
    """A name has no address, or none came in time; the text says which."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Allowed addresses in the order to dial them, or why there are none."""

    addresses: tuple[str, ...]
    error: UrlError | DnsError | None
    expires: float


Then: TypeAlias = Callable[[str, Answer], None]


def look_up_by_system(host: str) -> list[str]:
    """The system's own answers: /etc/hosts and DNS, as nsswitch says."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class Resolver:
    """Remembers answers for at most a minute; one look-up of a name at a time."""

    def __init__(self, policy: AddressPolicy, look_up: Lookup = look_up_by_system) -> None:
        self._policy = policy
        self._look_up = look_up
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Answer] = OrderedDict()
        self._waiting: dict[str, list[Then]] = {}
        self._names: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._threads = 0

    def known(self, host: str) -> Answer | None:
        """The answer that is remembered, if it is fresh."""
        answer = self._kept.get(host)
        return answer if answer is not None and answer.expires > time.monotonic() else None

    def ask(self, host: str, then: Then) -> None:
        """Look ``host`` up and call ``then(host, answer)`` in one of the threads, some time."""
        with self._lock:
            if host in self._waiting:
                self._waiting[host].append(then)
                return
            if self._has_thread():
                self._waiting[host] = [then]
                self._names.put(host)
                return
        then(host, Answer((), DnsError("no thread could be started for it"), time.monotonic()))

    def resolve(self, host: str, patience_s: float | None = None) -> tuple[str, ...]:
        """Allowed addresses of ``host``, waiting at most ``patience_s`` (3 s).

        UrlError if any answer is not allowed, DnsError if there is none.
        """
        answer = self.known(host) or self._wait_for(host, patience_s or DEADLINE_S)
        if answer.error is not None:
            raise answer.error
        return answer.addresses

    def close(self) -> None:
        """Let the threads end as soon as they are done."""
        for _ in range(self._threads):
            self._names.put(None)

    def _wait_for(self, host: str, patience_s: float) -> Answer:
        box: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self.ask(host, lambda _host, answer: box.put(answer))
        try:
            return box.get(timeout=patience_s)
        except queue.Empty:
            return Answer((), timed_out(patience_s), time.monotonic())

    def _has_thread(self) -> bool:
        """One more, up to THREADS; False: there is none, and none can be started now."""
        if self._threads < THREADS:
            try:
                threading.Thread(target=self._run, name="resolver", daemon=True).start()
            except RuntimeError:
                return self._threads > 0
            self._threads += 1
        return True

    def _run(self) -> None:
        while (host := self._names.get()) is not None:
            answer = self._find(host)
            with self._lock:
                self._keep(host, answer)
                waiting = self._waiting.pop(host)
            for then in waiting:
                then(host, answer)

    def _find(self, host: str) -> Answer:
        addresses: tuple[str, ...] = ()
        error: UrlError | DnsError | None = None
        try:
            addresses = self._policy.loopback() if host == "localhost" else self._ask(host)
        except OSError as problem:
            error = DnsError(f"the host name has no address: {problem.strerror}")
        except ValueError:
            error = DnsError("the host name cannot be looked up")
        else:
            if not addresses or not all(map(self._policy.allows, addresses)):
                addresses, error = (), blocked()
        kept_s = KEEP_FAILURE_S if isinstance(error, DnsError) else KEEP_S
        return Answer(addresses[:MOST_ADDRESSES], error, time.monotonic() + kept_s)

    def _ask(self, host: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._look_up(host)))

    def _keep(self, host: str, answer: Answer) -> None:
        self._kept[host] = answer
        self._kept.move_to_end(host)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)


def timed_out(after_s: float) -> DnsError:
    return DnsError(f"the host name was not resolved within {after_s:g} s")
