"""A limit on failed sign-ins, kept in this process's memory.

Each web process counts for itself, so an installation of n processes allows n times as
many guesses; argon2id and the shortest password make up for that.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable

WINDOW_S = 300.0
# Failures in the window: of one name from one address, and of one address.
PER_NAME = 10
PER_ADDRESS = 50
MOST_REMEMBERED = 10_000


class Throttle:
    """Counts failed sign-ins of the last five minutes. Safe from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: dict[tuple[str, str], deque[float]] = defaultdict(deque)

    def wait_s(self, username: str, address: str) -> float:
        """Seconds until this name may be tried again from this address; 0: now."""
        with self._lock:
            now = self._clock()
            return max(
                self._wait(key, limit, now)
                for key, limit in zip(
                    _keys(username, address), (PER_NAME, PER_ADDRESS), strict=True
                )
            )

    def failed(self, username: str, address: str) -> None:
        """Count a failure."""
        with self._lock:
            now = self._clock()
            if len(self._failures) >= MOST_REMEMBERED:
                self._forget(now)
            for key in _keys(username, address):
                self._failures[key].append(now)

    def _wait(self, key: tuple[str, str], limit: int, now: float) -> float:
        times = self._failures.get(key, deque())
        while times and times[0] <= now - WINDOW_S:
            times.popleft()
        return times[-limit] + WINDOW_S - now if len(times) >= limit else 0.0

    def _forget(self, now: float) -> None:
        """Drop what is over; if that is not enough, everything, rather than grow."""
        for key in [k for k, times in self._failures.items() if times[-1] <= now - WINDOW_S]:
            del self._failures[key]
        if len(self._failures) >= MOST_REMEMBERED:
            self._failures.clear()


def _keys(username: str, address: str) -> tuple[tuple[str, str], tuple[str, str]]:
    return (username.strip().casefold()[:100], address), ("", address)
