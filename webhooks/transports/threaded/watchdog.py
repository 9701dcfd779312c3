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


class Cord:
    """A second descriptor of a connection's socket, to shut the connection down from outside.

    It stays with the connection over all its attempts; ``holder`` is the attempt that may
    be ended now.
    """

    def __init__(self, connected: socket.socket) -> None:
        self.holder: Watch | None = None
        self._twin = connected.dup()

    def pull(self) -> None:
        """End both directions; whoever reads or writes sees it at once."""
        with contextlib.suppress(OSError):
            self._twin.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._twin.close()


class Watch:
    """One attempt under watch. ``fired``: its deadline passed before ``end``."""

    def __init__(self, dog: Watchdog, due: float) -> None:
        self.fired = False
        self.over = False
        self.due = due
        self.cord: Cord | None = None
        self._dog = dog

    def hold(self, cord: Cord) -> None:
        """It is this connection that is to be ended."""
        with self._dog.lock:
            cord.holder, self.cord = self, cord
            if self.fired:
                cord.pull()

    def move(self, due: float) -> None:
        """Another deadline (time.monotonic(), seconds) for what follows."""
        self._dog.watch_until(self, due)

    def end(self) -> None:
        """Nothing is ended any more: the connection may be another attempt's from now on."""
        with self._dog.lock:
            self.over = True
            self.cord = None


class Watchdog:
    """Ends what ``watch`` was asked to watch; ``close`` stops its thread."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._heap: list[tuple[float, int, Watch]] = []
        self._numbers = itertools.count()
        self._running = True
        threading.Thread(target=self._run, name="watchdog", daemon=True).start()

    def watch(self, due: float) -> Watch:
        """Watch an attempt until ``due`` (time.monotonic(), seconds)."""
        watch = Watch(self, due)
        self.watch_until(watch, due)
        return watch

    def watch_until(self, watch: Watch, due: float) -> None:
        with self.lock:
            watch.due = due
            heapq.heappush(self._heap, (due, next(self._numbers), watch))
            if self._heap[0][2] is watch:
                self._changed.notify()

    def close(self) -> None:
        with self.lock:
            self._running = False
            self._changed.notify()

    def _run(self) -> None:
        with self.lock:
            while self._running:
                self._end_overdue()
                wait = self._heap[0][0] - time.monotonic() if self._heap else None
                self._changed.wait(wait)

    def _end_overdue(self) -> None:
        now = time.monotonic()
        while self._heap and self._heap[0][0] <= now:
            due, _, watch = heapq.heappop(self._heap)
            if watch.over or watch.due != due:
                continue
            watch.fired = True
            if watch.cord is not None and watch.cord.holder is watch:
                watch.cord.pull()
