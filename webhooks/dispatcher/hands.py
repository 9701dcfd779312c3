"""What this process holds: from the claim's commit to the settle's commit."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Set
from itertools import islice
from typing import TypeVar
from uuid import UUID

from webhooks.attempt import Claim, Outcome
from webhooks.deliveries import HostRoom

K = TypeVar("K", bound=Hashable)

# So many deliveries are in hand before anything is shared out, in a small worker all but one.
FEW = 8
# A receiver that answers within this time leaves room for others soon enough.
SLOW_S = 2.0
SLOW_KEPT_S = 300.0


class Hands:
    """Claims in hand, shared by the loops.

    A claim waits (``put`` to ``take``), is sent, comes back with its outcome
    (``finish``), is settled (``finished``) and forgotten (``settled``). A delivery that
    is claimed again while it is being sent, or while its outcome waits, is not sent
    twice: the outcome is settled for the claim as which it was sent, and if that is no
    longer possible it counts for the newest.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._lock = threading.Lock()
        self._open = True
        self._held: dict[UUID, Claim] = {}
        self._sent: dict[UUID, tuple[Claim, float]] = {}
        self._by_endpoint: Counter[UUID] = Counter()
        self._by_host: Counter[int] = Counter()
        self._slow: OrderedDict[UUID, float] = OrderedDict()
        self._waiting: deque[Claim] = deque()
        self._outcomes: dict[UUID, tuple[Claim, Outcome]] = {}

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

    def host_room(self, limit: int, workers: int) -> HostRoom:
        """How many more may be taken for each host, of one limit for so many workers."""
        with self._lock:
            return HostRoom.of(limit, workers, dict(self._by_host))

    def shares(self) -> Callable[[UUID, int], int]:
        """How many more of an endpoint may be taken in hand, when so many ask at once.

        An endpoint may hold half as much as there is room left afterwards, so that a hundred
        that hang leave some; and all that are known to be slow together half of everything.
        Of a worker of eight or fewer, one endpoint alone may hold all but one.
        """
        slow, room = self._slow_ones(), self.room
        few = min(FEW - (self.capacity - room), room - 1)
        full = sum(self._by_endpoint[endpoint] for endpoint in slow) >= max(1, self.capacity // 2)

        def share(endpoint_id: UUID, askers: int) -> int:
            if full and endpoint_id in slow:
                return 0
            held = self._by_endpoint[endpoint_id]
            return max((room - 2 * held) // (askers + 2), few // askers, 0 if held else 1)

        return share

    def _slow_ones(self) -> Set[UUID]:
        """Endpoints whose last answer took SLOW_S, or that are as long at one now."""
        now = time.monotonic()
        with self._lock:
            while self._slow and next(iter(self._slow.values())) < now - SLOW_KEPT_S:
                self._slow.popitem(last=False)
            slow = set(self._slow)
            if len(self._held) > self.capacity // 2:
                sent = self._sent.values()
                slow.update(claim.endpoint_id for claim, at in sent if now - at >= SLOW_S)
        return slow

    def put(self, claims: Iterable[Claim]) -> None:
        """Take claims in hand; what is being sent already is only renamed."""
        with self._lock:
            for claim in claims if self._open else ():
                known = self._held.get(claim.delivery_id)
                if known is None:
                    self._waiting.append(claim)
                else:
                    self._count(known, -1)
                self._count(claim, 1)
                self._held[claim.delivery_id] = claim

    def take(self, worker_id: UUID) -> Claim | None:
        """The next claim to send, or None; those of another incarnation are forgotten."""
        with self._lock:
            while self._waiting:
                claim = self._held[self._waiting.popleft().delivery_id]
                if claim.worker_id == worker_id:
                    self._sent[claim.delivery_id] = claim, time.monotonic()
                    return claim
                self._forget(claim.delivery_id)
        return None

    def finish(self, delivery_id: UUID, outcome: Outcome) -> None:
        """Note a delivery's outcome, to be settled."""
        with self._lock:
            sent = self._sent.pop(delivery_id, None)
            if sent is not None:
                self._outcomes[delivery_id] = sent[0], outcome
                self._note_pace(sent[0].endpoint_id, outcome)

    def finished(self, most: int) -> list[tuple[Claim, Outcome]]:
        """Up to ``most`` claims with their outcomes; they stay until ``settled``."""
        with self._lock:
            return list(islice(self._outcomes.values(), most))

    def settled(self, claim: Claim, *, recorded: bool) -> None:
        """Forget a claim whose outcome is recorded, or that was somebody else's by then.

        If the delivery has been claimed again meanwhile, the newer claim takes over an
        outcome that was not recorded, and is sent if it was.
        """
        with self._lock:
            settled, outcome = self._outcomes.get(claim.delivery_id, (None, None))
            if settled is not claim or outcome is None:
                return  # by two threads, at the end of a drain
            newest = self._held[claim.delivery_id]
            del self._outcomes[claim.delivery_id]
            if newest is claim or (recorded and _fence(newest) == _fence(claim)):
                self._forget(claim.delivery_id)
            elif recorded:
                self._waiting.append(newest)
            else:
                self._outcomes[claim.delivery_id] = newest, outcome

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

    def _note_pace(self, endpoint_id: UUID, outcome: Outcome) -> None:
        """By the receiver's own time: what waited for us or the database was not slow."""
        if outcome.finished - outcome.started >= SLOW_S:
            self._slow[endpoint_id] = time.monotonic()
            self._slow.move_to_end(endpoint_id)
        elif self._slow:
            self._slow.pop(endpoint_id, None)

    def _forget(self, delivery_id: UUID) -> None:
        claim = self._held.pop(delivery_id, None)
        if claim is None:
            return
        self._count(claim, -1)

    def _count(self, claim: Claim, step: int) -> None:
        _add(self._by_endpoint, claim.endpoint_id, step)
        if claim.host is not None:
            _add(self._by_host, claim.host, step)


def _add(counts: Counter[K], key: K, step: int) -> None:
    """Without keeping what is down to none."""
    counts[key] += step
    if not counts[key]:
        del counts[key]


def _fence(claim: Claim) -> tuple[UUID | None, int]:
    """What a settle matches. A claim whose commit was lost has the next one's fence, too."""
    return claim.worker_id, claim.attempt
