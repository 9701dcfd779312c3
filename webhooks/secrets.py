"""Secrets at rest: AES-256-GCM under a keyring, each bound to its row and column.

Format: ``v1:<key id>:<nonce>:<ciphertext>``, nonce and ciphertext in base64. The
associated data is ``table|tenant|row id|column|version``, so a ciphertext that was
moved to another row does not decrypt.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

VERSION = "v1"
KEY_BYTES = 32
NONCE_BYTES = 12
KEY_ID_CHARACTERS = 32
KEY_ID = re.compile(rf"[A-Za-z0-9_-]{{1,{KEY_ID_CHARACTERS}}}")


class KeyringError(ValueError):
    """The keyring is missing or malformed; the text never holds key material."""


class SecretError(ValueError):
    """A stored secret cannot be decrypted: it is damaged, or another row's."""


class UnknownKeyError(SecretError):
    """A stored secret was encrypted with a key that the keyring lacks: put it back, and it reads.

    ``key_id`` is that key's.
    """

    def __init__(self, place: Place, key_id: str) -> None:
        super().__init__(f"{place.table} {place.row_id}: no key {key_id!r} in the keyring")
        self.key_id = key_id


@dataclass(frozen=True, slots=True)
class Place:
    """Where a secret is stored; part of what its encryption authenticates."""

    table: str
    tenant_id: UUID
    row_id: UUID
    column: str

    def associated_data(self) -> bytes:
        return f"{self.table}|{self.tenant_id}|{self.row_id}|{self.column}|{VERSION}".encode()


class Keyring:
    """Named 32-byte keys; the first encrypts, all decrypt."""

    def __init__(self, keys: Sequence[tuple[str, bytes]]) -> None:
        if not keys:
            raise KeyringError("WEBHOOKS_KEYRING is not set; give id:base64 of 32 random bytes")
        self.current = keys[0][0]
        self._keys = dict(keys)
        self._ciphers = {key_id: AESGCM(key) for key_id, key in keys}

    @classmethod
    def parse(cls, text: str) -> Keyring:
        """Read ``id:base64`` entries split by commas, blanks or lines; KeyringError if wrong."""
        keys = [
            _parse_key(n, part)
            for n, part in enumerate(re.split(r"[\s,]+", text.strip()), 1)
            if part
        ]
        if len({key_id for key_id, _ in keys}) != len(keys):
            raise KeyringError("WEBHOOKS_KEYRING has the same key id twice; give each its own")
        return cls(keys)

    @staticmethod
    def generate(key_id: str | None = None) -> str:
        """A keyring with one new key, in the form that ``parse`` reads.

        Without an id it gets a random one, so that two keyrings are never mistaken.
        """
        key_id = key_id or f"k{os.urandom(4).hex()}"
        return f"{key_id}:{base64.b64encode(os.urandom(KEY_BYTES)).decode()}"

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The ids of all keys, the current one's first."""
        return tuple(self._keys)

    def encrypt(self, place: Place, plaintext: bytes) -> str:
        """Encrypt with the current key and a fresh random nonce."""
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._ciphers[self.current].encrypt(nonce, plaintext, place.associated_data())
        return f"{VERSION}:{self.current}:{_b64(nonce)}:{_b64(sealed)}"

    def decrypt(self, place: Place, stored: str) -> bytes:
        """Decrypt what ``encrypt`` wrote for the same place.

        Raises UnknownKeyError when its key is not in the keyring, SecretError when it is damaged.
        """
        key_id = key_id_of(stored)
        if key_id is not None and key_id not in self._ciphers:
            raise UnknownKeyError(place, key_id)
        try:
            _, _, nonce, sealed = stored.split(":")
            return self._ciphers[key_id or ""].decrypt(
                base64.b64decode(nonce, validate=True),
                base64.b64decode(sealed, validate=True),
                place.associated_data(),
            )
        except (InvalidTag, KeyError, ValueError) as error:
            raise SecretError(
                f"{place.table} {place.row_id}: the stored secret does not decrypt"
            ) from error

    def derive(self, purpose: str) -> list[bytes]:
        """32-byte keys for another purpose, one of each key, the current one's first."""
        return [
            HKDF(SHA256(), KEY_BYTES, salt=None, info=purpose.encode()).derive(key)
            for key in self._keys.values()
        ]


def key_id_of(stored: str) -> str | None:
    """The id of the key that a ciphertext names; None when it is no ciphertext of ours."""
    version, _, rest = stored.partition(":")
    key_id = rest.partition(":")[0]
    return key_id if version == VERSION and KEY_ID.fullmatch(key_id) else None


def _parse_key(number: int, part: str) -> tuple[str, bytes]:
    key_id, _, encoded = part.partition(":")
    try:
        key = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not KEY_ID.fullmatch(key_id) or len(key) != KEY_BYTES:
        raise KeyringError(
            f"WEBHOOKS_KEYRING entry {number}: give id:base64 of {KEY_BYTES} random bytes"
        )
    return key_id, key


def _b64(value: bytes) -> str:
    return base64.b64encode(value).decode()
