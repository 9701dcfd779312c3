"""An endpoint's run-time state: what outcomes do to its lane. Pure.

Breaker: after some failures in a row that say that nobody is there (no connection, no
answer, 5xx) a lane closes, then lets a single probe through; each that fails closes it
for twice as long. Any other answer, a refusal too, proves that somebody is there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from webhooks.attempt import ErrorClass, Outcome
from webhooks.settings import Settings

# What 429, 502, 503 and 504 mean where the receiver does not say for how long.
THROTTLE_S = 5.0
THROTTLED = frozenset({429, 502, 503, 504})
BLOCKED_BEFORE_PAUSE = 3

GONE = "the receiver answered 410 Gone"
BLOCKED = f"its address was refused {BLOCKED_BEFORE_PAUSE} times in a row"

# Failures that say that nobody may be there. A refused address or a lost worker says nothing
# of it; any other failure is an answer.
STRIKES = frozenset(
    {
        ErrorClass.DNS,
        ErrorClass.CONNECT,
        ErrorClass.TLS,
        ErrorClass.TIMEOUT,
        ErrorClass.PROTOCOL,
        ErrorClass.HTTP_5XX,
    }
)
ANSWERS = frozenset({ErrorClass.HTTP_4XX, ErrorClass.REDIRECT})


class State(StrEnum):
    """Whether anything is claimed for an endpoint now, and if not, why.

    RATE_LIMITED: its own rate limit · THROTTLED: the receiver asked for a pause ·
    BROKEN: the breaker, closed or at its probe · PAUSED and DISABLED: the endpoint's status.
    """

    OPEN = "open"
    RATE_LIMITED = "rate_limited"
    THROTTLED = "throttled"
    BROKEN = "broken"
    PAUSED = "paused"
    DISABLED = "disabled"


def state(
    status: str, open_at: datetime, rate_open_at: datetime, broken_s: float, now: datetime
) -> State:
    """A lane's state; ``status`` is its endpoint's, the others are the lane's columns."""
    if status != "active":
        return State(status)
    if broken_s > 0:
        return State.BROKEN
    if open_at > now:
        return State.THROTTLED
    return State.RATE_LIMITED if rate_open_at > now else State.OPEN


def disable_at(
    status: str, failing_since: datetime | None, warned_at: datetime | None, after_s: float
) -> datetime | None:
    """When an endpoint is disabled unless an attempt succeeds; None before its owner is warned."""
    if status != "active" or warned_at is None or failing_since is None:
        return None
    return failing_since + timedelta(seconds=after_s)


class Change(StrEnum):
    """What happened to a lane that belongs in the audit log."""

    BROKEN = "lane.broken"
    THROTTLED = "lane.throttled"
    RECOVERED = "lane.recovered"
    WARNED = "endpoint.warned"


