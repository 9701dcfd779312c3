"""What this process holds: from the claim's commit to the settle's commit."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable
from uuid import UUID

from webhooks.attempt import Claim, Outcome


class Hands:
    """Claims in hand, shared by the loops.

    A claim waits (``put`` to ``take``), is sent, and comes back with its outcome
    (``finish``) to be settled (``finished``); ``drop`` forgets it. A delivery that is
    claimed again while its sending is still under way is not sent twice: the outcome
    counts for the newest claim.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._lock = threading.Lock()
        self._held: dict[UUID, Claim] = {}
        self._waiting: deque[Claim] = deque()
        self._finished: list[tuple[Claim, Outcome]] = []

    @property
    def room(self) -> int:
        """How many more deliveries could be sent now."""
        return self.capacity - len(self._held) + len(self._finished)

    @property
    def held(self) -> int:
        return len(self._held)

    @property
    def unsettled(self) -> int:
        return len(self._finished)

    def ids(self) -> Collection[UUID]:
        with self._lock:
            return list(self._held)

    def put(self, claims: Iterable[Claim]) -> None:
        """Take claims in hand; what is being sent already is only renamed."""
        with self._lock:
            for claim in claims:
                if claim.delivery_id not in self._held:
                    self._waiting.append(claim)
                self._held[claim.delivery_id] = claim

    def take(self) -> Claim | None:
        """The next claim to send, or None."""
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def finish(self, delivery_id: UUID, outcome: Outcome) -> None:
        """Note an outcome for the newest claim of a delivery; settled later."""
        with self._lock:
            claim = self._held.get(delivery_id)
            if claim is not None:
                self._finished.append((claim, outcome))

    def finished(self, most: int) -> list[tuple[Claim, Outcome]]:
        """Up to ``most`` outcomes to settle; they stay in hand until ``drop``."""
        with self._lock:
            return self._finished[:most]

    def drop(self, settled: Collection[UUID]) -> None:
        """Forget deliveries whose outcome is recorded, or that are another worker's."""
        with self._lock:
            done = set(settled)
            self._finished = [pair for pair in self._finished if pair[0].delivery_id not in done]
            for delivery_id in done:
                self._held.pop(delivery_id, None)

    def drop_waiting(self) -> None:
        """Forget the claims whose sending has not begun."""
        with self._lock:
            while self._waiting:
                self._held.pop(self._waiting.popleft().delivery_id, None)
