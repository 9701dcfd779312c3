"""What an endpoint's fields may hold, the same for the API, the dashboard and the code."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from webhooks.addresses import AddressPolicy, UrlError, check_url
from webhooks.backoff import Policy, PolicyError
from webhooks.field_error import FieldError
from webhooks.settings import Settings

MOST_EVENT_TYPES = 100
LONGEST_PATTERN = 255
LONGEST_DESCRIPTION = 500
MOST_IN_FLIGHT = 1000
SHORTEST_TIMEOUT_S = 1
LONGEST_TIMEOUT_S = 60
LONGEST_ECHO = 200

_PATTERN = re.compile(r"\*|[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*(?:\.\*)?")


class EndpointError(FieldError):
    """A field of an endpoint is wrong: ``field`` names it, ``message`` says the remedy."""


def checked(settings: Settings, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields in the form in which they are stored; EndpointError for the first wrong one."""
    checks: dict[str, Callable[[Any], Any]] = {
        "url": lambda value: _check_url(value, settings),
        "event_types": _check_patterns,
        "description": _check_description,
        "retry_policy": _check_policy,
        "max_in_flight": lambda value: int(
            _check_number("max_in_flight", value, 1, MOST_IN_FLIGHT, int)
        ),
        "timeout_s": lambda value: float(
            _check_number("timeout_s", value, SHORTEST_TIMEOUT_S, LONGEST_TIMEOUT_S, float)
        ),
    }
    return {name: checks[name](value) for name, value in fields.items()}


def _check_url(url: str, settings: Settings) -> str:
    try:
        return check_url(url, AddressPolicy.from_settings(settings))
    except UrlError as error:
        raise EndpointError("url", str(error)) from error


def _check_patterns(patterns: list[str]) -> list[str]:
    distinct = sorted(set(patterns))
    if not 1 <= len(distinct) <= MOST_EVENT_TYPES:
        raise EndpointError(
            "event_types",
            f"give 1 to {MOST_EVENT_TYPES} patterns, such as invoice.paid, invoice.* or *",
        )
    for n, pattern in enumerate(patterns):
        if len(pattern) > LONGEST_PATTERN or not _PATTERN.fullmatch(pattern):
            raise EndpointError(
                f"event_types[{n}]",
                f"{pattern[:80]!r} is not an event type such as invoice.paid, "
                f"a prefix such as invoice.*, or *; at most {LONGEST_PATTERN} characters",
            )
    return distinct


def _check_description(description: str) -> str:
    if len(description) > LONGEST_DESCRIPTION or "\0" in description:
        raise EndpointError(
            "description", f"give at most {LONGEST_DESCRIPTION} characters, none of them NUL"
        )
    return description


def _check_policy(policy: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if policy is None:
        return None
    try:
        Policy.parse(policy)
    except PolicyError as error:
        field, _, message = str(error).partition(": ")
        raise EndpointError(f"retry_policy.{field[:80]}", message[:LONGEST_ECHO]) from error
    return dict(policy)


def _check_number(
    field: str, value: float, low: float, high: float, kind: type[int] | type[float]
) -> float:
    accepted = (int,) if kind is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, accepted) or not low <= value <= high:
        word = "a whole number" if kind is int else "a number"
        raise EndpointError(field, f"{str(value)[:40]} is not {word} from {low:g} to {high:g}")
    return value
