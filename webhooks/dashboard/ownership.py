"""Ownership proof on an endpoint's page: what is missing, and the button that asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import abort, flash, redirect, url_for
from werkzeug.wrappers import Response

from webhooks import endpoints, ids, ownership, proofs
from webhooks.dashboard.site import Permission, blueprint, needs, row_id, settings, user
from webhooks.endpoints import EndpointError
from webhooks.ownership import Mode


@blueprint.app_template_global("unproven")
def unproven(endpoint: Mapping[str, Any]) -> str | None:
    """What its owner has to do before anything is sent to it; None: nothing."""
    if ownership.missing(settings(), endpoint["url"], endpoint["proven_url"]) is None:
        return None
    if settings().ownership_proof == Mode.OPTIONS:
        return (
            f"it answers OPTIONS with {ownership.ALLOWED_ORIGIN}: {settings().origin} "
            f"(or {ownership.ANY})"
        )
    return (
        f"it answers a signed POST of the type {ownership.EVENT_TYPE} with the challenge in it: "
        '{"challenge": "…"}'
    )


@blueprint.post("/endpoints/<text>/prove")
@needs(Permission.CHANGE)
def prove_endpoint(text: str) -> Response:
    """Ask the endpoint, and say what came of it."""
    endpoint = endpoints.find(None, row_id(ids.ENDPOINT, text)) or abort(404)
    try:
        proofs.prove(endpoint, actor=user().username)
    except EndpointError as error:
        flash(f"Nothing has changed: {error.message}.", "warning")
    else:
        flash(_outcome(endpoint.status, endpoint.status_reason))
    return redirect(url_for("dashboard.show_endpoint", text=text), 303)


def _outcome(status: str, reason: str | None) -> str:
    if status == "active":
        return "Proved. Deliveries that were held are on their way."
    return f"Proved. It is still {status}: {reason}."
