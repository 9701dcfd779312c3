"""/api-keys: make, list, rotate and revoke API keys. A key's text is in the answer that makes it,
and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec
from flask import Blueprint, Response, request, url_for
from sqlalchemy import select
from sqlalchemy.orm import joinedload

from webhooks import ids, keys
from webhooks.api import bodies, pages
from webhooks.api.authentication import (
    credential,
    require_all_tenants,
    tenant_to_change,
    tenant_to_read,
)
from webhooks.api.bodies import Timestamp, answer, rfc3339, timestamp
from webhooks.api.operations import Parameter, operation
from webhooks.api.pages import Page
from webhooks.api.problems import Problem, not_found
from webhooks.keys import ApiKeyError
from webhooks.models import ApiKey
from webhooks.models import db as database
from webhooks.scopes import Scope

T = TypeVar("T")

blueprint = Blueprint("api_keys", __name__)


class NewKey(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A key to make, of the tenant named (the caller's own unless given), or of all tenants."""

    name: str
    scopes: list[str]
    tenant: str | None = None
    all_tenants: bool = False
    expires_in_s: float | None = None


class KeyRotation(msgspec.Struct, forbid_unknown_fields=True):
    """For how long the old key goes on: 0 to 604,800 seconds, a day unless given."""

    overlap_s: float | None = None


class ShownKey(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A key without its secret; ``tenant`` null: of all tenants."""

    id: str
    name: str
    tenant: str | None
    scopes: list[Scope]
    begins: str
    last_four: str
    created_at: Timestamp
    created_by: str
    expires_at: Timestamp | None
    last_used_at: Timestamp | None
    revoked_at: Timestamp | None


class MadeKey(ShownKey, forbid_unknown_fields=True, kw_only=True):
    """A key that was made now: ``key`` is its text, shown this once."""

    key: str


_new = msgspec.json.Decoder(NewKey)
_rotation = msgspec.json.Decoder(KeyRotation)


@blueprint.post("/api-keys")
@operation(Scope.ADMIN, body=NewKey, answer=MadeKey, status=201)
def create() -> Response:
    """Make a key. The answer alone shows it."""
    wanted = bodies.read_struct(_new)
    tenant = None
    if wanted.all_tenants:
        require_all_tenants()
        if wanted.tenant is not None:
            raise Problem.of_field(422, "tenant", "leave it out, or all_tenants")
    else:
        tenant = tenant_to_change(wanted.tenant)
    made = _or_problem(
        lambda: keys.create(
            wanted.name, tenant, scopes=wanted.scopes, expires_in_s=wanted.expires_in_s,
            actor=credential().actor,
        )
    )  # fmt: skip
    return _made(*made)


@blueprint.get("/api-keys")
@operation(
    Scope.ADMIN,
    answer=Page[ShownKey],
    parameters=(Parameter("tenant", "Keys of this tenant alone"), *pages.PARAMETERS),
)
def list_() -> Response:
    """Keys, those that have ended too, newest first."""
    pages.check_parameters("tenant", "limit", "cursor")
    tenant_id = tenant_to_read(request.args.get("tenant"))
    query = select(ApiKey).options(joinedload(ApiKey.tenant))
    if tenant_id is not None:
        query = query.where(ApiKey.tenant_id == tenant_id)
    return answer(pages.by_id(query, ApiKey.id, lambda row: _shown(row[0])))


@blueprint.get("/api-keys/<key_id>")
@operation(Scope.ADMIN, answer=ShownKey)
def read(key_id: str) -> Response:
    """One key."""
    return answer(_shown(_find(key_id)))


@blueprint.post("/api-keys/<key_id>/rotate")
@operation(Scope.ADMIN, body=KeyRotation, answer=MadeKey, status=201)
def rotate(key_id: str) -> Response:
    """A new key that may do the same; the old one ends after the overlap."""
    key, wanted = _find(key_id), bodies.read_struct(_rotation)
    actor = credential().actor
    return _made(*_or_problem(lambda: keys.rotate(key, overlap_s=wanted.overlap_s, actor=actor)))


@blueprint.delete("/api-keys/<key_id>")
@operation(Scope.ADMIN, status=204)
def revoke(key_id: str) -> tuple[str, int]:
    """Refuse a key from now on, everywhere within two seconds; 409 for the last that may manage
    keys of all tenants.
    """
    try:
        keys.revoke(_find(key_id), actor=credential().actor, keep_one=True)
    except keys.LastKey as error:
        database.session.rollback()
        raise Problem(409, str(error)) from error
    return "", 204


def _find(key_id: str) -> ApiKey:
    """The caller's key of this public id; Problem 404 when there is none."""
    only = credential().only_tenant
    found = keys.find(key_id) if key_id.startswith(f"{ids.API_KEY}_") else None
    if found is None or (only is not None and found.tenant_id != only):
        raise not_found("API key")
    return found


def _or_problem(work: Callable[[], T]) -> T:
    try:
        return work()
    except ApiKeyError as error:
        raise Problem.of_field(422, error.field, error.message) from error


def _made(key: ApiKey, text: str) -> Response:
    shown = _shown(key)
    fields = {name: getattr(shown, name) for name in shown.__struct_fields__}
    location = url_for(".read", key_id=shown.id)
    return answer(MadeKey(**fields, key=text), 201, {"Location": location})


def _shown(key: ApiKey) -> ShownKey:
    return ShownKey(
        id=ids.encode(ids.API_KEY, key.id),
        name=key.name,
        tenant=key.tenant.key if key.tenant else None,
        scopes=[Scope(scope) for scope in key.scopes],
        begins=f"{keys.PREFIX}{key.public_id}_",
        last_four=key.last_four,
        created_at=rfc3339(key.created_at),
        created_by=key.created_by,
        expires_at=timestamp(key.expires_at),
        last_used_at=timestamp(key.last_used_at),
        revoked_at=timestamp(key.revoked_at),
    )
