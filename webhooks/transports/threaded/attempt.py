"""What one attempt may use, and what was seen of it, for the connections of its thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from webhooks.addresses import Url
from webhooks.transports.base import Request
from webhooks.transports.head import Head
from webhooks.transports.proxy import Proxy
from webhooks.transports.threaded.watchdog import Watch

_local = threading.local()


class Attempt:
    """What one attempt may use, and what was seen of it. Readings are time.monotonic()'s."""

    def __init__(
        self, request: Request, url: Url, target: str, addresses: tuple[str, ...],
        allows: Callable[[str], bool], started: float, watch: Watch, proxy: Proxy | None = None,
    ) -> None:  # fmt: skip
        self.proxy = proxy
        self.request, self.addresses = request, addresses
        self.url, self.target = url, target
        self.allows, self.started, self.watch = allows, started, watch
        self.head = Head()
        self.peer: str | None = None
        self.fresh = self.reused = False
        # More came than the response: its connection must not be used again.
        self.excess = False
        self.connected_at: float | None = None
        self.secured_at: float | None = None
        self.first_byte_at: float | None = None
        self.handshaking = False

    @property
    def due(self) -> float:
        return self.started + self.request.timeout_s

    def left_s(self, due: float) -> float:
        """Seconds left until ``due``, some at least: 0 would mean not to block."""
        return max(0.001, due - time.monotonic())

    def again(self) -> None:
        """Forget the response; the next try goes out on a new connection."""
        self.fresh, self.reused = True, False
        self.head.reset()


@contextmanager
def attempting(attempt: Attempt) -> Iterator[None]:
    """Let the connections that this thread uses know what they are used for."""
    _local.attempt = attempt
    try:
        yield
    finally:
        del _local.attempt


def current() -> Attempt:
    """The attempt that this thread is at; urllib3 makes and reuses connections by itself."""
    attempt: Attempt = _local.attempt
    return attempt
