"""Verdicts: what an outcome means for its delivery, by its endpoint's retry policy."""

from __future__ import annotations

import logging
import random

from webhooks import backoff
from webhooks.attempt import Claim, Outcome
from webhooks.backoff import Policy
from webhooks.deliveries import Settlement

log = logging.getLogger(__name__)


def settlement(claim: Claim, outcome: Outcome, installation: Policy) -> Settlement:
    """The claim with its outcome, and how long to wait before the next try, if there is one."""
    if outcome.delivered:
        return Settlement(claim, outcome, None)
    jitter = random.uniform(-1, 1)  # noqa: S311 - jitter, not a secret
    policy = _policy(claim, installation)
    return Settlement(claim, outcome, backoff.delay(policy, claim.tries + 1, outcome, jitter))


def _policy(claim: Claim, installation: Policy) -> Policy:
    try:
        own = claim.target.retry_policy if claim.target is not None else None
        return installation if own is None else Policy.parse(own)
    except Exception as error:  # one odd endpoint must not stop the settling of others
        log.warning("endpoint %s: its retry policy cannot be read: %r", claim.endpoint_id, error)
        return installation
