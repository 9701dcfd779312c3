"""What an endpoint's fields may hold, the same for the API, the dashboard and the code."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from webhooks import ca_certificates, custom_headers, signing
from webhooks.addresses import AddressPolicy, UrlError, check_url
from webhooks.backoff import Policy, PolicyError
from webhooks.field_error import FieldError, echo
from webhooks.settings import Settings

MOST_EVENT_TYPES = 100
LONGEST_PATTERN = 255
LONGEST_DESCRIPTION = 500
MOST_IN_FLIGHT = 1000
SHORTEST_TIMEOUT_S = 1
LONGEST_TIMEOUT_S = 60
LONGEST_REASON = 500
SLOWEST_RATE = 0.001
FASTEST_RATE = 100_000
# The engine looks for what is due every 25 to 50 ms: so much of a second falls due between
# two looks, and has to fit into the burst.
LEAST_BURST_S = 0.05

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
        "schemes": _check_schemes,
        "headers": _check_headers,
        "ca_pem": _check_ca,
        "max_in_flight": lambda value: int(
            _check_number("max_in_flight", value, 1, MOST_IN_FLIGHT, int)
        ),
        "timeout_s": lambda value: float(
            _check_number("timeout_s", value, SHORTEST_TIMEOUT_S, LONGEST_TIMEOUT_S, float)
        ),
    }
    values = {name: checks[name](v) for name, v in fields.items() if name != "rate_limit"}
    if "rate_limit" in fields:
        values["rate_limit"], values["rate_burst"] = _check_rate(fields["rate_limit"])
    return values


def check_reason(reason: str | None) -> str | None:
    """Why somebody pauses or disables an endpoint; EndpointError when it cannot be shown."""
    if reason is not None and not (reason.isprintable() and 0 < len(reason) <= LONGEST_REASON):
        raise EndpointError(
            "status_reason", f"give 1 to {LONGEST_REASON} printable characters on one line"
        )
    return reason


def _check_rate(rate: Mapping[str, Any] | None) -> tuple[float | None, int | None]:
    """``{"per_second", "burst"?}`` as the two columns; None is no limit."""
    if rate is None:
        return None, None
    unknown = sorted(str(name) for name in rate.keys() - {"per_second", "burst"})
    if unknown:
        name = unknown[0][:80]
        raise EndpointError(f"rate_limit.{name}", "not a field; give per_second, and burst")
    if "per_second" not in rate:
        raise EndpointError("rate_limit.per_second", "it is missing")
    field, per_second = "rate_limit.per_second", rate["per_second"]
    per_second = float(_check_number(field, per_second, SLOWEST_RATE, FASTEST_RATE, float))
    return per_second, _check_burst(rate.get("burst"), per_second)


def _check_burst(burst: int | None, per_second: float) -> int:
    if burst is None:
        return max(1, math.ceil(per_second))
    burst = int(_check_number("rate_limit.burst", burst, 1, FASTEST_RATE, int))
    least = math.ceil(per_second * LEAST_BURST_S)
    if burst < least:
        raise EndpointError(
            "rate_limit.burst",
            f"{burst} is too few for {per_second:g} a second: give at least {least}, as so many "
            "fall due between two looks of a worker",
        )
    return burst


def _check_url(url: str, settings: Settings) -> str:
    try:
        return check_url(url, AddressPolicy.from_settings(settings))
    except UrlError as error:
        raise EndpointError("url", str(error)) from error


def check_pattern(field: str, pattern: str) -> None:
    """EndpointError unless it is an event type, a prefix of some, or all of them."""
    if len(pattern) > LONGEST_PATTERN or not _PATTERN.fullmatch(pattern):
        raise EndpointError(
            field,
            f"{pattern[:80]!r} is not an event type such as invoice.paid, "
            f"a prefix such as invoice.*, or *; at most {LONGEST_PATTERN} characters",
        )


def _check_patterns(patterns: list[str]) -> list[str]:
    distinct = sorted(set(patterns))
    if not 1 <= len(distinct) <= MOST_EVENT_TYPES:
        raise EndpointError(
            "event_types",
            f"give 1 to {MOST_EVENT_TYPES} patterns, such as invoice.paid, invoice.* or *",
        )
    for n, pattern in enumerate(patterns):
        check_pattern(f"event_types[{n}]", pattern)
    return distinct


def _check_schemes(schemes: list[str]) -> list[str]:
    try:
        return [scheme.value for scheme in signing.read_schemes(schemes)]
    except signing.SchemeError as error:
        raise EndpointError("schemes", str(error)) from error


def _check_headers(given: Mapping[str, object] | None) -> custom_headers.Given:
    try:
        return custom_headers.check(given or {})
    except FieldError as error:
        raise EndpointError(error.field, error.message) from error


def _check_ca(pem: str | None) -> str | None:
    """None and an empty text: no CA of its own."""
    if pem is None or not pem.strip():
        return None
    try:
        return ca_certificates.check(pem, datetime.now(UTC))
    except FieldError as error:
        raise EndpointError(error.field, error.message) from error


def _check_description(description: str) -> str:
    if len(description) > LONGEST_DESCRIPTION or "\0" in description:
        raise EndpointError(
            "description", f"give at most {LONGEST_DESCRIPTION} characters, none of them NUL"
        )
    return description


def _check_policy(policy: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The policy as it was given, so that what it leaves out keeps its default."""
    if policy is None:
        return None
    try:
        Policy.parse(policy)
    except PolicyError as error:
        raise EndpointError(f"retry_policy.{error.field}", error.message) from error
    return dict(policy)


def _check_number(
    field: str, value: float, low: float, high: float, kind: type[int] | type[float]
) -> float:
    accepted = (int,) if kind is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, accepted) or not low <= value <= high:
        word = "a whole number" if kind is int else "a number"
        raise EndpointError(field, f"{echo(value)} is not {word} from {low:g} to {high:g}")
    return value