@dataclass(frozen=True, slots=True)
class Rules:
    """When the breaker closes a lane and for how long, and when its endpoint is disabled.

    ``breaker_failures`` and ``disable_attempts`` count attempts in a row. The warning comes
    at half of the time and half of the attempts.
    """

    breaker_failures: int = 10
    breaker_first_s: float = 30.0
    breaker_longest_s: float = 600.0
    disable_after_s: float = 432_000.0
    disable_attempts: int = 20

    @classmethod
    def from_settings(cls, settings: Settings) -> Rules:
        return cls(
            settings.breaker_failures,
            settings.breaker_first_s,
            settings.breaker_longest_s,
            settings.disable_after_s,
            settings.disable_attempts,
        )


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane as a settle found it, and what the outcomes do to it.

    ``failures``, ``blocked`` and ``strikes`` count attempts in a row; ``failing_s`` is how
    long ago the first of them was; ``shut``: nothing is claimed at this moment, so that what
    comes back was sent before and is no probe; ``throttle_noted``: an audit entry says so
    already.

    ``recovered``: one succeeded meanwhile. ``close_s`` closes the lane for that long,
    ``status`` for good: the endpoint becomes disabled or paused; both for ``reason``.
    """

    failures: int = 0
    blocked: int = 0
    strikes: int = 0
    broken_s: float = 0.0
    failing_s: float = 0.0
    shut: bool = False
    warned: bool = False
    throttle_noted: bool = False
    recovered: bool = False
    close_s: float | None = None
    status: str | None = None
    reason: str | None = None
    changes: tuple[Change, ...] = ()


DEFAULT_RULES = Rules()


def after(lane: Lane, outcomes: Iterable[Outcome], rules: Rules = DEFAULT_RULES) -> Lane:
    """The lane after these outcomes, in the order in which they came."""
    for outcome in outcomes:
        lane = _succeed(lane) if outcome.delivered else _fail(lane, outcome, rules)
    return lane


def throttle(outcome: Outcome) -> float | None:
    """Seconds for which this outcome closes its lane, or None."""
    if outcome.status_code not in THROTTLED:
        return None
    return THROTTLE_S if outcome.retry_after_s is None else outcome.retry_after_s


def _succeed(lane: Lane) -> Lane:
    if lane.broken_s > 0 or lane.warned:
        lane = _changed(lane, Change.RECOVERED)
    return replace(
        lane, failures=0, blocked=0, strikes=0, broken_s=0.0, failing_s=0.0, warned=False,
        recovered=True,
    )  # fmt: skip


def _fail(lane: Lane, outcome: Outcome, rules: Rules) -> Lane:
    if outcome.error is ErrorClass.INTERNAL:
        return lane  # our own fault, such as a keyring that is wrong: not the endpoint's
    refused = outcome.error is ErrorClass.BLOCKED_ADDRESS
    lane = replace(lane, failures=lane.failures + 1, blocked=lane.blocked + 1 if refused else 0)
    lane = _close_for_good(lane, outcome, rules)
    if outcome.error in STRIKES:
        lane = _strike(lane, rules)
    elif outcome.error in ANSWERS:
        lane = _answered(lane)
    lane = _throttle(lane, outcome)
    return _warn(lane, rules)


def _close_for_good(lane: Lane, outcome: Outcome, rules: Rules) -> Lane:
    if outcome.status_code == 410:
        return replace(lane, status="disabled", reason=GONE)
    if lane.status is not None:
        return lane
    if lane.blocked >= BLOCKED_BEFORE_PAUSE:
        return replace(lane, status="paused", reason=BLOCKED)
    if lane.failing_s >= rules.disable_after_s and lane.failures >= rules.disable_attempts:
        why = f"every attempt failed for {_long(lane.failing_s)}, {lane.failures} in a row"
        return replace(lane, status="disabled", reason=why)
    return lane


def _strike(lane: Lane, rules: Rules) -> Lane:
    lane = replace(lane, strikes=lane.strikes + 1)
    if lane.broken_s > 0:
        # What was sent before the breaker closed is no probe, and says nothing new.
        return lane if lane.shut else _break(lane, lane.broken_s * 2, rules)
    if lane.strikes >= rules.breaker_failures:
        return _changed(_break(lane, rules.breaker_first_s, rules), Change.BROKEN)
    return lane


def _break(lane: Lane, wait_s: float, rules: Rules) -> Lane:
    wait_s = min(wait_s, rules.breaker_longest_s)
    why = f"breaker: {lane.strikes} failures in a row"
    return replace(
        lane, broken_s=wait_s, close_s=max(wait_s, lane.close_s or 0.0), shut=True,
        reason=lane.reason or why,
    )  # fmt: skip


def _answered(lane: Lane) -> Lane:
    if lane.broken_s > 0:
        lane = _changed(lane, Change.RECOVERED)
    return replace(lane, strikes=0, broken_s=0.0)


def _throttle(lane: Lane, outcome: Outcome) -> Lane:
    wait = throttle(outcome)
    if wait is None:
        return lane
    if not lane.throttle_noted:
        lane = _changed(lane, Change.THROTTLED)
    why = f"the receiver asked for a pause (HTTP {outcome.status_code})"
    return replace(
        lane, close_s=max(wait, lane.close_s or 0.0), shut=lane.shut or wait > 0,
        throttle_noted=True, reason=lane.reason or why,
    )  # fmt: skip


def _warn(lane: Lane, rules: Rules) -> Lane:
    due = lane.failing_s >= rules.disable_after_s / 2 and (
        lane.failures >= rules.disable_attempts / 2
    )
    if lane.warned or lane.status is not None or not due:
        return lane
    return replace(_changed(lane, Change.WARNED), warned=True)


def _changed(lane: Lane, change: Change) -> Lane:
    return replace(lane, changes=(*lane.changes, change))


def _long(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} seconds"
