"""POST /retry-policies/preview, and a retry policy's ladder as answers show it."""

from __future__ import annotations

from typing import Any

import msgspec
from flask import Blueprint, Response

from webhooks.api import bodies
from webhooks.api.bodies import answer
from webhooks.api.operations import operation
from webhooks.api.problems import Problem
from webhooks.backoff import Policy, PolicyError, Source, ladder

blueprint = Blueprint("retry_policies", __name__)

_policy = msgspec.json.Decoder(dict[str, Any])


@blueprint.post("/retry-policies/preview")
@operation(None, body=dict[str, Any])
def preview() -> Response:
    """The ladder of a policy that is nowhere stored."""
    given = bodies.read_struct(_policy)
    try:
        return answer(shown(Policy.parse(given)))
    except PolicyError as error:
        raise Problem.of_field(422, error.field, error.message) from error


def shown(policy: Policy, source: Source | None = None) -> dict[str, Any]:
    """Its rungs in seconds, without jitter, and how large a part of a wait jitter is."""
    rungs = ladder(policy)
    whose = {} if source is None else {"source": source.value}
    return whose | {
        "attempts": policy.attempts,
        "total_s": rungs[-1].elapsed_s,
        "jitter": policy.jitter,
        "rungs": rungs,
    }
