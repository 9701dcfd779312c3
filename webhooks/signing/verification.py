"""Verification of Standard Webhooks requests, for receivers. Hostile input raises one error."""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from webhooks.signing.keys import (
    PRIVATE_PREFIX,
    PUBLIC_PREFIX,
    SigningSecretError,
    decode_public,
    decode_secret,
)
from webhooks.signing.standard import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, sign_v1

TOLERANCE_S = 300
LONGEST_ID = 256
LONGEST_SIGNATURE_HEADER = 4096
TIMESTAMP = re.compile(r"[0-9]{1,12}", re.ASCII)
# The last digit of 64 bytes holds two bits; any other would be a second text for one signature.
SIGNATURE = re.compile(r"v1,[A-Za-z0-9+/]{43}=|v1a,[A-Za-z0-9+/]{85}[AQgw]==", re.ASCII)

# Whether a signature, ``v1,…`` or ``v1a,…``, is of this content.
Check = Callable[[str, bytes], bool]


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


def verify(
    secrets: Sequence[str],
    headers: Mapping[str, str],
    body: bytes,
    now: int,
    tolerance_s: int = TOLERANCE_S,
) -> None:
    """Accept a request signed with any of ``secrets``; SignatureError otherwise.

    ``secrets`` are ``whsec_…`` or, for v1a, public keys ``whpk_…``; ``body`` is the raw
    request body, ``now`` the receiver's clock in Unix seconds. Nothing that a sender can put
    into a request raises anything else.
    """
    checks = list(_checks(secrets))
    message_id = _header(headers, ID_HEADER, LONGEST_ID)
    timestamp = _header(headers, TIMESTAMP_HEADER, LONGEST_ID)
    signatures = _header(headers, SIGNATURE_HEADER, LONGEST_SIGNATURE_HEADER)
    _check_timestamp(timestamp, now, tolerance_s)
    content = b"%b.%b.%b" % (message_id.encode("utf-8", "replace"), timestamp.encode(), body)
    given = [part for part in signatures.split(" ") if SIGNATURE.fullmatch(part)]
    if not given:
        raise SignatureError(Step.SIGNATURE, f"{SIGNATURE_HEADER} holds no v1 or v1a signature")
    # All are compared: how long it takes does not tell which one matches.
    matches = [check(signature, content) for check in checks for signature in given]
    if not any(matches):
        raise SignatureError(
            Step.SIGNATURE, "no signature matches: another secret, or the body was changed"
        )


def _checks(secrets: Sequence[str]) -> Iterator[Check]:
    if not secrets:
        raise SignatureError(Step.SECRET, "no secret to verify with; configure one")
    for secret in secrets:
        try:
            yield _check_of(secret)
        except SigningSecretError as error:
            raise SignatureError(Step.SECRET, str(error)) from error


def _check_of(secret: str) -> Check:
    if secret.startswith(PRIVATE_PREFIX):
        raise SigningSecretError(f"verify with the public key, {PUBLIC_PREFIX}…")
    if secret.startswith(PUBLIC_PREFIX):
        public = Ed25519PublicKey.from_public_bytes(decode_public(secret))
        return lambda signature, content: _verifies(public, signature, content)
    key = decode_secret(secret)
    return lambda signature, content: hmac.compare_digest(sign_v1(key, content), signature)


def _verifies(key: Ed25519PublicKey, signature: str, content: bytes) -> bool:
    version, _, encoded = signature.partition(",")
    if version != "v1a":
        return False
    try:
        key.verify(base64.b64decode(encoded), content)
    except InvalidSignature:
        return False
    return True


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
