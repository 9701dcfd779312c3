"""Prover: asks an endpoint, here and now, whether it wants to be sent to.

By the same address policy, deadline and bounds as a delivery, but from the web process: the
one who asks waits for the answer.
"""

from __future__ import annotations

import threading
import time
from contextlib import closing
from datetime import UTC, datetime
from uuid import uuid4

from msgspec.structs import replace

from webhooks import ownership, sending
from webhooks.attempt import Claim, Outcome, Target
from webhooks.ownership import Mode, NotProven, Proof
from webhooks.secrets import Keyring
from webhooks.settings import Settings
from webhooks.transports.base import Request, Response
from webhooks.transports.threaded import ThreadsTransport

TIMEOUT_S = 10.0
# Each waits in a thread of the web process, which has 16 of them.
MOST_AT_ONCE = 4
GRACE_S = 1.0


class Prover:
    """Asks in the way that the installation wants. Any thread may call it."""

    def __init__(self, settings: Settings, keyring: Keyring) -> None:
        self._settings = settings
        self._sender = sending.Sender(settings, keyring)
        self._room = threading.BoundedSemaphore(MOST_AT_ONCE)

    def __call__(self, target: Target) -> Proof:
        """The endpoint's yes, within 10 s; NotProven tells what came instead."""
        if not self._room.acquire(blocking=False):
            raise NotProven("too many are being asked at this moment; try again in a few seconds")
        try:
            if self._settings.ownership_proof == Mode.OPTIONS:
                return self._shake_hands(target)
            return self._challenge(target)
        finally:
            self._room.release()

    def _shake_hands(self, target: Target) -> Proof:
        agent = ("User-Agent", sending.USER_AGENT)
        headers = (agent, *ownership.origin_headers(self._settings))
        request = self._request(target, b"{}")
        response = self._send(replace(request, method="OPTIONS", headers=headers, body=b""))
        return ownership.read_consent(response.headers, self._settings.origin)

    def _challenge(self, target: Target) -> Proof:
        challenge = ownership.new_challenge()
        payload = ownership.challenge_payload(challenge, datetime.now(UTC))
        response = self._send(self._request(target, payload))
        return ownership.read_echo(response.body, challenge)

    def _request(self, target: Target, payload: bytes) -> Request:
        """As the payload would be delivered."""
        claim = Claim(
            uuid4(), 0, target.tenant_id, uuid4(), target.endpoint_id, ownership.EVENT_TYPE,
            1, 0, 0, "proof", payload, target,
        )  # fmt: skip
        request = self._sender.prepare(claim, time.time)
        if isinstance(request, Outcome):
            raise NotProven(request.detail)
        return replace(request, timeout_s=min(request.timeout_s, TIMEOUT_S))

    def _send(self, request: Request) -> Response:
        """A 2xx answer; NotProven, in a delivery's words, when none came."""
        with closing(ThreadsTransport(self._settings)) as transport:
            transport.start(request)
            responses = transport.wait(request.timeout_s + GRACE_S)
        if not responses:
            raise NotProven("the answer did not come in time")
        outcome = sending.outcome(responses[0])
        if not outcome.delivered:
            raise NotProven(outcome.detail)
        return responses[0]
