"""The endpoint's form: what is typed, as fields; an endpoint, as what is typed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from webhooks.backoff import Policy, PolicyError
from webhooks.dashboard import header_rows
from webhooks.endpoints import EndpointError
from webhooks.field_error import echo
from webhooks.models import Endpoint
from webhooks.signing import Scheme

Values = dict[str, str]

DEFAULT, EXPONENTIAL, LIST = "default", "exponential", "list"
RETRIES = (DEFAULT, EXPONENTIAL, LIST)

EXAMPLE = "10s, 1m, 10m, 1h"

SCHEMES = {
    Scheme.STANDARD: "webhook-id, webhook-timestamp, webhook-signature. Libraries in many "
    "languages verify it.",
    Scheme.SVIX: "The same signature as svix-id, svix-timestamp, svix-signature.",
    Scheme.GITHUB: "X-Hub-Signature-256, for receivers made for GitHub. It has no time in it.",
    Scheme.STRIPE: "Stripe-Signature, for receivers made for Stripe.",
    Scheme.SHOPIFY: "X-Shopify-Hmac-Sha256, for receivers made for Shopify. It has no time in it.",
    Scheme.SLACK: "X-Slack-Signature, for receivers made for Slack.",
    Scheme.RFC9421: "Signature and Signature-Input (RFC 9421), over address and body.",
    Scheme.JWT: "webhook-jwt, a token with the body's hash. It needs a key pair.",
}

# Where the form calls a field otherwise than the API.
NAMES = {
    "rate_limit.per_second": "rate_per_second",
    "rate_limit.burst": "rate_burst",
    "retry_policy.base_s": "retry_base_s",
    "retry_policy.factor": "retry_factor",
    "retry_policy.cap_s": "retry_cap_s",
    "retry_policy.attempts": "retry_attempts",
    "retry_policy.delays_s": "retry_delays",
}

WAIT = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|min|m|h|d)?")
UNITS_S = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


def new_values(default: Policy) -> Values:
    """The form of an endpoint that is to be made."""
    return {
        "event_types": "*",
        **retry_values(None, default),
        **_scheme_values([Scheme.STANDARD.value]),
    }


def values_of(endpoint: Endpoint, default: Policy) -> Values:
    """An endpoint as the form shows it; ``default``: what its retries follow without a policy."""
    return {
        "url": endpoint.url,
        "event_types": "\n".join(s.pattern for s in endpoint.subscriptions),
        "description": endpoint.description,
        "timeout_s": f"{endpoint.timeout_s:g}",
        "max_in_flight": str(endpoint.max_in_flight),
        "rate_per_second": _written(endpoint.rate_limit),
        "rate_burst": _written(endpoint.rate_burst),
        "ca_pem": endpoint.ca_pem or "",
        **_scheme_values(endpoint.schemes),
        **header_rows.values_of(header_rows.stored(endpoint) or {}),
        **retry_values(endpoint.retry_policy, default),
    }


def retry_values(stored: Mapping[str, Any] | None, default: Policy) -> Values:
    """The retry fields of a stored policy; what it does not say is filled with the default."""
    try:
        policy = default if stored is None else Policy.parse(stored)
    except PolicyError:
        policy, stored = default, None
    is_list = stored is not None and "delays_s" in stored
    shape = default if is_list else policy
    return {
        "retry": DEFAULT if stored is None else LIST if is_list else EXPONENTIAL,
        "retry_base_s": _written(shape.base_s),
        "retry_factor": _written(shape.factor),
        "retry_cap_s": _written(shape.cap_s),
        "retry_attempts": _written(shape.attempts),
        "retry_delays": ", ".join(map(_written, policy.delays_s)) if is_list else EXAMPLE,
    }


def fields(values: Values) -> dict[str, Any]:
    """The form's fields as endpoints.create takes them; EndpointError for what is no number."""
    found: dict[str, Any] = {
        "url": values.get("url", "").strip(),
        "event_types": [
            part for part in re.split(r"[\s,]+", values.get("event_types", "")) if part
        ],
        "description": values.get("description", "").strip(),
        "rate_limit": _rate(values),
        "retry_policy": policy(values),
        **header_rows.fields(values),
        **_schemes(values),
    }
    if "ca_pem" in values:
        found["ca_pem"] = values["ca_pem"]
    for name, kind in (("timeout_s", float), ("max_in_flight", int)):
        found |= _optional(values, name, name, kind)
    return found


