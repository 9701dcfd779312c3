"""Custom headers: what an endpoint may ask to be sent beside our own, and which are secret. Pure.

A name is told apart and judged as the loosest reader would: servers that hand headers on as
variables (CGI, RFC 3875 section 4.1.18; WSGI) fold case, and hyphens into underscores.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

from webhooks.attempt import Headers
from webhooks.field_error import FieldError

MOST_HEADERS = 20
LONGEST_NAME = 64
# With this value urllib3 leaves a header of its own out, and refuses any other's.
NOT_SENT = "@@@SKIP_HEADER@@@"
# Ours, and whoever has it may use it until it ends.
BEARER = "webhook-jwt"
LONGEST_VALUE_BYTES = 4_096
MOST_BYTES = 16_384
KEPT_NAMES = 4_096

MASK = "•••"

# A value None keeps what is stored under that name, which a caller who may not read it cannot give.
Given: TypeAlias = tuple[tuple[str, str | None], ...]

# RFC 9110 sections 5.1 and 5.5, without what is not ASCII, which two readers read in two ways.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?")

_PER_REQUEST = "it is set for each request"
_CONNECTION = "it belongs to the connection, not to the endpoint"
_ORIGIN = "it tells where a request comes from, which is ours to say"
_COOKIES = "no cookies are sent"
_SIGNING = "it belongs to a signature; choose a signing scheme instead"
_RESERVED = {
    "host": "it follows from the URL",
    **dict.fromkeys(
        ("content-length", "content-type", "content-encoding", "date", "user-agent"), _PER_REQUEST
    ),
    **dict.fromkeys(
        (
            "accept-encoding", "connection", "expect", "http2-settings", "keep-alive", "te",
            "trailer", "transfer-encoding", "upgrade",
        ),
        _CONNECTION,
    ),
    **dict.fromkeys(("forwarded", "via", "x-real-ip"), _ORIGIN),
    **dict.fromkeys(("cookie", "cookie2", "set-cookie"), _COOKIES),
    "proxy": "CGI programs would take it for the setting HTTP_PROXY",
    **dict.fromkeys(
        (
            "content-digest", "digest", "repr-digest", "signature", "signature-input",
            "stripe-signature",
        ),
        _SIGNING,
    ),
}  # fmt: skip
_RESERVED_PREFIXES = {
    "proxy-": _CONNECTION,
    "x-forwarded-": _ORIGIN,
    "webhook-": "names that begin with webhook- are ours",
    **dict.fromkeys(("svix-", "x-github-", "x-hub-", "x-shopify-", "x-slack-"), _SIGNING),
}

_SECRET = re.compile(
    r"auth|bearer|cookie|credential|hmac|jwt|key|pass|secret|session|signature|token"
)


class HeaderError(FieldError):
    """A custom header is wrong: ``field`` is ``headers`` or ``headers.<name>``.

    Neither it nor ``message`` holds any part of a value.
    """


def check(given: Mapping[str, object]) -> Given:
    """The headers in the order and case given; HeaderError for the first wrong one."""
    if len(given) > MOST_HEADERS:
        raise HeaderError("headers", f"there are {len(given)}; give at most {MOST_HEADERS}")
    found: dict[str, tuple[str, str | None]] = {}
    for name, value in given.items():
        _check_name(name)
        if twin := found.get(name.lower()):
            raise HeaderError(field(name), f"it is there twice, as {twin[0]} too; give it once")
        found[name.lower()] = name, _checked_value(name, value)
    return tuple(found.values())


def check_size(headers: Headers) -> Headers:
    """The headers, unless they are too large together."""
    size = sum(len(name) + len(value) for name, value in headers)
    if size > MOST_BYTES:
        raise HeaderError("headers", f"together they have {size} bytes; give at most {MOST_BYTES}")
    return headers


def is_secret(name: str) -> bool:
    """Whether its value may be written and never read."""
    return _SECRET.search(name.lower()) is not None


def shown(headers: Headers) -> dict[str, str | None]:
    """As anybody may see them: None stands for a secret value."""
    return {name: None if is_secret(name) else value for name, value in headers}


def recorded(headers: Headers) -> Headers:
    """A request's headers with MASK for the values of secret ones; our own stay as they are."""
    for name, _ in headers:
        if _is_masked(name):
            return tuple([(name, MASK if _is_masked(name) else value) for name, value in headers])
    return headers


def dump(headers: Headers) -> bytes:
    """As they are encrypted and stored."""
    return json.dumps(headers, separators=(",", ":")).encode()


def load(stored: bytes) -> Headers:
    """What ``dump`` wrote; ValueError when it is something else."""
    try:
        return tuple([(str(name), str(value)) for name, value in json.loads(stored)])
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError("the stored custom headers cannot be read") from error


def field(name: str) -> str:
    """What an error calls a header: no more of the name than can be one.

    Whoever gives a whole line as the name would read their secret in a log otherwise.
    """
    found = _TOKEN.match(name)
    return f"headers.{found[0][:LONGEST_NAME]}" if found else "headers"


def _check_name(name: str) -> None:
    if not _TOKEN.fullmatch(name) or len(name) > LONGEST_NAME:
        raise HeaderError(
            field(name),
            f"it is not a header name: give 1 to {LONGEST_NAME} letters, digits or hyphens, such "
            "as X-Tenant, and the value apart from it",
        )
    if reason := _reserved(name):
        raise HeaderError(field(name), f"the name is reserved: {reason}; leave it out")


def _reserved(name: str) -> str | None:
    """Why nobody may set it, or None."""
    plain = re.sub(r"[^a-z0-9]", "-", name.lower())
    prefixes = (why for prefix, why in _RESERVED_PREFIXES.items() if plain.startswith(prefix))
    return _RESERVED.get(plain) or next(prefixes, None)


def _checked_value(name: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise HeaderError(field(name), "its value is not text; give it in quotes")
    if not value:
        raise HeaderError(field(name), "its value is empty; give one, or leave the header out")
    if len(value) > LONGEST_VALUE_BYTES:
        raise HeaderError(
            field(name),
            f"its value has {len(value)} characters; give at most {LONGEST_VALUE_BYTES}",
        )
    if value == NOT_SENT:
        raise HeaderError(field(name), "its value means no header to a library; give another")
    if not _VALUE.fullmatch(value):
        raise HeaderError(field(name), f"its value {_fault(value)}; give printable ASCII")
    return value


def _fault(value: str) -> str:
    """What is wrong with a value, which is not shown: where, and of which kind."""
    for n, character in enumerate(value, 1):
        if character in "\r\n":
            return f"has a line break at character {n}"
        if not (" " <= character <= "~" or character == "\t"):
            return f"has at character {n} one that no header can carry"
    return "begins or ends with a blank"


@lru_cache(KEPT_NAMES)
def _is_masked(name: str) -> bool:
    return name == BEARER or (is_secret(name) and _reserved(name) is None)
