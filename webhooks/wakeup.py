"""Wake-up: tell the workers that something is pending, sooner than their next poll.

A NOTIFY inside producers' transactions would serialise their commits on one lock, so
the web process sends it after its commit, on a connection of its own, at most one per
50 ms. It is a hint only: the workers poll all the same.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import psycopg

from webhooks.db import connect

CHANNEL = "webhooks_wakeup"
# What a wake-up says where a large fan-out is to be made into deliveries first.
FAN_OUT = "fan-out"
DEBOUNCE_S = 0.05
RECONNECT_S = 2.0
LISTEN_S = 1.0

log = logging.getLogger(__name__)


class Notifier:
    """Sends wake-ups from a thread of its own, started on first use (so after a fork)."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._wanted = threading.Event()
        self._fan_out = False
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def notify(self, *, fan_out: bool = False) -> None:
        """Ask for a wake-up, of a large ``fan_out`` or not; returns at once and never raises."""
        self._fan_out = self._fan_out or fan_out
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="notifier", daemon=True)
                    self._thread.start()
        self._wanted.set()

    def close(self) -> None:
        """Send nothing more, and end the thread."""
        self._over.set()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(RECONNECT_S)

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                with connect(self._url, "notifier") as connection:
                    self._send(connection)
            except (psycopg.Error, OSError) as error:
                log.warning("wake-up not sent: %s", error)
                self._over.wait(RECONNECT_S)

    def _send(self, connection: psycopg.Connection) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._over.is_set():
                return
            says, self._fan_out = FAN_OUT if self._fan_out else "", False
            connection.execute("SELECT pg_notify(%s, %s)", [CHANNEL, says])
            self._over.wait(DEBOUNCE_S)


def listen(url: str, wake: Callable[[str], None], stopped: Callable[[], bool]) -> None:
    """Call ``wake`` with what each wake-up says until ``stopped``; reconnects by itself.

    Needs a direct connection: behind a pooler in transaction mode nothing arrives,
    and the poll alone finds the work.
    """
    while not stopped():
        try:
            with connect(url, "listener") as connection:
                connection.execute(f"LISTEN {CHANNEL}")
                while not stopped():
                    for heard in connection.notifies(timeout=LISTEN_S, stop_after=1):
                        wake(heard.payload)
        except (psycopg.Error, OSError) as error:
            log.warning("not listening for wake-ups, polling only: %s", error)
            threading.Event().wait(RECONNECT_S)
