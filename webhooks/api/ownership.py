"""POST /endpoints/{id}/prove: ask an endpoint whether it wants to be sent to."""

from __future__ import annotations

from flask import Blueprint, Response

from webhooks import proofs
from webhooks.api import bodies, endpoint_rows
from webhooks.api.authentication import credential
from webhooks.api.endpoint_rows import ShownEndpoint
from webhooks.api.operations import operation
from webhooks.api.problems import Problem
from webhooks.endpoints import EndpointError
from webhooks.proofs import TooSoon
from webhooks.scopes import Scope

blueprint = Blueprint("ownership", __name__)


@blueprint.post("/endpoints/<endpoint_id>/prove")
@operation(Scope.ENDPOINTS_WRITE, answer=ShownEndpoint)
def prove(endpoint_id: str) -> Response:
    """The endpoint, proved; 422 with what it answered instead, 429 when it was asked too lately."""
    endpoint = endpoint_rows.find(endpoint_id)
    row_id = endpoint.id
    try:
        proofs.prove(endpoint, actor=credential().actor)
    except TooSoon as error:
        raise Problem(429, str(error), headers={"Retry-After": str(error.wait_s)}) from error
    except EndpointError as error:
        raise Problem.of_field(422, error.field, error.message) from error
    return bodies.answer(endpoint_rows.shown(endpoint_rows.read(row_id)))
