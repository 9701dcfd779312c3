"""Threads that look names up, so that names whose DNS is silent leave some for the others.

A look-up cannot be stopped. A name whose last one took too long shares half of the threads
with all others of that kind, for as long as that goes on.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable

# Each is idle nearly always. glibc gives up after 10 s and more: a name can hold one so long.
THREADS = 32
MOST_SLOW_KEPT = 10_000


class Lookups:
    """Runs ``work(name)`` for each name given, in at most THREADS threads.

    A name is slow if its last run took longer than ``slow_s`` seconds.
    """

    def __init__(self, work: Callable[[str], None], slow_s: float) -> None:
        self._work = work
        self._slow_s = slow_s
        self._changed = threading.Condition()
        self._names: deque[str] = deque()
        self._slow_names: deque[str] = deque()
        self._slow: OrderedDict[str, None] = OrderedDict()
        self._slow_running = 0
        self._idle = 0
        self._threads = 0
        self._closed = False

    @property
    def threads(self) -> int:
        """How many have been started."""
        return self._threads

    def put(self, name: str) -> bool:
        """Let ``name`` be worked on soon. False: there is no thread, and none can be started."""
        with self._changed:
            if not self._has_thread():
                return False
            (self._slow_names if name in self._slow else self._names).append(name)
            self._changed.notify()
        return True

    def close(self) -> None:
        """Let the threads end as soon as they are done."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _has_thread(self) -> bool:
        waiting = len(self._names) + len(self._slow_names)
        if self._threads < THREADS and self._idle <= waiting:
            try:
                threading.Thread(target=self._run, name="lookup", daemon=True).start()
            except RuntimeError:
                return self._threads > 0
            self._threads += 1
        return True

    def _run(self) -> None:
        while (taken := self._take()) is not None:
            name, slow = taken
            began = time.monotonic()
            self._work(name)
            self._done(name, slow, time.monotonic() - began)

    def _take(self) -> tuple[str, bool] | None:
        """The next name, and whether it counts as slow; None: closed."""
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._closed or self._names or self._may_take_slow())
            self._idle -= 1
            if self._closed:
                return None
            if self._may_take_slow():
                self._slow_running += 1
                return self._slow_names.popleft(), True
            return self._names.popleft(), False

    def _may_take_slow(self) -> bool:
        return bool(self._slow_names) and self._slow_running < THREADS // 2

    def _done(self, name: str, slow: bool, took_s: float) -> None:
        with self._changed:
            self._slow.pop(name, None)
            if took_s > self._slow_s:
                self._slow[name] = None
            if len(self._slow) > MOST_SLOW_KEPT:
                self._slow.popitem(last=False)
            if slow:
                self._slow_running -= 1
                self._changed.notify()
