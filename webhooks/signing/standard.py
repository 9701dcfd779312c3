"""Standard Webhooks signatures: v1 (HMAC-SHA256) and v1a (ed25519) over ``id.timestamp.body``.

Source: https://github.com/standard-webhooks/standard-webhooks (spec 1.0.0).
"""

from __future__ import annotations

import binascii
import hmac
from collections.abc import Callable, Sequence
from functools import partial

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from webhooks.signing.keys import Kind, Secret, decode_secret, private_key
from webhooks.signing.message import Headers, Message

ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"

Sign = Callable[[bytes], str]


class Standard:
    """Signs with every key, newest first, in one header."""

    NAMES = (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER)

    def __init__(self, secrets: Sequence[Secret]) -> None:
        self._signs = [signer(secret) for secret in secrets]

    def __call__(self, message: Message) -> Headers:
        content = content_of(message.id, message.timestamp, message.body)
        id_name, timestamp_name, signature_name = self.NAMES
        return (
            (id_name, message.id),
            (timestamp_name, str(message.timestamp)),
            (signature_name, " ".join([sign(content) for sign in self._signs])),
        )


class Svix(Standard):
    """The same under the names that receivers of Svix look for."""

    NAMES = ("svix-id", "svix-timestamp", "svix-signature")


def signer(secret: Secret) -> Sign:
    """What signs content with this key, as ``v1,…`` or ``v1a,…``."""
    if secret.kind is Kind.ED25519:
        return partial(sign_v1a, private_key(secret))
    return partial(sign_v1, decode_secret(secret.text))


def content_of(message_id: str, timestamp: int, body: bytes) -> bytes:
    """What is signed. ValueError when the id holds a dot: two messages could share it."""
    if "." in message_id:
        raise ValueError(f"message id {message_id[:60]!r} holds a dot; give one without")
    return b"%b.%d.%b" % (message_id.encode("ascii"), timestamp, body)


def sign_v1(key: bytes, content: bytes) -> str:
    """``v1,`` and the base64 of the HMAC, 44 characters with its padding."""
    digest = hmac.digest(key, content, "sha256")
    return "v1," + binascii.b2a_base64(digest, newline=False).decode()


def sign_v1a(key: Ed25519PrivateKey, content: bytes) -> str:
    """``v1a,`` and the base64 of the 64-byte signature."""
    return "v1a," + binascii.b2a_base64(key.sign(content), newline=False).decode()
