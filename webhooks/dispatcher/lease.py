"""This process's lease: who it is to the database, and whether it may still send."""

from __future__ import annotations

import time
from uuid import UUID

import psycopg

from webhooks import metrics, workers

# A beat may be this late before the worker stops sending by itself, seconds before
# anybody else takes its deliveries for lost.
SAFETY_S = 5.0


class Lease:
    """An incarnation of this worker. Lost once, it is never taken up again."""

    def __init__(self, capacity: int, lease_s: float) -> None:
        self._capacity = capacity
        self._lease_s = lease_s
        self._margin_s = min(SAFETY_S, lease_s / 3)
        self._renewed = float("-inf")
        self._worker_id: UUID | None = None

    @property
    def worker_id(self) -> UUID | None:
        """The row that claims are made under; None while there is none."""
        return self._worker_id

    @property
    def valid(self) -> bool:
        """Whether what was claimed under it is surely still this worker's."""
        age = time.monotonic() - self._renewed
        return age < self._lease_s - self._margin_s

    def renew(self, connection: psycopg.Connection, in_flight: int) -> bool:
        """Beat; False: the row is gone or its lease has expired, so ``begin`` anew."""
        begun = time.monotonic()
        if self._worker_id is None or not workers.beat(connection, self._worker_id, in_flight):
            return False
        self._renewed = begun
        return True

    def begin(self, connection: psycopg.Connection) -> None:
        """Register a new incarnation. What the last one claimed must be dropped before."""
        begun = time.monotonic()
        if self._worker_id is not None:
            metrics.LEASES_LOST.inc()
        self._worker_id = workers.register(connection, self._capacity, self._lease_s)
        self._renewed = begun

    def lose(self) -> None:
        """The database says the row is gone: nothing is sent until a new one begins."""
        self._renewed = float("-inf")
