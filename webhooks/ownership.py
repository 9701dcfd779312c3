"""Ownership proof: what is asked of an endpoint before anything is sent, and what is a yes. Pure.

``options`` is the handshake of CloudEvents (HTTP 1.1 Web Hooks for Event Delivery, section 4),
``challenge`` a signed POST whose random text the endpoint gives back. Neither takes a status
code alone for consent: many servers answer 200 to whatever comes.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from webhooks.attempt import Headers
from webhooks.field_error import echo
from webhooks.settings import Settings

REQUEST_ORIGIN = "WebHook-Request-Origin"
ALLOWED_ORIGIN = "WebHook-Allowed-Origin"
ALLOWED_RATE = "WebHook-Allowed-Rate"
EVENT_TYPE = "webhooks.ownership"
ANY = "*"
CHALLENGE_BYTES = 32
LONGEST_ECHO_BYTES = 1024

UNPROVEN = "its owner has not proved it yet"
REASON = f"{UNPROVEN}: POST /api/v1/endpoints/ep_…/prove, or Prove ownership on its page"

RATE = re.compile(r"0*[1-9][0-9]{0,8}", re.ASCII)


class Mode(StrEnum):
    """How an owner proves an endpoint: ``WEBHOOKS_OWNERSHIP_PROOF``."""

    OFF = "off"
    OPTIONS = "options"
    CHALLENGE = "challenge"


class NotProven(Exception):
    """The endpoint did not say yes; the text tells what it did, and what would be a yes."""


class Proof(msgspec.Struct, frozen=True):
    """The endpoint said yes, to at most ``per_minute`` requests a minute (None: to any number)."""

    per_minute: int | None = None


class _Echo(msgspec.Struct, forbid_unknown_fields=True):
    challenge: str


_echo = msgspec.json.Decoder(_Echo)


def missing(settings: Settings, url: str, proven_url: str | None) -> str | None:
    """Why nothing may be sent to the URL yet; None where it is proved, or need not be."""
    needed = settings.ownership_proof != Mode.OFF
    return REASON if needed and url != proven_url else None


def origin_headers(settings: Settings) -> Headers:
    """What the handshake asks with, and every later request carries too."""
    asks = settings.ownership_proof == Mode.OPTIONS
    return ((REQUEST_ORIGIN, settings.origin),) if asks else ()


def read_consent(headers: Headers, origin: str) -> Proof:
    """What the answer to OPTIONS permits ``origin``; NotProven when it is no consent."""
    allowed = _value(headers, ALLOWED_ORIGIN)
    if allowed is None:
        raise NotProven(f"its answer lacks {ALLOWED_ORIGIN}; give {origin} or {ANY}")
    if allowed.lower() not in (origin.lower(), ANY):
        raise NotProven(f"its {ALLOWED_ORIGIN} is {echo(allowed)}; give {origin} or {ANY}")
    return Proof(_read_rate(_value(headers, ALLOWED_RATE)))


def new_challenge() -> str:
    """43 random characters of URL-safe base64."""
    return secrets.token_urlsafe(CHALLENGE_BYTES)


def challenge_payload(challenge: str, now: datetime) -> bytes:
    """The body that asks, in the form that Standard Webhooks recommends."""
    at = now.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    payload = {"type": EVENT_TYPE, "timestamp": at, "data": {"challenge": challenge}}
    return json.dumps(payload, separators=(",", ":")).encode()


def read_echo(body: bytes, challenge: str) -> Proof:
    """The proof when the body is the challenge, or NotProven.

    A server that gives back all that it gets proves nothing: only ``{"challenge": "…"}`` or
    the bare text is a yes.
    """
    if not hmac.compare_digest(_echoed(body), challenge.encode()):
        raise NotProven(
            'its answer is not the challenge; give {"challenge": "…"}, or its text alone'
        )
    return Proof()


def _value(headers: Headers, name: str) -> str | None:
    """A header's value without blanks around it; NotProven when it is there more than once."""
    found = [value.strip(" \t") for key, value in headers if key.lower() == name.lower()]
    if len(found) > 1:
        raise NotProven(f"its answer has {name} {len(found)} times; give it once")
    return found[0] if found else None


def _read_rate(text: str | None) -> int | None:
    if text is None or text == ANY:
        return None
    if not RATE.fullmatch(text):
        raise NotProven(f"its {ALLOWED_RATE} is {echo(text)}; give requests a minute, or {ANY}")
    return int(text)


def _echoed(body: bytes) -> bytes:
    """What was given back, or nothing where it has neither form."""
    text = body.strip(b" \t\r\n")
    if len(text) > LONGEST_ECHO_BYTES:
        return b""
    if not text.startswith(b"{"):
        return text
    try:
        return _echo.decode(text).challenge.encode("utf-8", "replace")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return b""
