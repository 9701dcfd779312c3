"""JSON Web Tokens (RFC 7519, 8037) that name the message and the hash of its body.

Receivers read the public keys as a JSON Web Key Set (RFC 7517) and pin the algorithm.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from typing import Any

from webhooks.signing.keys import Secret, private_key
from webhooks.signing.message import Headers, Message

HEADER = "webhook-jwt"
ALGORITHM = "EdDSA"
VALID_S = 300


class Jwt:
    """A token by the newest key. Not in Authorization: that one is the customer's own."""

    def __init__(self, key_id: str, secret: Secret, issuer: str) -> None:
        self._key = private_key(secret)
        self._issuer = issuer
        self._head = _part({"alg": ALGORITHM, "kid": key_id, "typ": "JWT"})

    def __call__(self, message: Message) -> Headers:
        claims = {
            "iss": self._issuer,
            "aud": message.url,
            "iat": message.timestamp,
            "exp": message.timestamp + VALID_S,
            "jti": message.id,
            "sha256": hashlib.sha256(message.body).hexdigest(),
        }
        content = f"{self._head}.{_part(claims)}"
        return ((HEADER, f"{content}.{_base64url(self._key.sign(content.encode()))}"),)


def jwks(public_keys: Iterable[tuple[str, bytes]]) -> dict[str, Any]:
    """The key set of ``(key id, 32 bytes)``, newest first."""
    return {
        "keys": [
            {"kty": "OKP", "crv": "Ed25519", "x": _base64url(key), "kid": key_id, "use": "sig",
             "alg": ALGORITHM}
            for key_id, key in public_keys
        ]
    }  # fmt: skip


def _part(value: dict[str, Any]) -> str:
    return _base64url(json.dumps(value, separators=(",", ":")).encode())


def _base64url(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
