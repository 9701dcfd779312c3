"""An endpoint's custom headers: encrypted, read, and what is left of them after a change.

What is stored was given for one origin. A change to another one never takes a secret along:
whoever may change an endpoint need not be one who may know what is stored.
"""

from __future__ import annotations

import re
from typing import Any

from webhooks import custom_headers
from webhooks.attempt import Headers
from webhooks.custom_headers import Given, HeaderError
from webhooks.endpoint_fields import EndpointError
from webhooks.models import Endpoint
from webhooks.secrets import Keyring, Place, SecretError

# RFC 3986 appendix B.
ORIGIN = re.compile(r"[^:/?#]+://[^/?#]*")


def seal(endpoint: Endpoint, keyring: Keyring, headers: Headers) -> str | None:
    """The headers as the endpoint's row holds them, which needs its id by now."""
    return keyring.encrypt(_place(endpoint), custom_headers.dump(headers)) if headers else None


def read(endpoint: Endpoint, keyring: Keyring) -> Headers:
    """The headers that are stored; SecretError when they cannot be read any more."""
    if endpoint.headers is None:
        return ()
    try:
        return custom_headers.load(keyring.decrypt(_place(endpoint), endpoint.headers))
    except ValueError as error:
        if isinstance(error, SecretError):
            raise
        raise SecretError(f"endpoints {endpoint.id}: {error}") from error


def shown(endpoint: Endpoint, keyring: Keyring) -> dict[str, str | None] | None:
    """As anybody may see them, secret values as None; None when they cannot be read any more."""
    try:
        return custom_headers.shown(read(endpoint, keyring))
    except SecretError:
        return None


def given(headers: Given) -> Headers:
    """Those of a new endpoint, where nothing is stored that could be kept; EndpointError."""
    return _filled(headers, {}, "give its value")


def changed(endpoint: Endpoint, keyring: Keyring, values: dict[str, Any]) -> Headers | None:
    """The headers after a change of ``values``; None when they stay as they are.

    ``values`` are checked. EndpointError when a value is to be kept that is not there, or
    that would reach another origin.
    """
    moves = "url" in values and _origin(values["url"]) != _origin(endpoint.url)
    if "headers" not in values:
        if moves:
            _refuse_to_take_along(endpoint, keyring)
        return None
    if moves:
        return _filled(values["headers"], {}, _anew(endpoint))
    return _filled(values["headers"], *_kept(endpoint, keyring))


def _filled(headers: Given, kept: dict[str, str], remedy: str) -> Headers:
    """The headers with the values kept in the place of those left open."""
    found = []
    for name, value in headers:
        value = kept.get(name.lower()) if value is None else value
        if value is None:
            raise EndpointError(custom_headers.field(name), remedy)
        found.append((name, value))
    try:
        return custom_headers.check_size(tuple(found))
    except HeaderError as error:
        raise EndpointError(error.field, error.message) from error


def _kept(endpoint: Endpoint, keyring: Keyring) -> tuple[dict[str, str], str]:
    """Stored values by name in lower case, and what is to be done where there is none."""
    try:
        stored = read(endpoint, keyring)
    except SecretError:
        return {}, "what is stored cannot be read any more; give its value anew"
    remedy = "no secret value is stored for it to keep; give one"
    return {name.lower(): value for name, value in stored if custom_headers.is_secret(name)}, remedy


def _refuse_to_take_along(endpoint: Endpoint, keyring: Keyring) -> None:
    try:
        stored = read(endpoint, keyring)
    except SecretError as error:
        raise EndpointError(
            "headers", "what is stored cannot be read any more; give them anew with the URL"
        ) from error
    secret = next((name for name, _ in stored if custom_headers.is_secret(name)), None)
    if secret is not None:
        raise EndpointError(custom_headers.field(secret), _anew(endpoint))


def _anew(endpoint: Endpoint) -> str:
    return (
        f"what is stored was given for {_origin(endpoint.url)} and is not sent elsewhere: give "
        "its value anew in the change of the URL, or leave the header out"
    )


def _origin(url: str) -> str:
    """Scheme, host and port (RFC 6454 section 4) of a URL in its canonical form."""
    found = ORIGIN.match(url)
    return found[0] if found else ""


def _place(endpoint: Endpoint) -> Place:
    return Place("endpoints", endpoint.tenant_id, endpoint.id, "headers")
