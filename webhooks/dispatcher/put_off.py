"""Put off: endpoints that this process cannot sign for, because it lacks a key."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from uuid import UUID

WAIT_S = 60.0

Share = Callable[[UUID, int], int]


class PutOff:
    """Leaves such endpoints to other processes, whose keyring may have the key.

    Of an endpoint that was put off nothing is taken for a while, and then for as long one
    delivery at a time: whoever re-encrypts its secrets need not restart this process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: dict[UUID, float] = {}

    def add(self, endpoint_ids: Iterable[UUID]) -> None:
        """Put them off from now on."""
        now = time.monotonic()
        with self._lock:
            self._since = {
                endpoint_id: since
                for endpoint_id, since in self._since.items()
                if now - since < 2 * WAIT_S
            } | dict.fromkeys(endpoint_ids, now)

    def limit(self, share: Share) -> Share:
        """The same share (see Hands.shares), less for those that are put off."""
        since, now = self._since, time.monotonic()
        if not since:
            return share

        def limited(endpoint_id: UUID, askers: int) -> int:
            waited = now - since.get(endpoint_id, float("-inf"))
            if waited < WAIT_S:
                return 0
            return share(endpoint_id, askers) if waited >= 2 * WAIT_S else 1

        return limited
