"""Pace: how soon a worker looks for work again. Pure."""

from __future__ import annotations

from webhooks.deliveries import Batch

CLAIM_EVERY_S = 0.025
CROWDED_S = 0.1
AGAIN_S = 0.005
IDLE_FIRST_S = 0.05
IDLE_LONGEST_S = 0.25
# A round over very many lanes that are all closed may take a quarter of the time at most.
REST_PER_ROUND = 3.0
LONGEST_REST_S = 2.0
MOST_CONTENDED = 20


class Pace:
    """The pause after each claim: shorter while there may be more, longer when there is none.

    A round is over when every lane with something pending has been looked at and nothing
    could be claimed of any. Whatever changes that wakes the claimer: an emit, a settle, a
    promotion. So a round costs little, however many lanes are closed or full.
    """

    def __init__(self) -> None:
        self._idle_s = IDLE_FIRST_S
        self._contended = 0
        self._wraps = 0
        self._spent_s = 0.0

    def pause(self, batch: Batch, took_s: float, *, crowded: bool) -> float:
        """Seconds to wait after a claim that took ``took_s``.

        ``crowded``: little room is left in the hands, and a settle will bring more.
        """
        if batch.claims or batch.orphans:
            self._begin_round()
            self._contended, self._idle_s = 0, IDLE_FIRST_S
            return CLAIM_EVERY_S
        if crowded:
            self._begin_round()
            return CROWDED_S
        if batch.contended and self._contended < MOST_CONTENDED:
            # These lanes are another worker's at this moment.
            self._contended += 1
            return AGAIN_S
        return self._look_on(batch, took_s)

    def _look_on(self, batch: Batch, took_s: float) -> float:
        self._spent_s += took_s
        self._wraps += batch.wrapped
        if not batch.ended and self._wraps < 2:
            return AGAIN_S
        rest_s = min(self._spent_s * REST_PER_ROUND, LONGEST_REST_S)
        self._begin_round()
        self._idle_s = min(self._idle_s * 1.5, IDLE_LONGEST_S)
        return max(rest_s, min(self._idle_s, max(batch.opens_in_s, CLAIM_EVERY_S)))

    def _begin_round(self) -> None:
        self._wraps, self._spent_s = 0, 0.0
