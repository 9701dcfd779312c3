"""An endpoint's run-time state: what outcomes do to its lane. Pure.

Breaker: after some failures in a row that say that nobody is there (no connection, no
answer, 5xx) a lane closes, then lets a single probe through; each that fails closes it
for twice as long. Any other answer, a refusal too, proves that somebody is there.
"""

from __future__ import annotations

import math
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
# Refusals of one look-up, of any worker, count once.
BLOCKED_COUNTS_EVERY_S = 60.0
# A receiver that asks for pauses all the time is one entry a minute in the audit log.
THROTTLE_NOTED_S = 60.0

GONE = "the receiver answered 410 Gone"
BLOCKED = f"its address was refused {BLOCKED_BEFORE_PAUSE} times in a row"
LAST_YEAR = 9999  # what infinity reads as
THROTTLE_GOES_ON = "the receiver asked for a pause"

# Failures that say that nobody may be there. A refused address or a lost worker says nothing
# of it, and a name without an answer may be our own resolver's fault, which would then close
# every lane; any other failure is an answer.
STRIKES = frozenset(
    {ErrorClass.CONNECT, ErrorClass.TLS, ErrorClass.TIMEOUT, ErrorClass.PROTOCOL,
     ErrorClass.HTTP_5XX}
)  # fmt: skip
OUR_OWN = frozenset({ErrorClass.INTERNAL, ErrorClass.PROXY})  # no fault of the endpoint
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


def held(state: State, open_at: datetime, now: datetime) -> str | None:
    """Why a pending delivery waits for its lane, in words; None: it does not wait for long."""
    if state in (State.PAUSED, State.DISABLED):
        return f"the endpoint is {state}"
    if open_at.year == LAST_YEAR:  # closed for good, and shown so in a moment
        return "the endpoint is being closed"
    until = f"until {open_at:%Y-%m-%d %H:%M:%S} UTC" if open_at > now else ""
    if state is State.THROTTLED:
        return f"the receiver asked for a pause {until}"
    if state is State.BROKEN:
        return f"the endpoint does not answer; one delivery is tried {until or 'now'}".replace(
            "until", "at"
        )
    return None


def disable_at(
    status: str, failing_since: datetime | None, warned_at: datetime | None, after_s: float
) -> datetime | None:
    """When an endpoint is disabled unless an attempt succeeds; None before its owner is warned."""
    if status != "active" or warned_at is None or failing_since is None:
        return None
    return failing_since + timedelta(seconds=after_s)


