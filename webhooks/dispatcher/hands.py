"""What this process holds: from the claim's commit to the settle's commit."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable
from itertools import islice
from uuid import UUID

from webhooks.attempt import Claim, Outcome


class Hands:
    """Claims in hand, shared by the loops.

    A claim waits (``put`` to ``take``), is sent, comes back with its outcome
    (``finish``), is settled (``finished``) and forgotten (``settled``). A delivery that
    is claimed again while it is being sent, or while its outcome waits, is not sent
    twice: the outcome counts for the newest claim.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._lock = threading.Lock()
        self._open = True
        self._held: dict[UUID, Claim] = {}
        self._waiting: deque[Claim] = deque()
        self._outcomes: dict[UUID, Outcome] = {}

    @property
    def room(self) -> int:
        """How many more deliveries may be taken in hand.

        What is not settled yet counts too: a crash repeats at most ``capacity``.
        """
        return self.capacity - len(self._held)

    @property
    def held(self) -> int:
        return len(self._held)

    @property
    def unsettled(self) -> int:
        return len(self._outcomes)

    def ids(self) -> Collection[UUID]:
        with self._lock:
            return list(self._held)

    def put(self, claims: Iterable[Claim]) -> None:
        """Take claims in hand; what is being sent already is only renamed."""
        with self._lock:
            for claim in claims if self._open else ():
                if claim.delivery_id not in self._held:
                    self._waiting.append(claim)
                self._held[claim.delivery_id] = claim

    def take(self, worker_id: UUID) -> Claim | None:
        """The next claim to send, or None; those of another incarnation are forgotten."""
        with self._lock:
            while self._waiting:
                claim = self._waiting.popleft()
                if claim.worker_id == worker_id:
                    return claim
                self._held.pop(claim.delivery_id, None)
        return None

    def finish(self, delivery_id: UUID, outcome: Outcome) -> None:
        """Note a delivery's outcome, to be settled."""
        with self._lock:
            if delivery_id in self._held:
                self._outcomes[delivery_id] = outcome

    def finished(self, most: int) -> list[tuple[Claim, Outcome]]:
        """Up to ``most`` outcomes with their newest claims; they stay until ``settled``."""
        with self._lock:
            pairs = islice(self._outcomes.items(), most)
            return [(self._held[delivery_id], outcome) for delivery_id, outcome in pairs]

    def settled(self, claim: Claim, *, recorded: bool) -> None:
        """Forget a claim whose outcome is recorded, or that was somebody else's by then.

        If the delivery has been claimed again meanwhile, the newer claim takes over an
        outcome that was not recorded, and is sent if it was.
        """
        with self._lock:
            newest = self._held.get(claim.delivery_id)
            if newest is claim:
                del self._held[claim.delivery_id], self._outcomes[claim.delivery_id]
            elif newest is not None and recorded:
                del self._outcomes[claim.delivery_id]
                self._waiting.append(newest)

    def drop_waiting(self) -> None:
        """Forget the claims whose sending has not begun."""
        with self._lock:
            while self._waiting:
                self._held.pop(self._waiting.popleft().delivery_id, None)

    def close(self) -> None:
        """Drop what waits, and take nothing more in hand."""
        with self._lock:
            self._open = False
        self.drop_waiting()
