"""The log's line of an attempt that failed: who, why, and where it was sent."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from webhooks import ids
from webhooks.deliveries import Settlement

log = logging.getLogger(__name__)


def failures(settlements: Iterable[Settlement]) -> None:
    """A line each at info, when the next try is included; nothing of one that was delivered."""
    if not log.isEnabledFor(logging.INFO):
        return
    for claim, outcome, delay in ((s.claim, s.outcome, s.delay) for s in settlements):
        if not outcome.delivered:
            log.info(
                "%s to %s failed: attempt %d, %s, status %s, peer %s, %s, next %s",
                ids.encode(ids.DELIVERY, claim.delivery_id),
                ids.encode(ids.ENDPOINT, claim.endpoint_id),
                claim.attempt,
                outcome.error,
                outcome.status_code or "none",
                outcome.peer or "none",
                f"{max(0.0, outcome.finished - outcome.started):.3f} s",
                "never" if delay is None else f"in {delay.total_seconds():.0f} s",
            )
