"""The network thread: takes claims, sends them, brings back their outcomes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from uuid import UUID

from webhooks import metrics
from webhooks.attempt import Claim, ErrorClass, Outcome
from webhooks.dispatcher.hands import Hands
from webhooks.sending import Sender, outcome
from webhooks.transports.base import Request, Response, Transport

WAIT_S = 0.05

log = logging.getLogger(__name__)


class Network:
    """Everything that is in flight, in one thread.

    ``sending_as`` answers the worker's id while it may send, else None; ``on_outcome``
    is called after each outcome. ``ticked`` is when the thread last went round
    (time.monotonic(), seconds).
    """

    def __init__(
        self,
        transport: Transport,
        sender: Sender,
        hands: Hands,
        sending_as: Callable[[], UUID | None],
        on_outcome: Callable[[], None],
    ) -> None:
        self.ticked = time.monotonic()
        self._transport = transport
        self._sender = sender
        self._hands = hands
        self._sending_as = sending_as
        self._on_outcome = on_outcome
        self._running = True
        self._thread = threading.Thread(target=self._run, name="network", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """There is something new to send."""
        self._transport.wake()

    def stop(self) -> None:
        """End soon, dropping what is in flight; ``join`` waits for it."""
        self._running = False
        self._transport.wake()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while self._running:
            try:
                self._start_waiting()
                for response in self._transport.wait(WAIT_S):
                    self._take_back(response)
            except Exception:  # the thread is the worker: whatever it is, it lives
                metrics.ERRORS.labels("network").inc()
                log.exception("network: an error that no single delivery explains")
                time.sleep(WAIT_S)
            self._tick()
        self._transport.close()

    def _start_waiting(self) -> None:
        while (worker_id := self._sending_as()) is not None:
            claim = self._hands.take(worker_id)
            if claim is None:
                return
            self._start(claim)

    def _start(self, claim: Claim) -> None:
        try:
            prepared = self._sender.prepare(claim, time.time)
            if isinstance(prepared, Request):
                self._transport.start(prepared)
                return
        except Exception as error:  # one bad row must not stop the others
            log.exception("delivery %s cannot be sent", claim.delivery_id)
            prepared = _internal("it could not be sent", error)
        self._finish(claim.delivery_id, prepared)

    def _take_back(self, response: Response) -> None:
        try:
            result = outcome(response)
        except Exception as error:  # one odd response must not cost its neighbours theirs
            log.exception("delivery %s: its response is odd", response.request.key)
            result = _internal("its response could not be understood", error)
        self._finish(response.request.key, result)

    def _finish(self, delivery_id: object, result: Outcome) -> None:
        assert isinstance(delivery_id, UUID)  # noqa: S101 - the key that _start gave
        self._hands.finish(delivery_id, result)
        self._on_outcome()

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self.ticked > WAIT_S:
            metrics.TICKED.set(now)
            self.ticked = now


def _internal(what: str, error: Exception) -> Outcome:
    now = time.monotonic()
    detail = f"{what}: {type(error).__name__}"
    return Outcome(ErrorClass.INTERNAL, detail=detail, started=now, finished=now)
