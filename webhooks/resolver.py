"""Host names to addresses: every look-up bounded in time and remembered.

getaddrinfo has no time limit and cannot be stopped, so it runs in daemon threads, and
who waits for it gives up by himself. A name is good only if every answer is allowed.
When no new answer comes, a good one is used for a while longer (RFC 8767).
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from webhooks.addresses import AddressPolicy, UrlError, blocked, parse_url
from webhooks.lookups import Lookups

DEADLINE_S = 3.0
KEEP_S = 60.0
KEEP_FAILURE_S = 5.0
STALE_S = 600.0
STALE_AFTER_S = 1.0
MOST_KEPT = 10_000
MOST_ADDRESSES = 8
# "There is no such name" and "it has no address"; everything else may be a fault on the way.
FINAL = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
NOT_ASKED = "the host name was not looked up in time: too many others did not answer"

Lookup: TypeAlias = Callable[[str], list[str]]


class DnsError(Exception):
    """A name has no address, or none came in time; the text says which.

    ``final``: the DNS itself says that there is none.
    """

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


@dataclass(frozen=True, slots=True)
class Answer:
    """Allowed addresses in the order to dial them, or why there are none.

    Readings of time.monotonic(): it is fresh until ``expires``, and better than no answer
    until ``good_until``.
    """

    addresses: tuple[str, ...]
    error: UrlError | DnsError | None
    expires: float
    good_until: float = 0.0


Then: TypeAlias = Callable[[str, Answer], None]


@dataclass(slots=True)
class _Question:
    """Who waits for a name that is being looked up; ``asked``: when the last one came."""

    asked: float = 0.0
    waiting: list[Then] = field(default_factory=list)


def look_up_by_system(host: str) -> list[str]:
    """The system's own answers: /etc/hosts and DNS, as nsswitch says."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class Resolver:
    """Remembers answers for a minute, ten if need be; one look-up of a name at a time."""

    def __init__(self, policy: AddressPolicy, look_up: Lookup = look_up_by_system) -> None:
        self.policy = policy
        self._look_up = look_up
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Answer] = OrderedDict()
        self._questions: dict[str, _Question] = {}
        self._lookups = Lookups(self._answer, DEADLINE_S)

    def known(self, host: str) -> Answer | None:
        """The answer that is remembered, if it is fresh."""
        answer = self._kept.get(host)
        return answer if answer is not None and answer.expires > time.monotonic() else None

    def ask(self, host: str, then: Then) -> None:
        """Look ``host`` up and call ``then(host, answer)`` in one of the threads, some time."""
        with self._lock:
            question = self._questions.get(host)
            if question is None and self._lookups.put(host):
                question = self._questions[host] = _Question()
            if question is not None:
                question.asked = time.monotonic()
                question.waiting.append(then)
                return
            answer = self._keep(host, _failure("no thread could be started for it", kept_s=0))
        then(host, answer)

    def patience_s(self, host: str, timeout_s: float) -> float:
        """How long to wait for an answer, within ``timeout_s``: less if an old one would do."""
        longest_s = min(DEADLINE_S, timeout_s)
        old = self._kept.get(host)
        if old is not None and old.good_until > time.monotonic():
            return min(STALE_AFTER_S, longest_s / 2)
        return longest_s

    def give_up(self, host: str, patience_s: float) -> Answer:
        """The answer for who has waited long enough: an old good one, or that there is none.

        An old one is what everybody gets at once from now on, until the look-up ends.
        """
        with self._lock:
            old = self._kept.get(host)
            now = time.monotonic()
            if old is None or max(old.expires, old.good_until) <= now:
                return Answer((), timed_out(patience_s), now)
            if host in self._questions:
                old = self._kept[host] = replace(old, expires=max(old.expires, old.good_until))
            return old

    def resolve(self, host: str, timeout_s: float | None = None) -> tuple[str, ...]:
        """Allowed addresses of ``host``, waiting at most ``timeout_s``, and at most 3 s.

        UrlError if any answer is not allowed, DnsError if there is none.
        """
        answer = self.known(host) or self._wait_for(host, timeout_s or DEADLINE_S)
        if answer.error is not None:
            raise answer.error
        return answer.addresses

    def close(self) -> None:
        """Let the threads end as soon as they are done."""
        self._lookups.close()

    def _wait_for(self, host: str, timeout_s: float) -> Answer:
        patience_s = self.patience_s(host, timeout_s)
        box: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self.ask(host, lambda _host, answer: box.put(answer))
        try:
            return box.get(timeout=patience_s)
        except queue.Empty:
            return self.give_up(host, patience_s)

    def _answer(self, host: str) -> None:
        """Answer all who wait for ``host``: with a new look-up if one of them still may."""
        late = time.monotonic() - self._questions[host].asked > DEADLINE_S
        found = _failure(NOT_ASKED, kept_s=0) if late else self._find(host)
        with self._lock:
            answer = self._keep(host, found)
            waiting = self._questions.pop(host).waiting
        for then in waiting:
            then(host, answer)

    def _find(self, host: str) -> Answer:
        try:
            addresses = self.policy.loopback() if host == "localhost" else self._ask(host)
        except OSError as problem:
            why = f"the host name has no address: {problem.strerror}"
            return _failure(why, final=problem.errno in FINAL)
        except ValueError:
            return _failure("the host name cannot be looked up", final=True)
        now = time.monotonic()
        if not addresses or not all(map(self.policy.allows, addresses)):
            return Answer((), blocked(), now + KEEP_S)
        return Answer(addresses[:MOST_ADDRESSES], None, now + KEEP_S, now + STALE_S)

    def _ask(self, host: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._look_up(host)))

    def _keep(self, host: str, answer: Answer) -> Answer:
        """Remember an answer; instead of a failure on the way, an old good one if there is one."""
        old = self._kept.get(host)
        if isinstance(answer.error, DnsError) and not answer.error.final and old is not None:
            now = time.monotonic()
            if old.good_until > now:
                answer = replace(old, expires=min(now + KEEP_FAILURE_S, old.good_until))
        self._kept[host] = answer
        self._kept.move_to_end(host)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return answer


def check_resolved(text: str, resolver: Resolver) -> str | None:
    """Look up the host of a URL that is to be registered; a warning if that brings no address.

    UrlError if an answer is not allowed: the same text whatever it is. A name without an
    address is no reason to refuse, for it may get one; each delivery looks again.
    """
    url = parse_url(text, resolver.policy)
    if url.literal:
        return None
    try:
        resolver.resolve(url.host)
    except DnsError as error:
        return f"{error}; deliveries fail until it can be resolved"
    return None


def timed_out(after_s: float) -> DnsError:
    return DnsError(f"the host name was not resolved within {after_s:g} s")


def _failure(why: str, *, final: bool = False, kept_s: float = KEEP_FAILURE_S) -> Answer:
    return Answer((), DnsError(why, final=final), time.monotonic() + kept_s)
