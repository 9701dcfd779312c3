"""What this process holds: from the claim's commit to the settle's commit."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Set
from itertools import islice
from uuid import UUID

from webhooks.attempt import Claim, Outcome

# A receiver that answers within this time leaves room for others soon enough.
SLOW_S = 2.0
SLOW_KEPT_S = 300.0


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
        self._since: dict[UUID, float] = {}
        self._by_endpoint: Counter[UUID] = Counter()
        self._slow: OrderedDict[UUID, float] = OrderedDict()
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

    def shares(self) -> Callable[[UUID, int], int]:
        """How many more of an endpoint may be taken in hand, when so many ask at once.

        An endpoint may hold half as much as there is room left afterwards, so that a hundred
        that hang leave some; and all that are known to be slow together half of everything.
        """
        slow, room = self._slow_ones(), self.room
        full = sum(self._by_endpoint[endpoint] for endpoint in slow) >= max(1, self.capacity // 2)

        def share(endpoint_id: UUID, askers: int) -> int:
            if full and endpoint_id in slow:
                return 0
            held = self._by_endpoint[endpoint_id]
            return max((room - 2 * held) // (askers + 2), 0 if held else 1)

        return share

    def _slow_ones(self) -> Set[UUID]:
        """Endpoints whose last answer took SLOW_S, or that keep one waiting for as long now."""
        now = time.monotonic()
        with self._lock:
            while self._slow and next(iter(self._slow.values())) < now - SLOW_KEPT_S:
                self._slow.popitem(last=False)
            slow = set(self._slow)
            if len(self._held) > self.capacity // 2:
                since = self._since.items()
                slow.update(self._held[d].endpoint_id for d, at in since if now - at >= SLOW_S)
        return slow

    def put(self, claims: Iterable[Claim]) -> None:
        """Take claims in hand; what is being sent already is only renamed."""
        now = time.monotonic()
        with self._lock:
            for claim in claims if self._open else ():
                if claim.delivery_id not in self._held:
                    self._waiting.append(claim)
                    self._since[claim.delivery_id] = now
                    self._by_endpoint[claim.endpoint_id] += 1
                self._held[claim.delivery_id] = claim

    def take(self, worker_id: UUID) -> Claim | None:
        """The next claim to send, or None; those of another incarnation are forgotten."""
        with self._lock:
            while self._waiting:
                claim = self._waiting.popleft()
                if claim.worker_id == worker_id:
                    return claim
                self._forget(claim.delivery_id)
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
                self._forget(claim.delivery_id)
                del self._outcomes[claim.delivery_id]
            elif newest is not None and recorded:
                del self._outcomes[claim.delivery_id]
                self._waiting.append(newest)

    def drop_waiting(self) -> None:
        """Forget the claims whose sending has not begun."""
        with self._lock:
            while self._waiting:
                self._forget(self._waiting.popleft().delivery_id)

    def close(self) -> None:
        """Drop what waits, and take nothing more in hand."""
        with self._lock:
            self._open = False
        self.drop_waiting()

    def _forget(self, delivery_id: UUID) -> None:
        claim = self._held.pop(delivery_id, None)
        if claim is None:
            return
        endpoint_id, now = claim.endpoint_id, time.monotonic()
        self._by_endpoint[endpoint_id] -= 1
        if not self._by_endpoint[endpoint_id]:
            del self._by_endpoint[endpoint_id]
        if now - self._since.pop(delivery_id) >= SLOW_S:
            self._slow[endpoint_id] = now
            self._slow.move_to_end(endpoint_id)
        elif self._slow:
            self._slow.pop(endpoint_id, None)
