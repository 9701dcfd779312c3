"""/endpoints/{id}/secrets: list, rotate, revoke; and the public keys for receivers."""

from __future__ import annotations

from typing import Literal

import msgspec
from flask import Blueprint, Response, current_app
from msgspec import UNSET, UnsetType

from webhooks import endpoint_secrets, ids, signing
from webhooks.api import bodies, endpoint_rows
from webhooks.api.authentication import credential
from webhooks.api.bodies import Timestamp, answer, rfc3339, timestamp
from webhooks.api.operations import operation
from webhooks.api.problems import Problem, not_found
from webhooks.endpoints import EndpointError
from webhooks.models import SigningSecret
from webhooks.scopes import Scope
from webhooks.secrets import SecretError

blueprint = Blueprint("endpoint_secrets", __name__)


class Rotation(msgspec.Struct, forbid_unknown_fields=True):
    """A new secret of ``kind`` or the customer's own; older ones of its kind overlap."""

    kind: str | None = None
    secret: str | None = None
    overlap_s: float | None = None


class ShownSecret(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A signing secret without its text; ``public_key``: of an ed25519 key, for receivers."""

    id: str
    kind: Literal["hmac", "ed25519", "text"]
    public_key: str | None
    created_at: Timestamp
    valid_until: Timestamp | None


class ShownSecrets(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """All live ones of an endpoint, newest first."""

    data: list[ShownSecret]


class MadeSecret(ShownSecret, forbid_unknown_fields=True, kw_only=True):
    """A secret that was added; ``secret``: its text if it was made here, shown this once."""

    secret: str | UnsetType = UNSET


class RevealedSecret(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``secret``: what the receiver verifies with; of an ed25519 key its public half."""

    id: str
    secret: str


_rotation = msgspec.json.Decoder(Rotation)


@blueprint.get("/endpoints/<endpoint_id>/secrets")
@operation(Scope.ENDPOINTS_READ, answer=ShownSecrets)
def list_(endpoint_id: str) -> Response:
    """The live secrets, newest first, without their texts."""
    rows = endpoint_secrets.live(endpoint_rows.find(endpoint_id).id)
    return answer(ShownSecrets(data=[_shown(row) for row in rows]))


@blueprint.post("/endpoints/<endpoint_id>/secrets")
@operation(Scope.ENDPOINTS_WRITE, body=Rotation, answer=MadeSecret, status=201)
def rotate(endpoint_id: str) -> Response:
    """Add a secret. The answer alone shows one that was made here."""
    endpoint = endpoint_rows.find(endpoint_id)
    fields = msgspec.structs.asdict(bodies.read_struct(_rotation))
    keyring = current_app.extensions["webhooks_keyring"]
    try:
        row, text = endpoint_secrets.rotate(endpoint, keyring, actor=credential().actor, **fields)
    except EndpointError as error:
        raise Problem.of_field(422, error.field, error.message) from error
    fields = msgspec.structs.asdict(_shown(row))
    return answer(MadeSecret(**fields, secret=UNSET if text is None else text), 201)


@blueprint.post("/endpoints/<endpoint_id>/secrets/<secret_id>/reveal")
@operation(Scope.SECRETS_READ, answer=RevealedSecret)
def reveal(endpoint_id: str, secret_id: str) -> Response:
    """A live secret's text, for the receiver; written down in the audit log."""
    endpoint = endpoint_rows.find(endpoint_id)
    keyring = current_app.extensions["webhooks_keyring"]
    try:
        row_id = ids.decode(ids.SECRET, secret_id)
        text = endpoint_secrets.reveal(endpoint, keyring, row_id, actor=credential().actor)
    except SecretError as error:
        raise Problem(409, f"it cannot be decrypted: {error}") from error
    except ValueError:
        text = None
    if text is None:
        raise not_found("live secret")
    return answer(RevealedSecret(id=secret_id, secret=text))


@blueprint.delete("/endpoints/<endpoint_id>/secrets/<secret_id>")
@operation(Scope.ENDPOINTS_WRITE, status=204)
def revoke(endpoint_id: str, secret_id: str) -> tuple[str, int]:
    """End a secret at once."""
    endpoint = endpoint_rows.find(endpoint_id)
    try:
        row_id = ids.decode(ids.SECRET, secret_id)
        found = endpoint_secrets.revoke(endpoint, row_id, actor=credential().actor)
    except EndpointError as error:
        raise Problem.of_field(422, error.field, error.message) from error
    except ValueError:
        found = False
    if not found:
        raise not_found("live secret")
    return "", 204


def _shown(row: SigningSecret) -> ShownSecret:
    return ShownSecret(
        id=ids.encode(ids.SECRET, row.id),
        kind=row.kind,  # type: ignore[arg-type]
        public_key=None if row.public_key is None else signing.show_public(row.public_key),
        created_at=rfc3339(row.created_at),
        valid_until=timestamp(row.valid_until),
    )
