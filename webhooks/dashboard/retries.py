"""Retry policies as pages show them: how many tries, when, and by whose policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from webhooks import backoff
from webhooks.backoff import Policy, Rung, Source
from webhooks.dashboard.site import blueprint, settings

WHOSE = {
    Source.ENDPOINT: "this endpoint",
    Source.TENANT: "its tenant",
    Source.INSTALLATION: "the installation",
}


@dataclass(frozen=True, slots=True)
class Ladder:
    """A policy in words, whose it is, how many hundredths jitter is, and each attempt."""

    words: str
    whose: str
    jitter: int
    rungs: list[Rung]


@blueprint.app_template_global("tries_allowed")
def tries_allowed(row: Mapping[str, Any]) -> int:
    """How many tries a delivery or endpoint has; the row holds its and its tenant's policy."""
    return _in_force(row)[0].attempts


@blueprint.app_template_global("retry_ladder")
def retry_ladder(row: Mapping[str, Any]) -> Ladder:
    """The ladder in force; the row holds the endpoint's and its tenant's policy."""
    return ladder(*_in_force(row))


def ladder(policy: Policy, source: Source) -> Ladder:
    """A policy as a page shows it."""
    return Ladder(
        backoff.describe(policy),
        WHOSE[source],
        round(policy.jitter * 100),
        backoff.ladder(policy),
    )


@blueprint.app_template_filter("rate")
def rate(per_second: float) -> str:
    """A rate limit in words: "5 attempts a second", or slower "1 attempt in 20 s"."""
    if per_second >= 1:
        return f"{per_second:,.6g} attempts a second"
    return f"1 attempt in {backoff.duration(1 / per_second)}"


@blueprint.app_template_filter("duration")
def duration(seconds: float) -> str:
    """A time in seconds, for example "2 min 40 s"."""
    return backoff.duration(seconds)


def _in_force(row: Mapping[str, Any]) -> tuple[Policy, Source]:
    return backoff.in_force(row["retry_policy"], row["tenant_retry_policy"], settings())
