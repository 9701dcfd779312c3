"""An endpoint's run-time state: what outcomes do to its lane. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from webhooks.attempt import ErrorClass, Outcome

# What 429, 502, 503 and 504 mean where the receiver does not say for how long.
THROTTLE_S = 5.0
THROTTLED = frozenset({429, 502, 503, 504})
BLOCKED_BEFORE_PAUSE = 3

GONE = "the receiver answered 410 Gone"
BLOCKED = f"its address was refused {BLOCKED_BEFORE_PAUSE} times in a row"


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane's counters, and how it is to be closed.

    ``failures`` and ``blocked`` count attempts in a row; ``recovered``: one succeeded
    meanwhile. ``throttle_s`` closes the lane for that long, ``status`` for good: the
    endpoint becomes disabled or paused, for ``reason``.
    """

    failures: int = 0
    blocked: int = 0
    recovered: bool = False
    throttle_s: float | None = None
    status: str | None = None
    reason: str | None = None


def after(lane: Lane, outcomes: Iterable[Outcome]) -> Lane:
    """The lane after these outcomes, in the order in which they came."""
    for outcome in outcomes:
        lane = _after_one(lane, outcome)
    return lane


def _after_one(lane: Lane, outcome: Outcome) -> Lane:
    if outcome.delivered:
        return replace(lane, failures=0, blocked=0, recovered=True)
    refused = outcome.error is ErrorClass.BLOCKED_ADDRESS
    lane = replace(lane, failures=lane.failures + 1, blocked=lane.blocked + 1 if refused else 0)
    if outcome.status_code == 410:
        return replace(lane, status="disabled", reason=GONE)
    if lane.blocked >= BLOCKED_BEFORE_PAUSE and lane.status is None:
        return replace(lane, status="paused", reason=BLOCKED)
    wait = throttle(outcome)
    if wait is not None:
        return replace(lane, throttle_s=max(wait, lane.throttle_s or 0.0))
    return lane


def throttle(outcome: Outcome) -> float | None:
    """Seconds for which this outcome closes its lane, or None."""
    if outcome.status_code not in THROTTLED:
        return None
    return THROTTLE_S if outcome.retry_after_s is None else outcome.retry_after_s
