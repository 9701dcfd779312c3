"""/deliveries/{id}/attempts: every try, each with what was sent and what came back."""

from __future__ import annotations

from uuid import UUID

from flask import Blueprint, Response, request

from webhooks.api import attempts, deliveries, pages
from webhooks.api.attempts import Attempt
from webhooks.api.bodies import answer
from webhooks.api.operations import operation
from webhooks.api.pages import Page
from webhooks.api.problems import not_found
from webhooks.db import FOREVER
from webhooks.scopes import Scope

DIGITS = 10

blueprint = Blueprint("delivery_attempts", __name__)


@blueprint.get("/deliveries/<delivery_id>/attempts")
@operation(Scope.DELIVERIES_READ, answer=Page[Attempt], parameters=pages.PARAMETERS)
def list_(delivery_id: str) -> Response:
    """A delivery's attempts, newest first."""
    pages.check_parameters("limit", "cursor")
    row = deliveries.find(deliveries.decoded(delivery_id))
    size, context = pages.limit(), pages.context_of(request.path)
    begins = pages.cursor(context)
    number = attempts.BEYOND if begins.place is None else begins.place[1].int
    read = attempts.following if begins.backwards else attempts.newest
    return answer(
        pages.page(
            read(row["id"], size + 1, number),
            size,
            lambda found: (FOREVER, UUID(int=found["number"])),
            attempts.shown,
            begins,
            context,
        )
    )


@blueprint.get("/deliveries/<delivery_id>/attempts/<number>")
@operation(Scope.DELIVERIES_READ, answer=Attempt)
def read(delivery_id: str, number: str) -> Response:
    """One attempt, by its number from 1 on."""
    row = deliveries.find(deliveries.decoded(delivery_id))
    readable = number.isascii() and number.isdigit() and len(number) < DIGITS
    found = attempts.one(row["id"], int(number)) if readable else None
    if found is None:
        raise not_found("attempt")
    return answer(attempts.shown(found))
