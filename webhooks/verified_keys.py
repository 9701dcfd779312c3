"""API keys that this process has verified a moment ago, so that not every request asks anew.

A key that was revoked is refused everywhere at most KEPT_S later. What was refused is not
kept: a new key works at once.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass

from webhooks.keys import Credential

KEPT_S = 2.0
MOST_KEYS = 1_000
# Enough to tell keys apart; what tells them true is the comparison of the whole hash.
PREFIX_BYTES = 8


@dataclass(frozen=True, slots=True)
class _Entry:
    digest: bytes
    credential: Credential
    until: float


class VerifiedKeys:
    """At most MOST_KEYS credentials by their key, each for KEPT_S seconds from its check.

    Any thread may use it. Keys are kept as hashes only, and compared in constant time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._entries: dict[bytes, _Entry] = {}

    def get(self, text: str) -> Credential | None:
        """The credential of a key that was verified lately, or None: ask the database."""
        digest = _digest(text)
        entry = self._entries.get(digest[:PREFIX_BYTES])
        if entry is None or not hmac.compare_digest(entry.digest, digest):
            return None
        return entry.credential if self.clock() < entry.until else None

    def put(self, text: str, credential: Credential, asked: float) -> None:
        """Keep what the database said; ``asked``: when it was, by ``clock``."""
        digest = _digest(text)
        if len(self._entries) >= MOST_KEYS:
            self._entries = {}
        self._entries[digest[:PREFIX_BYTES]] = _Entry(digest, credential, asked + KEPT_S)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