def changes(values: Values, endpoint: Endpoint) -> dict[str, Any]:
    """As ``fields``, without what only spells out, or reorders, what is stored."""
    found = fields(values)
    if not found.get("headers") and header_rows.stored(endpoint) is None:
        found.pop("headers", None)  # they could not be shown: no rows do not mean none
    if set(found.get("schemes", ())) == set(endpoint.schemes):
        del found["schemes"]
    if found.get("ca_pem", "").split() == (endpoint.ca_pem or "").split():
        found.pop("ca_pem", None)  # one that has expired since is no reason to refuse the rest
    stored, given = endpoint.retry_policy, found["retry_policy"]
    if stored is not None and given is not None and _same(stored, given):
        del found["retry_policy"]
    return found


def policy(values: Values) -> dict[str, Any] | None:
    """The retry policy that is chosen, None for the default; EndpointError for no number."""
    choice = values.get("retry", DEFAULT)
    if choice == LIST:
        return {"delays_s": [_wait(part) for part in _parts(values.get("retry_delays", ""))]}
    if choice == EXPONENTIAL:
        found: dict[str, Any] = {}
        for name in ("base_s", "factor", "cap_s", "attempts"):
            found |= _optional(values, f"retry_{name}", name, _number)
        return found
    if choice != DEFAULT:
        raise EndpointError("retry", f"{echo(choice)} is not one of {', '.join(RETRIES)}")
    return None


def errors(error: EndpointError) -> Values:
    """The error beside the field of the form that it names."""
    name = error.field.partition("[")[0]
    if name.startswith("headers."):
        return {"headers": f"{name.removeprefix('headers.')}: {error.message}"}
    return {NAMES.get(name, name): error.message}


def _scheme_values(schemes: Sequence[str]) -> Values:
    return {"schemes": "1", **{f"scheme_{scheme}": "1" for scheme in schemes}}


def _schemes(values: Values) -> dict[str, list[str]]:
    """Those that are ticked. A form without the boxes, of which none is sent unless ticked, means
    none of this."""
    if "schemes" not in values:
        return {}
    return {"schemes": [each.value for each in Scheme if f"scheme_{each}" in values]}


def _rate(values: Values) -> dict[str, Any] | None:
    rate = _optional(values, "rate_per_second", "per_second", float)
    burst = _optional(values, "rate_burst", "burst", int)
    if burst and not rate:
        raise EndpointError("rate_burst", "give attempts per second too, or leave both empty")
    return rate | burst if rate else None


def _optional(
    values: Values, field: str, name: str, kind: Callable[[str], float]
) -> dict[str, float]:
    text = values.get(field, "").strip()
    if not text:
        return {}
    try:
        return {name: kind(text)}
    except ValueError as error:
        word = "a whole number" if kind is int else "a number"
        raise EndpointError(field, f"{echo(text)} is not {word}") from error


def _parts(text: str) -> list[str]:
    return [part for part in re.split(r"[\s,;]+", text) if part]


def _wait(text: str) -> float:
    """Seconds of "30", "30s", "5m", "2h" or "1d"."""
    found = WAIT.fullmatch(text)
    if found is None:
        raise EndpointError("retry_delays", f"{echo(text)} is not a wait such as 30s, 5m, 2h or 1d")
    return _number(found[1]) * UNITS_S[found[2] or ""]


def _number(text: str) -> float:
    """A whole number stays one."""
    try:
        return int(text)
    except ValueError:
        return float(text)


def _written(number: float | None) -> str:
    """The shortest text that reads back as the same number."""
    if number is None:
        return ""
    return str(int(number)) if number == int(number) else repr(number)


def _same(stored: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    try:
        return Policy.parse(stored) == Policy.parse(given)
    except PolicyError:
        return False
