"""HTTP message signatures (RFC 9421) over a digest of the body (RFC 9530)."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Sequence

from webhooks.signing.keys import Kind, Secret, decode_secret, private_key
from webhooks.signing.message import Headers, Message

CONTENT_TYPE = "application/json"
TAG = "webhook"
VALID_S = 300
COVERED = ("@method", "@target-uri", "content-type", "webhook-id", "content-digest")


class HttpSignature:
    """One signature for each key, ``sig1`` the newest's; covers method, target and body."""

    def __init__(self, keys: Sequence[tuple[str, Secret]]) -> None:
        self._keys = [(key_id, *signer(secret)) for key_id, secret in keys]

    def __call__(self, message: Message) -> Headers:
        digest = content_digest(message.body)
        inputs, signatures = [], []
        for n, (key_id, algorithm, sign) in enumerate(self._keys, 1):
            parameters = _parameters(key_id, algorithm, message.timestamp)
            base = signature_base(message.url, message.id, digest, parameters)
            inputs.append(f"sig{n}={parameters}")
            signatures.append(f"sig{n}=:{base64.b64encode(sign(base)).decode()}:")
        return (
            ("Content-Digest", digest),
            ("Signature-Input", ", ".join(inputs)),
            ("Signature", ", ".join(signatures)),
        )


def content_digest(body: bytes) -> str:
    """``sha-256=:…:``, as RFC 9530 writes it."""
    return f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"


def signature_base(url: str, message_id: str, digest: str, parameters: str) -> bytes:
    """What is signed (RFC 9421 section 2.5): a line for each component, no final line feed."""
    values = ("POST", url, CONTENT_TYPE, message_id, digest)
    lines = [f'"{name}": {value}' for name, value in zip(COVERED, values, strict=True)]
    return "\n".join([*lines, f'"@signature-params": {parameters}']).encode()


def _parameters(key_id: str, algorithm: str, created: int) -> str:
    names = " ".join(f'"{name}"' for name in COVERED)
    return (
        f'({names});created={created};keyid="{key_id}";alg="{algorithm}"'
        f';expires={created + VALID_S};tag="{TAG}"'
    )


def signer(secret: Secret) -> tuple[str, Callable[[bytes], bytes]]:
    if secret.kind is Kind.ED25519:
        return "ed25519", private_key(secret).sign
    key = decode_secret(secret.text)
    return "hmac-sha256", lambda base: hmac.digest(key, base, "sha256")
