"""The Procfile's processes under `webhooks up`: started, shown, stopped together (honcho)."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FrameType
from typing import Any

import honcho.manager
from honcho.manager import Manager
from honcho.printer import Message, Printer
from honcho.process import Process

# A delivery worker may take its graceful timeout of 70 s.
KILL_WAIT_S = 80
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

CLEAN, FAILED, FORCED = 0, 1, 130


class Stop:
    """Counts how often we were told to stop: once is politely, twice is now.

    ``starting``: no process runs yet, so that the second time breaks off what we wait for.
    """

    def __init__(self) -> None:
        self.count = 0
        self.starting = True

    def install(self) -> None:
        """Listen to Ctrl-C, SIGTERM and a closed terminal."""
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                signal.signal(number, self._told)

    def check(self) -> None:
        """Raise KeyboardInterrupt if we were told to stop."""
        if self.count:
            raise KeyboardInterrupt

    def _told(self, signum: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count > 1:
            honcho.manager.KILL_WAIT = 0
            if self.starting:
                raise KeyboardInterrupt


class Processes(Manager):  # type: ignore[misc] # honcho ships no types
    """Honcho's manager, for processes that may take a minute to stop."""

    def __init__(self, stop: Stop, started: Callable[[], None]) -> None:
        super().__init__(_Printer())
        self._process_ctor = _Child
        self._stop = stop
        self._started = started
        honcho.manager.KILL_WAIT = KILL_WAIT_S

    def add(self, name: str, command: str, env: Mapping[str, str]) -> None:
        """Run a shell command under this name."""
        # exec: the signal and the exit code are the command's, not a shell's around it.
        self.add_process(name, f"exec {command}", env=dict(env))

    def run(self) -> int:
        """Run all until one ends or we are told to stop: CLEAN, FAILED or FORCED."""
        self.loop()
        if not self._stop.count:
            return FAILED
        return CLEAN if self._stop.count == 1 else FORCED

    def show(self, text: str) -> None:
        """Print lines of our own between those of the processes."""
        self._printer.plain(text)

    def _start(self) -> None:
        # Not honcho's handlers: theirs fail before every process has told its pid.
        self._stop.install()
        self._stop.starting = False
        super()._start()
        self._started()

    def _any_stopped(self) -> bool:
        return bool(self._stop.count or super()._any_stopped())


class _Child(Process):  # type: ignore[misc]
    """Stops its command when `up` is killed, so that nothing keeps running unseen."""

    def run(self, events: Any = None, ignore_signals: bool = False) -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        threading.Thread(target=self._follow_parent, daemon=True).start()
        super().run(events, ignore_signals)

    def _follow_parent(self) -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
        while self._child is None:
            time.sleep(0.01)
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGTERM)


class _Printer(Printer):  # type: ignore[misc]
    """Whole lines from several threads; output that nobody reads any more stops nothing."""

    def __init__(self) -> None:
        super().__init__(sys.stdout)
        self._lock = threading.Lock()

    def write(self, message: Message) -> None:
        with self._lock, suppress(OSError):
            super().write(message)

    def plain(self, text: str) -> None:
        with self._lock, suppress(OSError):
            print(text, file=self.output, flush=True)
