"""Signing secrets: their kinds, their text forms, and what is refused."""

from __future__ import annotations

import base64
import os
from enum import StrEnum

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct

PREFIX = "whsec_"
PRIVATE_PREFIX = "whsk_"
PUBLIC_PREFIX = "whpk_"
KEY_BYTES = 32
FEWEST_KEY_BYTES = 24
MOST_KEY_BYTES = 64
SEED_BYTES = 32
SHORTEST_TEXT = 8
LONGEST_TEXT = 256


class SigningSecretError(ValueError):
    """A signing secret has the wrong form; the text says what is wrong and never shows it."""


class Kind(StrEnum):
    """HMAC: shared, ``whsec_…`` · ED25519: a key pair, ``whsk_…`` · TEXT: any text, for the
    schemes of GitHub, Stripe, Shopify and Slack."""

    HMAC = "hmac"
    ED25519 = "ed25519"
    TEXT = "text"


class Secret(Struct, frozen=True, gc=False):
    """A secret that passed the rules. ``public``: the 32 bytes that receivers verify with."""

    kind: Kind
    text: str
    public: bytes | None = None


def new_secret(kind: Kind = Kind.HMAC) -> str:
    """A fresh secret of 32 random bytes, in the text form of its kind."""
    seed = os.urandom(KEY_BYTES)
    if kind is Kind.ED25519:
        return PRIVATE_PREFIX + _base64(seed + _public_of(seed))
    return PREFIX + _base64(seed)


def import_secret(text: str) -> Secret:
    """A customer's own secret; SigningSecretError names what is wrong."""
    if text.startswith(PRIVATE_PREFIX):
        return Secret(Kind.ED25519, text, _public_of(decode_seed(text)))
    if text.startswith(PREFIX):
        decode_secret(text)
        return Secret(Kind.HMAC, text)
    _check_text(text)
    return Secret(Kind.TEXT, text)


def decode_secret(text: str) -> bytes:
    """The key in ``whsec_…``: 24 to 64 bytes; SigningSecretError names what is wrong."""
    key = _decode(PREFIX, text)
    if not FEWEST_KEY_BYTES <= len(key) <= MOST_KEY_BYTES:
        raise SigningSecretError(
            f"the signing secret holds {len(key)} bytes; "
            f"give one of {FEWEST_KEY_BYTES} to {MOST_KEY_BYTES} bytes"
        )
    return key


def decode_seed(text: str) -> bytes:
    """The 32-byte seed in ``whsk_…``, alone or followed by its public half."""
    key = _decode(PRIVATE_PREFIX, text)
    seed, public = key[:SEED_BYTES], key[SEED_BYTES:]
    if len(seed) != SEED_BYTES or len(public) not in (0, SEED_BYTES):
        raise SigningSecretError(
            f"the private key holds {len(key)} bytes; give the seed of {SEED_BYTES}, "
            "or the seed and the public key"
        )
    if public and public != _public_of(seed):
        raise SigningSecretError("the second half of the private key is not its public key")
    return seed


def decode_public(text: str) -> bytes:
    """The 32 bytes in ``whpk_…``; SigningSecretError names what is wrong."""
    key = _decode(PUBLIC_PREFIX, text)
    if len(key) != SEED_BYTES:
        raise SigningSecretError(
            f"the public key holds {len(key)} bytes; give one of {SEED_BYTES} bytes"
        )
    return key


def private_key(secret: Secret) -> Ed25519PrivateKey:
    """What an ed25519 secret signs with."""
    return Ed25519PrivateKey.from_private_bytes(decode_seed(secret.text))


def show_public(key: bytes) -> str:
    """``whpk_…``, as receivers get it."""
    return PUBLIC_PREFIX + _base64(key)


def _decode(prefix: str, text: str) -> bytes:
    if not text.startswith(prefix):
        raise SigningSecretError(f"a signing secret starts with {prefix}; give the whole secret")
    encoded = text[len(prefix) :]
    if "-" in encoded or "_" in encoded:
        raise SigningSecretError(
            "the signing secret is in URL-safe base64 (it holds - or _); "
            "give it in standard base64, with + and /"
        )
    try:
        key = base64.b64decode(encoded, validate=True)
    except ValueError as error:
        raise SigningSecretError(
            f"what follows {prefix} is not standard base64 with its padding; "
            "copy the secret again, without blanks"
        ) from error
    if _base64(key) != encoded:
        raise SigningSecretError(
            f"what follows {prefix} is not the canonical base64 of its bytes; copy the secret again"
        )
    return key


def _check_text(text: str) -> None:
    if text.startswith(("v1,", "v1a,")):
        raise SigningSecretError(f"leave out what stands before {PREFIX} or {PRIVATE_PREFIX}")
    if text.startswith(PUBLIC_PREFIX):
        raise SigningSecretError(f"that is a public key; give the private one, {PRIVATE_PREFIX}…")
    if not text.isprintable() or text != text.strip():
        raise SigningSecretError("the secret holds blanks at its ends or control characters")
    size = len(text.encode("utf-8", "replace"))
    if not SHORTEST_TEXT <= size <= LONGEST_TEXT:
        raise SigningSecretError(
            f"the secret has {size} bytes; give {SHORTEST_TEXT} to {LONGEST_TEXT}"
        )


def _public_of(seed: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