class Change(StrEnum):
    """What happened to a lane that belongs in the audit log.

    STILL_BROKEN: a probe failed, and the breaker waits for longer. RECOVERED ends a break, a
    throttle or a warning.
    """

    BROKEN = "lane.broken"
    STILL_BROKEN = "lane.still_broken"
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

    ``failures``, ``blocked`` and ``strikes`` count attempts in a row. Seconds ago:
    ``failing_s`` the first of them, ``opened_s`` the lane's opening (negative: it will open),
    ``blocked_s`` the last refusal that counted, ``noted_s`` the audit entry of a throttle
    that goes on (None: there is none).

    ``recovered``: one succeeded meanwhile; ``reopened``: the breaker let go. ``close_s`` and
    ``throttle_s`` close the lane for that long, ``status`` for good: the endpoint becomes
    disabled or paused; all for ``reason``.
    """

    failures: int = 0
    blocked: int = 0
    strikes: int = 0
    broken_s: float = 0.0
    failing_s: float = 0.0
    opened_s: float = math.inf
    blocked_s: float = math.inf
    noted_s: float | None = None
    warned: bool = False
    recovered: bool = False
    reopened: bool = False
    close_s: float | None = None
    throttle_s: float | None = None
    status: str | None = None
    reason: str | None = None
    changes: tuple[Change, ...] = ()


DEFAULT_RULES = Rules()


def after(lane: Lane, outcomes: Iterable[Outcome], rules: Rules, now: float) -> Lane:
    """The lane after these outcomes, in the order in which they came.

    ``now``: a reading of the clock of their ``started`` and ``finished``.
    """
    for outcome in outcomes:
        if outcome.delivered:
            lane = _succeed(lane)
        else:
            lane = _fail(lane, outcome, rules, since=now - outcome.started)
    return lane


def throttle(outcome: Outcome) -> float | None:
    """Seconds for which this outcome closes its lane, or None."""
    if outcome.status_code not in THROTTLED:
        return None
    return THROTTLE_S if outcome.retry_after_s is None else outcome.retry_after_s


def _succeed(lane: Lane) -> Lane:
    throttle_ends = lane.noted_s is not None and lane.noted_s >= THROTTLE_NOTED_S
    if lane.broken_s > 0 or lane.warned or throttle_ends:
        lane = _changed(lane, Change.RECOVERED)
    return replace(
        _let_go(lane), failures=0, blocked=0, failing_s=0.0, warned=False, recovered=True,
        noted_s=None if throttle_ends else lane.noted_s,
    )  # fmt: skip


def _let_go(lane: Lane) -> Lane:
    """Somebody is there: an open breaker closes no more, whatever was sent when."""
    if lane.broken_s > 0:
        lane = replace(lane, reopened=True, close_s=None, opened_s=math.inf, reason=None)
    return replace(lane, strikes=0, broken_s=0.0)


def _fail(lane: Lane, outcome: Outcome, rules: Rules, since: float) -> Lane:
    if outcome.error in OUR_OWN:
        return lane
    lane = _count_refusal(replace(lane, failures=lane.failures + 1), outcome)
    lane = _close_for_good(lane, outcome, rules)
    if outcome.error in STRIKES:
        lane = _strike(lane, rules, since)
    elif outcome.error in ANSWERS:
        lane = _answered(lane)
    lane = _throttle(lane, outcome)
    return _warn(lane, rules)


def _count_refusal(lane: Lane, outcome: Outcome) -> Lane:
    if outcome.error is not ErrorClass.BLOCKED_ADDRESS:
        return replace(lane, blocked=0)
    if lane.blocked and lane.blocked_s < BLOCKED_COUNTS_EVERY_S:
        return lane
    return replace(lane, blocked=lane.blocked + 1, blocked_s=0.0)


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


def _strike(lane: Lane, rules: Rules, since: float) -> Lane:
    lane = replace(lane, strikes=lane.strikes + 1)
    if lane.broken_s > 0:
        # What was sent before the lane opened again is no probe, and says nothing new.
        if since > lane.opened_s:
            return lane
        return _changed(_break(lane, lane.broken_s * 2, rules), Change.STILL_BROKEN)
    if lane.strikes >= rules.breaker_failures:
        return _changed(_break(lane, rules.breaker_first_s, rules), Change.BROKEN)
    return lane


def _break(lane: Lane, wait_s: float, rules: Rules) -> Lane:
    wait_s = min(wait_s, rules.breaker_longest_s)
    why = f"breaker: {lane.strikes} failures in a row"
    return replace(
        lane, broken_s=wait_s, close_s=wait_s, opened_s=-wait_s, reopened=False,
        reason=lane.reason or why,
    )  # fmt: skip


def _answered(lane: Lane) -> Lane:
    if lane.broken_s > 0:
        lane = _changed(lane, Change.RECOVERED)
    return _let_go(lane)


def _throttle(lane: Lane, outcome: Outcome) -> Lane:
    wait = throttle(outcome)
    if wait is None:
        return lane
    if lane.noted_s is None:
        lane = _changed(replace(lane, noted_s=0.0), Change.THROTTLED)
    why = f"{THROTTLE_GOES_ON} (HTTP {outcome.status_code})"
    return replace(
        lane, throttle_s=max(wait, lane.throttle_s or 0.0), opened_s=min(lane.opened_s, -wait),
        reason=lane.reason or why,
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
