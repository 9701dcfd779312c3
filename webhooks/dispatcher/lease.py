"""This process's lease: who it is to the database, and whether it may still send."""

from __future__ import annotations

import time
from uuid import UUID

import psycopg

from webhooks import metrics, workers

# A beat may be this late before the worker stops sending by itself, seconds before
# anybody else takes its deliveries for lost.
SAFETY_S = 5.0


def now_s() -> float:
    """Seconds that also pass while the machine sleeps, where the system can tell."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Lease:
    """An incarnation of this worker. Once its row is gone, it is never taken up again.

    ``workers``: how many there were at its last beat, itself among them.
    """

    def __init__(self, capacity: int, lease_s: float) -> None:
        self._capacity = capacity
        self._lease_s = lease_s
        self._patience_s = lease_s - min(SAFETY_S, lease_s / 3)
        self._steady_since = now_s()
        # One value, so that nobody can pair an id with another one's beat.
        self._row: tuple[UUID, float] | None = None
        self.workers = 1

    @property
    def current(self) -> UUID | None:
        """The worker's id while what was claimed under it is surely still its own."""
        row = self._row
        return row[0] if row is not None and now_s() - row[1] < self._patience_s else None

    @property
    def row(self) -> UUID | None:
        """The id of the worker's row, whether or not its lease still runs."""
        return self._row[0] if self._row is not None else None

    @property
    def steady(self) -> bool:
        """Whether it has beaten without a break for a whole lease.

        Who has not cannot tell a dead worker from one that could not beat either, as
        when the database was away.
        """
        return self.current is not None and now_s() - self._steady_since >= self._lease_s

    def renew(self, connection: psycopg.Connection, in_flight: int) -> bool:
        """Beat; False: there is no row, so ``begin`` anew."""
        begun = now_s()
        row = self._row
        if row is None or not workers.beat(connection, row[0], in_flight):
            return False
        if begun - row[1] >= self._patience_s:
            self._steady_since = begun
        self._row = (row[0], begun)
        self.workers = workers.count(connection)
        metrics.BEATEN.set(time.monotonic())
        return True

    def begin(self, connection: psycopg.Connection) -> None:
        """Register a new incarnation; what the last one claimed is not its own."""
        begun = now_s()
        if self._row is not None:
            metrics.LEASES_LOST.inc()
        self._row = (workers.register(connection, self._capacity, self._lease_s), begun)
        self.workers = workers.count(connection)
        metrics.BEATEN.set(time.monotonic())

    def lose(self) -> None:
        """The database says the row is gone: nothing is sent until a new one begins."""
        row = self._row
        if row is not None:
            self._row = (row[0], float("-inf"))
