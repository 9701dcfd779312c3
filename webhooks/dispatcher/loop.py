"""One shape for every background loop: a thread, a connection, one action."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable

import psycopg

from webhooks import metrics
from webhooks.db import connect

FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 5.0

log = logging.getLogger(__name__)


class Loop:
    """Runs ``action(connection)`` for ever; the action answers how long to wait after it.

    An error is logged and survived, with a growing, jittered wait; a connection that
    was lost is opened again. ``healthy`` is False from an error to the next success;
    ``ticked`` is when the loop last went round (time.monotonic(), seconds).
    """

    def __init__(self, name: str, url: str, action: Callable[[psycopg.Connection], float]) -> None:
        self.name = name
        self.healthy = True
        self.ticked = time.monotonic()
        self._url = url
        self._action = action
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._errors = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Run the action soon, without waiting out the pause."""
        self._wake.set()

    def stop(self) -> None:
        """Stop after the action under way; ``join`` waits for it."""
        self._stopping.set()
        self._wake.set()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        connection: psycopg.Connection | None = None
        while not self._stopping.is_set():
            try:
                if connection is None or connection.closed:
                    connection = connect(self._url, self.name)
                pause = self._action(connection)
                self.healthy, self._errors = True, 0
            except Exception as error:  # whatever it is, the loop lives
                pause = self._survive(error)
                _discard(connection)
                connection = None
            self.ticked = time.monotonic()
            self._wake.wait(pause)
            self._wake.clear()
        _discard(connection)

    def _survive(self, error: Exception) -> float:
        self.healthy = False
        self._errors += 1
        metrics.ERRORS.labels(self.name).inc()
        if isinstance(error, psycopg.OperationalError):
            log.warning("%s: database away or busy, trying again: %s", self.name, _line(error))
        else:
            log.error("%s: %s, trying again", self.name, type(error).__name__, exc_info=error)
        longest = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**self._errors)
        return random.uniform(longest / 2, longest)  # noqa: S311 - jitter, not a secret


def _discard(connection: psycopg.Connection | None) -> None:
    if connection is not None:
        connection.close()


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
