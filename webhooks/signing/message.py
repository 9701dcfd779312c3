"""What is signed, and the shape of a signer."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

Headers = tuple[tuple[str, str], ...]


class Message(Struct, frozen=True, gc=False):
    """One attempt: ``timestamp`` in whole Unix seconds, ``body`` as it is sent."""

    id: str
    timestamp: int
    body: bytes
    url: str
    event_type: str


class Signs(Protocol):
    """A scheme with its keys."""

    def __call__(self, message: Message) -> Headers:
        """The headers that this scheme adds to the message."""
