"""The public keys of an endpoint, for whoever verifies its tokens: no sign-in, nothing secret."""

from __future__ import annotations

from flask import Blueprint, Response

from webhooks import endpoint_secrets, endpoints, ids, signing
from webhooks.api.bodies import answer
from webhooks.api.problems import not_found

blueprint = Blueprint("key_sets", __name__)


@blueprint.get("/.well-known/jwks/<endpoint_id>.json")
def key_set(endpoint_id: str) -> Response:
    """A JSON Web Key Set (RFC 7517): live keys, and those that ended within seven days."""
    try:
        found = endpoints.find(None, ids.decode(ids.ENDPOINT, endpoint_id))
    except ValueError:
        found = None
    if found is None:
        raise not_found("endpoint")
    keys = [
        (ids.encode(ids.SECRET, row.id), row.public_key)
        for row in endpoint_secrets.published(found.id)
        if row.public_key is not None
    ]
    headers = {"Cache-Control": f"public, max-age={signing.KEY_SET_MAX_AGE_S}"}
    shown = answer(signing.jwks(keys), headers=headers)
    shown.content_type = "application/jwk-set+json"
    return shown
