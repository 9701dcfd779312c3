"""Standard Webhooks signatures, scheme v1: HMAC-SHA256 over ``id.timestamp.body``.

Source: https://github.com/standard-webhooks/standard-webhooks (spec 1.0.0).
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

PREFIX = "whsec_"
KEY_BYTES = 32
FEWEST_KEY_BYTES = 24
MOST_KEY_BYTES = 64
TOLERANCE_S = 300

ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"

LONGEST_ID = 256
LONGEST_SIGNATURE_HEADER = 4096
TIMESTAMP = re.compile(r"[0-9]{1,12}", re.ASCII)
SIGNATURE = re.compile(r"v1,[A-Za-z0-9+/]{43}=", re.ASCII)


class SigningSecretError(ValueError):
    """A signing secret has the wrong form; the text says what is wrong and never shows it."""


class Step(StrEnum):
    """The step of a verification, in this order."""

    SECRET = "secret"  # noqa: S105 - a step's name
    HEADERS = "headers"
    TIMESTAMP = "timestamp"
    SIGNATURE = "signature"


class SignatureError(ValueError):
    """A request is not from the holder of the secret; ``step`` tells which check failed."""

    def __init__(self, step: Step, reason: str) -> None:
        super().__init__(f"{step}: {reason}")
        self.step = step
        self.reason = reason


def new_secret() -> str:
    """A fresh signing secret: ``whsec_`` and the base64 of 32 random bytes."""
    return PREFIX + base64.b64encode(os.urandom(KEY_BYTES)).decode()


def decode_secret(text: str) -> bytes:
    """The key in ``whsec_…``: 24 to 64 bytes; SigningSecretError names what is wrong."""
    if not text.startswith(PREFIX):
        raise SigningSecretError(f"a signing secret starts with {PREFIX}; give the whole secret")
    encoded = text[len(PREFIX) :]
    if "-" in encoded or "_" in encoded:
        raise SigningSecretError(
            "the signing secret is in URL-safe base64 (it holds - or _); "
            "give it in standard base64, with + and /"
        )
    try:
        key = base64.b64decode(encoded, validate=True)
    except ValueError as error:
        raise SigningSecretError(
            f"what follows {PREFIX} is not standard base64 with its padding; "
            "copy the secret again, without blanks"
        ) from error
    if not FEWEST_KEY_BYTES <= len(key) <= MOST_KEY_BYTES:
        raise SigningSecretError(
            f"the signing secret holds {len(key)} bytes; "
            f"give one of {FEWEST_KEY_BYTES} to {MOST_KEY_BYTES} bytes"
        )
    if base64.b64encode(key).decode() != encoded:
        raise SigningSecretError(
            f"what follows {PREFIX} is not the canonical base64 of its bytes; copy the secret again"
        )
    return key


def sign(secret_keys: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """The ``webhook-signature`` value: one ``v1,…`` for each key, in the order given.

    ``timestamp`` is the attempt's, in whole Unix seconds. ValueError when the id
    holds a dot (two messages could then share a signature) or no key is given.
    """
    if not secret_keys:
        raise ValueError("no signing key; give at least one")
    if "." in message_id:
        raise ValueError(f"message id {message_id[:60]!r} holds a dot; give one without")
    content = b"%b.%d.%b" % (message_id.encode("ascii"), timestamp, body)
    return " ".join(_signature(key, content) for key in secret_keys)


def verify(
    secrets: Sequence[str],
    headers: Mapping[str, str],
    body: bytes,
    now: int,
    tolerance_s: int = TOLERANCE_S,
) -> None:
    """Accept a request signed with any of ``secrets``; SignatureError otherwise.

    For receivers: ``body`` is the raw request body, ``now`` the receiver's clock in
    Unix seconds. Nothing that a sender can put into a request raises anything else.
    """
    keys = list(_keys(secrets))
    message_id = _header(headers, ID_HEADER, LONGEST_ID)
    timestamp = _header(headers, TIMESTAMP_HEADER, LONGEST_ID)
    signatures = _header(headers, SIGNATURE_HEADER, LONGEST_SIGNATURE_HEADER)
    _check_timestamp(timestamp, now, tolerance_s)
    content = b"%b.%b.%b" % (message_id.encode("utf-8", "replace"), timestamp.encode(), body)
    expected = [_signature(key, content) for key in keys]
    given = [part for part in signatures.split(" ") if SIGNATURE.fullmatch(part)]
    if not given:
        raise SignatureError(Step.SIGNATURE, f"{SIGNATURE_HEADER} holds no v1 signature")
    matches = [hmac.compare_digest(ours, theirs) for ours in expected for theirs in given]
    if not any(matches):
        raise SignatureError(
            Step.SIGNATURE, "no signature matches: another secret, or the body was changed"
        )


def _signature(key: bytes, content: bytes) -> str:
    digest = hmac.digest(key, content, "sha256")
    return "v1," + binascii.b2a_base64(digest, newline=False).decode()


def _keys(secrets: Sequence[str]) -> Iterator[bytes]:
    if not secrets:
        raise SignatureError(Step.SECRET, "no secret to verify with; configure one")
    for secret in secrets:
        try:
            yield decode_secret(secret)
        except SigningSecretError as error:
            raise SignatureError(Step.SECRET, str(error)) from error


def _header(headers: Mapping[str, str], name: str, longest: int) -> str:
    found = [value for key, value in headers.items() if str(key).lower() == name]
    if not found:
        raise SignatureError(Step.HEADERS, f"{name} is missing")
    if len(found) > 1:
        raise SignatureError(Step.HEADERS, f"{name} is there {len(found)} times")
    value = found[0]
    if not isinstance(value, str) or not 0 < len(value) <= longest:
        raise SignatureError(Step.HEADERS, f"{name} is not a text of 1 to {longest} characters")
    return value


def _check_timestamp(text: str, now: int, tolerance_s: int) -> None:
    if not TIMESTAMP.fullmatch(text):
        raise SignatureError(Step.TIMESTAMP, f"{TIMESTAMP_HEADER} is not whole Unix seconds")
    age = now - int(text)
    if abs(age) > tolerance_s:
        way = f"{age} s old" if age > 0 else f"{-age} s ahead"
        raise SignatureError(Step.TIMESTAMP, f"the request is {way}; {tolerance_s} s are allowed")
