"""POST /retry-policies/preview, and a retry policy's ladder as answers show it."""

from __future__ import annotations

from typing import Any

import msgspec
from flask import Blueprint, Response

from webhooks.api import bodies
from webhooks.api.bodies import answer
from webhooks.api.operations import operation
from webhooks.api.problems import Problem
from webhooks.backoff import Policy, PolicyError, Rung, Source, ladder

blueprint = Blueprint("retry_policies", __name__)


class Ladder(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Every attempt that a policy allows, in seconds without jitter, which is a part of a wait."""

    attempts: int
    total_s: float
    jitter: float
    rungs: list[Rung]


class LadderInForce(Ladder, forbid_unknown_fields=True, kw_only=True):
    """A ladder, and whose policy it is that makes it."""

    source: Source


_policy = msgspec.json.Decoder(dict[str, Any])


@blueprint.post("/retry-policies/preview")
@operation(None, body=dict[str, Any], answer=Ladder)
def preview() -> Response:
    """The ladder of a policy that is nowhere stored."""
    given = bodies.read_struct(_policy)
    try:
        return answer(shown(Policy.parse(given)))
    except PolicyError as error:
        raise Problem.of_field(422, error.field, error.message) from error


def shown(policy: Policy) -> Ladder:
    """A policy's ladder as the API shows it."""
    rungs = ladder(policy)
    return Ladder(
        attempts=policy.attempts,
        total_s=rungs[-1].elapsed_s,
        jitter=policy.jitter,
        rungs=rungs,
    )


def in_force(policy: Policy, source: Source) -> LadderInForce:
    """The same of the policy that an endpoint's deliveries follow."""
    return LadderInForce(source=source, **msgspec.structs.asdict(shown(policy)))
