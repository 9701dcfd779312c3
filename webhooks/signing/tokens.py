"""JSON Web Tokens (RFC 7519, 8037) that name the message and the hash of its body.

Receivers read the public keys as a JSON Web Key Set (RFC 7517) and pin the algorithm.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from webhooks import ids
from webhooks.signing.keys import Secret, private_key
from webhooks.signing.message import Headers, Message

HEADER = "webhook-jwt"
ALGORITHM = "EdDSA"
VALID_S = 300
# How long a key set may be kept by whoever asked for it.
KEY_SET_MAX_AGE_S = 300
CLOCKS_APART_S = 60


class Jwt:
    """A token by the newest key that receivers can know by now, of ``(key id, secret)`` pairs,
    newest first. Not in Authorization: that one is the customer's own.
    """

    def __init__(self, keys: Sequence[tuple[str, Secret]], issuer: str) -> None:
        self._issuer = issuer
        self._keys = [
            (
                _published_at(key_id),
                _part({"alg": ALGORITHM, "kid": key_id, "typ": "JWT"}),
                private_key(secret),
            )
            for key_id, secret in keys
        ]

    def __call__(self, message: Message) -> Headers:
        claims = {
            "iss": self._issuer,
            "aud": message.url,
            "iat": message.timestamp,
            "exp": message.timestamp + VALID_S,
            "jti": message.id,
            "sha256": hashlib.sha256(message.body).hexdigest(),
        }
        known = (each for each in self._keys if each[0] <= message.timestamp)
        _, head, key = next(known, self._keys[-1])
        content = f"{head}.{_part(claims)}"
        return ((HEADER, f"{content}.{_base64url(key.sign(content.encode()))}"),)


def _published_at(key_id: str) -> float:
    """From when on no cache holds a key set without it (Unix seconds); an id tells when it was
    made, and one that is not ours, that it was long ago.
    """
    try:
        made_ms = ids.decode(ids.SECRET, key_id).int >> 80
    except ValueError:
        return 0.0
    return made_ms / 1000 + KEY_SET_MAX_AGE_S + CLOCKS_APART_S


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
