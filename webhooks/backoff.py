"""Retry policy: how long to wait after a failed attempt, or None to stop. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from webhooks.attempt import Outcome
from webhooks.settings import Settings

LONGEST_DELAY_S = 604_800.0
MOST_ATTEMPTS = 100


class PolicyError(ValueError):
    """A retry policy's field is wrong; the text names it, its value and the remedy."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Exponential (base, factor, cap) or, when ``delays_s`` is given, an explicit ladder.

    ``attempts`` counts the first try too: 10 means one try and nine retries.
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
        """Read an endpoint's policy; PolicyError names the field that is wrong."""
        if "delays_s" in value:
            return cls._parse_ladder(value)
        unknown = value.keys() - {"base_s", "factor", "cap_s", "attempts"}
        if unknown:
            raise PolicyError(
                f"{min(unknown)}: not a field of a retry policy; give base_s, "
                "factor, cap_s and attempts, or delays_s"
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
            raise PolicyError("delays_s: give it alone, without base_s, factor, cap_s or attempts")
        if not isinstance(delays, list) or not len(delays) < MOST_ATTEMPTS:
            raise PolicyError(f"delays_s: give a list of at most {MOST_ATTEMPTS - 1} numbers")
        ladder = tuple(
            _number({f"delays_s[{n}]": delay}, f"delays_s[{n}]", 0, 0, LONGEST_DELAY_S)
            for n, delay in enumerate(delays)
        )
        return cls(delays_s=ladder, attempts=len(ladder) + 1)


def delay(policy: Policy, tries: int, outcome: Outcome, jitter: float) -> timedelta | None:
    """Wait before the next try, or None: no tries are left, or the outcome is final.

    ``tries`` counts what has been charged, this attempt included (from 1);
    ``jitter`` is a random number in [-1, 1]. A receiver's Retry-After is the least
    that is waited.
    """
    if not outcome.retryable or tries >= policy.attempts:
        return None
    wait = _ladder(policy, tries) * (1 + policy.jitter * jitter)
    return timedelta(seconds=max(wait, outcome.retry_after_s or 0.0))


def _ladder(policy: Policy, tries: int) -> float:
    if policy.delays_s:
        return policy.delays_s[min(tries, len(policy.delays_s)) - 1]
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
        raise PolicyError(f"{name}: {number!r} is not {kind} from {low:g} to {high:g}")
    return float(number)
