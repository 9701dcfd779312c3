"""Retry policy: how long to wait after a failed attempt, or None to stop. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from webhooks.attempt import Outcome
from webhooks.field_error import LONGEST_ECHO, FieldError, echo
from webhooks.settings import Settings

LONGEST_DELAY_S = 604_800.0
MOST_ATTEMPTS = 100
FEW_WAITS = 6
FIELDS = ("base_s", "factor", "cap_s", "attempts")


class PolicyError(FieldError):
    """A retry policy's field is wrong; the text names it, its value and the remedy."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Exponential (base, factor, cap) or, when ``delays_s`` is given, an explicit ladder.

    ``attempts`` counts the first try too: 10 means one try and nine retries. Every wait is
    made up to ``jitter`` of itself shorter or longer at random.
    """

    base_s: float = 10.0
    factor: float = 4.0
    cap_s: float = 86_400.0
    attempts: int = 10
    delays_s: tuple[float, ...] = ()
    jitter: float = 0.2

    @classmethod
    def from_settings(cls, settings: Settings) -> Policy:
        return cls(
            base_s=settings.retry_base_s,
            factor=settings.retry_factor,
            cap_s=settings.retry_cap_s,
            attempts=settings.retry_attempts,
        )

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Policy:
        """Read a stored or given policy; PolicyError names the field that is wrong."""
        if "delays_s" in value:
            return cls._parse_ladder(value)
        unknown = sorted(str(name) for name in value.keys() - set(FIELDS))
        if unknown:
            raise PolicyError(
                unknown[0][:LONGEST_ECHO],
                "not a field of a retry policy; give base_s, factor, cap_s and attempts, "
                "or delays_s",
            )
        return cls(
            base_s=_number(value, "base_s", 10.0, 0.01, LONGEST_DELAY_S),
            factor=_number(value, "factor", 4.0, 1, 100),
            cap_s=_number(value, "cap_s", 86_400.0, 0.01, LONGEST_DELAY_S),
            attempts=int(_number(value, "attempts", 10, 1, MOST_ATTEMPTS, whole=True)),
        )

    @classmethod
    def _parse_ladder(cls, value: Mapping[str, Any]) -> Policy:
        delays = value["delays_s"]
        if value.keys() != {"delays_s"}:
            raise PolicyError(
                "delays_s", "give it alone, without base_s, factor, cap_s or attempts"
            )
        if not isinstance(delays, list) or not len(delays) < MOST_ATTEMPTS:
            raise PolicyError("delays_s", f"give a list of at most {MOST_ATTEMPTS - 1} numbers")
        ladder = tuple(
            _number({f"delays_s[{n}]": delay}, f"delays_s[{n}]", 0, 0, LONGEST_DELAY_S)
            for n, delay in enumerate(delays)
        )
        return cls(delays_s=ladder, attempts=len(ladder) + 1)


class Source(StrEnum):
    """Whose retry policy an endpoint's deliveries follow."""

    ENDPOINT = "endpoint"
    TENANT = "tenant"
    INSTALLATION = "installation"


def in_force(
    endpoint: Mapping[str, Any] | None, tenant: Mapping[str, Any] | None, settings: Settings
) -> tuple[Policy, Source]:
    """The endpoint's own policy, else its tenant's, else the installation's.

    A stored one that cannot be read counts for nothing, as in the dispatcher.
    """
    own = endpoint if endpoint is not None else tenant
    if own is not None:
        try:
            return Policy.parse(own), Source.TENANT if endpoint is None else Source.ENDPOINT
        except PolicyError:
            pass
    return Policy.from_settings(settings), Source.INSTALLATION


@dataclass(frozen=True, slots=True)
class Rung:
    """One attempt of a ladder: its number from 1, the wait before it, and the time since
    the first, in seconds. Without jitter, and as if attempts took no time.
    """

    attempt: int
    wait_s: float
    elapsed_s: float


def ladder(policy: Policy) -> list[Rung]:
    """Every attempt that a policy allows, the first one included."""
    rungs = [Rung(1, 0.0, 0.0)]
    for tries in range(1, policy.attempts):
        wait = _wait(policy, tries)
        rungs.append(Rung(tries + 1, wait, rungs[-1].elapsed_s + wait))
    return rungs


def describe(policy: Policy) -> str:
    """For people: "after 10 s, 40 s, 2 min 40 s … 24 h: 10 attempts over about 2.6 days"."""
    rungs = ladder(policy)
    waits = [duration(rung.wait_s) for rung in rungs[1:]]
    if not waits:
        return "1 attempt, no retry"
    few = len(waits) <= FEW_WAITS
    shown = ", ".join(waits) if few else f"{', '.join(waits[:3])} … {waits[-1]}"
    return f"after {shown}: {len(rungs)} attempts over {_about(rungs[-1].elapsed_s)}"


def duration(seconds: float) -> str:
    """Seconds as "0.5 s", "2 min 40 s", "24 h" or "7 d": two units at most."""
    if seconds < 59.5:
        return f"{seconds:.3g} s"
    for below, size, unit, small, part in (
        (3_600, 60, "min", 1, "s"),
        (172_800, 3_600, "h", 60, "min"),
        (float("inf"), 86_400, "d", 3_600, "h"),
    ):
        whole, rest = divmod(round(seconds / small), size // small)
        if whole * size < below:
            return f"{whole} {unit} {rest} {part}" if rest else f"{whole} {unit}"
    raise AssertionError("unreachable")


def _about(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"about {_two_digits(seconds / size)} {unit}"
    return f"about {_two_digits(seconds)} seconds"


def _two_digits(number: float) -> str:
    return f"{number:.0f}" if number >= 9.95 else f"{number:.2g}"


def delay(policy: Policy, tries: int, outcome: Outcome, jitter: float) -> timedelta | None:
    """Wait before the next try, or None: no tries are left, or the outcome is final.

    ``tries`` counts what has been charged, this attempt included (from 1);
    ``jitter`` is a random number in [-1, 1]. A receiver's Retry-After is the least
    that is waited.
    """
    if not outcome.retryable or tries >= policy.attempts:
        return None
    wait = _wait(policy, tries) * (1 + policy.jitter * jitter)
    asked = min(outcome.retry_after_s or 0.0, LONGEST_DELAY_S)
    return timedelta(seconds=max(wait, asked))


def _wait(policy: Policy, tries: int) -> float:
    if policy.delays_s:
        return policy.delays_s[min(tries, len(policy.delays_s)) - 1]
    # Multiplied step by step: a power overflows before the cap can bound it.
    wait = policy.base_s
    for _ in range(tries - 1):
        if wait >= policy.cap_s:
            break
        wait *= policy.factor
    return min(wait, policy.cap_s)


def _number(
    value: Mapping[str, Any],
    name: str,
    default: float,
    low: float,
    high: float,
    *,
    whole: bool = False,
) -> float:
    number: Any = value.get(name, default)
    kinds = (int,) if whole else (int, float)
    # type() and not isinstance(): True is no number here.
    if type(number) not in kinds or not low <= number <= high:
        kind = "a whole number" if whole else "a number"
        raise PolicyError(name, f"{echo(number)} is not {kind} from {low:g} to {high:g}")
    return float(number)
