"""An endpoint's signing secrets: which are live, a new one, the end of one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from flask import abort, current_app, flash, make_response, redirect, request, url_for
from werkzeug.wrappers import Response

from webhooks import endpoint_secrets, endpoints, ids, missing_keys, signing
from webhooks.dashboard.live import page
from webhooks.dashboard.site import Permission, blueprint, needs, row_id, user
from webhooks.db import FOREVER
from webhooks.endpoints import EndpointError
from webhooks.models import Endpoint, SigningSecret
from webhooks.signing import Kind, Scheme

# For how long the older secrets go on signing; the value is seconds.
OVERLAPS = {
    "86400": "a day",
    "3600": "an hour",
    "604800": "7 days",
    "0": "not at all: revoke them now",
}
KINDS = {
    Kind.HMAC.value: "Shared secret (whsec_…)",
    Kind.ED25519.value: "Key pair (ed25519): the receiver gets the public half",
}

KIND_NAMES = {
    Kind.HMAC: "Shared secret",
    Kind.ED25519: "Key pair",
    Kind.TEXT: "Text of your own",
}
SCHEMES = {
    Scheme.STANDARD.value: "Standard Webhooks",
    Scheme.SVIX.value: "Svix",
    Scheme.GITHUB.value: "GitHub",
    Scheme.STRIPE.value: "Stripe",
    Scheme.SHOPIFY.value: "Shopify",
    Scheme.SLACK.value: "Slack",
    Scheme.RFC9421.value: "HTTP message signature",
    Scheme.JWT.value: "JSON Web Token",
}


@blueprint.app_template_filter("scheme_name")
def scheme_name(scheme: str) -> str:
    """A signing scheme as people call it."""
    return SCHEMES.get(scheme, scheme)


@blueprint.app_template_filter("secret_kind")
def secret_kind(kind: str) -> str:
    """A signing secret's kind in words."""
    return KIND_NAMES[Kind(kind)]


@blueprint.app_template_filter("ends_at")
def ends_at(secret: SigningSecret) -> datetime | None:
    """When it stops signing; None: it does not."""
    return None if secret.valid_until == FOREVER else secret.valid_until


@blueprint.app_template_filter("public_key")
def public_key(key: bytes) -> str:
    """As receivers get it: ``whpk_…``."""
    return signing.show_public(key)


@blueprint.app_template_global("signing_secrets")
def signing_secrets(endpoint_id: UUID) -> list[SigningSecret]:
    """The live ones, newest first."""
    return list(endpoint_secrets.live(endpoint_id))


@blueprint.app_template_global("missing_key")
def missing_key(endpoint: Mapping[str, Any]) -> str | None:
    """Why the deliveries of a row of ``queries.endpoint`` wait for a key; None: they do not."""
    return missing_keys.explain(
        current_app.extensions["webhooks_keyring"],
        endpoint["schemes"],
        endpoint["signed_with"],
        endpoint["sealed_headers"],
    )


@blueprint.get("/endpoints/<text>/secrets/new")
@needs(Permission.READ_SECRETS)
def new_secret(text: str) -> Response:
    """The form to rotate."""
    return _form(_find(text), {"kind": Kind.HMAC.value, "overlap_s": "86400"}, {})


@blueprint.post("/endpoints/<text>/secrets")
@needs(Permission.READ_SECRETS)
def rotate_secret(text: str) -> Response:
    """Add a secret, and show it in this answer only."""
    endpoint, values = _find(text), request.form.to_dict()
    own = values.get("secret", "").strip() or None
    try:
        row, secret = endpoint_secrets.rotate(
            endpoint,
            current_app.extensions["webhooks_keyring"],
            actor=user().username,
            kind=None if own else values.get("kind"),
            secret=own,
            overlap_s=_seconds(values.get("overlap_s", "")),
        )
    except EndpointError as error:
        # What was typed is a secret: it does not come back with the form.
        values.pop("secret", None)
        return make_response(_form(endpoint, values, {error.field: error.message}), 422)
    shown = page("endpoint_secret_created.html", endpoint=endpoint, row=row, secret=secret)
    return make_response(shown, 201)


@blueprint.get("/endpoints/<text>/secrets/<secret>/revoke")
@needs(Permission.READ_SECRETS)
def confirm_revocation(text: str, secret: str) -> Response:
    """Say what a revocation means."""
    endpoint, secret_id = _find(text), row_id(ids.SECRET, secret)
    rows = endpoint_secrets.live(endpoint.id)
    row = next((each for each in rows if each.id == secret_id), None) or abort(404)
    others = sum(1 for each in rows if each is not row and ends_at(each) is None)
    return page("endpoint_secret_revoke.html", endpoint=endpoint, row=row, others=others)


@blueprint.post("/endpoints/<text>/secrets/<secret>/revoke")
@needs(Permission.READ_SECRETS)
def revoke_secret(text: str, secret: str) -> Response:
    """End a secret now."""
    endpoint = _find(text)
    try:
        ended = endpoint_secrets.revoke(endpoint, row_id(ids.SECRET, secret), actor=user().username)
    except EndpointError as error:
        flash(f"Not revoked: {error.message}", "warning")
    else:
        flash("Revoked. Nothing is signed with it any more." if ended else "It had ended already.")
    return redirect(url_for("dashboard.show_endpoint", text=text), 303)


def _find(text: str) -> Endpoint:
    return endpoints.find(None, row_id(ids.ENDPOINT, text)) or abort(404)


def _seconds(text: str) -> float | None:
    if text not in OVERLAPS:
        raise EndpointError("overlap_s", "choose one of the list")
    return float(text)


def _form(endpoint: Endpoint, values: dict[str, str], errors: dict[str, str]) -> Response:
    return page(
        "endpoint_secret_form.html",
        endpoint=endpoint,
        values=values,
        errors=errors,
        kinds=KINDS,
        overlaps=OVERLAPS,
    )
