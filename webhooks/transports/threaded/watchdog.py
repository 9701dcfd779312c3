"""One thread that ends attempts at their deadline, by shutting their connection down.

A socket's own timeout starts anew with every byte; only this bounds an attempt that drips.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import socket
import threading
import time
from typing import TypeAlias

MOST_IDLE_ENTRIES = 1_000


class Cord:
    """A second descriptor of a connection's socket, to shut the connection down from outside.

    It stays with the connection over all its attempts; ``holder`` is the attempt that may
    be ended now. ``lock`` is the watchdog's.
    """

    def __init__(self, connected: socket.socket, lock: threading.RLock) -> None:
        self.holder: Watch | None = None
        self._twin = connected.dup()
        self._lock = lock

    def pull(self) -> None:
        """End both directions; whoever reads or writes sees it at once. Holds the lock."""
        with contextlib.suppress(OSError):
            self._twin.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Not while it is pulled: by then its number could be another connection's."""
        with self._lock:
            self._twin.close()


class Watch:
    """One attempt under watch. ``fired``: its deadline passed before ``end``."""

    def __init__(self, dog: Watchdog, due: float) -> None:
        self.fired = False
        self.over = False
        self.due = due
        self.cord: Cord | None = None
        self._dog = dog

    def tie(self, connected: socket.socket) -> Cord:
        """A cord to a new connection, which is the one that is to be ended."""
        cord = Cord(connected, self._dog.lock)
        self.hold(cord)
        return cord

    def hold(self, cord: Cord) -> None:
        """It is this connection that is to be ended."""
        with self._dog.lock:
            cord.holder, self.cord = self, cord
            if self.fired or self._dog.closed:
                self.fired = True
                cord.pull()

    def move(self, due: float) -> None:
        """Another deadline (time.monotonic(), seconds) for what follows."""
        self._dog.watch_until(self, due)

    def end(self) -> None:
        """Nothing is ended any more: the connection may be another attempt's from now on."""
        with self._dog.lock:
            self.over = True
            self.cord = None
            self._dog.over_with_one()


# When it is due, a number that tells entries of one time apart, whose it is.
Entry: TypeAlias = tuple[float, int, Watch]


class Watchdog:
    """Ends what ``watch`` was asked to watch, at its deadline or at ``close``."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._heap: list[Entry] = []
        self._numbers = itertools.count()
        self._under_watch = 0
        self.closed = False
        threading.Thread(target=self._run, name="watchdog", daemon=True).start()

    def watch(self, due: float) -> Watch:
        """Watch an attempt until ``due`` (time.monotonic(), seconds)."""
        watch = Watch(self, due)
        with self.lock:
            self._under_watch += 1
        self.watch_until(watch, due)
        return watch

    def watch_until(self, watch: Watch, due: float) -> None:
        with self.lock:
            watch.due = due
            heapq.heappush(self._heap, (due, next(self._numbers), watch))
            if self._heap[0][2] is watch:
                self._changed.notify()

    def over_with_one(self) -> None:
        """Forget what is over, now and then: deadlines are long and attempts are short."""
        self._under_watch -= 1
        if len(self._heap) > MOST_IDLE_ENTRIES + 2 * self._under_watch:
            self._heap = [entry for entry in self._heap if not _is_stale(entry)]
            heapq.heapify(self._heap)

    def close(self) -> None:
        """End every attempt now, and those that come after at once."""
        with self.lock:
            self.closed = True
            for entry in self._heap:
                if not _is_stale(entry):
                    _end(entry[2])
            self._heap.clear()
            self._changed.notify()

    def _run(self) -> None:
        with self.lock:
            while not self.closed:
                self._end_overdue()
                wait = self._heap[0][0] - time.monotonic() if self._heap else None
                self._changed.wait(wait)

    def _end_overdue(self) -> None:
        now = time.monotonic()
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if not _is_stale(entry):
                _end(entry[2])


def _is_stale(entry: Entry) -> bool:
    due, _, watch = entry
    return watch.over or watch.due != due


def _end(watch: Watch) -> None:
    watch.fired = True
    if watch.cord is not None and watch.cord.holder is watch:
        watch.cord.pull()
