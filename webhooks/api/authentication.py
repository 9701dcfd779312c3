"""Who is asking: ``Authorization: Bearer whk_live_…``, and the tenant it acts for."""

from __future__ import annotations

from uuid import UUID

from flask import Flask, current_app, g, request
from sqlalchemy import select

from webhooks import keys, tenants
from webhooks.api.operations import Operation
from webhooks.api.problems import Problem
from webhooks.keys import Credential
from webhooks.models import Tenant, db
from webhooks.verified_keys import VerifiedKeys
from webhooks.web_database import psycopg_connection

LONGEST_KEY = 200


def authenticate() -> None:
    """Before each request: the API key's credential, or 401."""
    described = _operation()
    if request.method == "OPTIONS" or (described is not None and described.public):
        return
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    if not scheme:
        raise _unauthorized("send the header Authorization: Bearer whk_live_…", "")
    if scheme.lower() != "bearer":
        raise _unauthorized("use the scheme Bearer in the header Authorization", "")
    found = _verified(text.strip()) if len(text) <= LONGEST_KEY else None
    if found is None:
        raise _unauthorized(
            "the API key is unknown or revoked; check that it is complete",
            ', error="invalid_token"',
        )
    g.credential = found
    _check_scope(found)


def check_views(app: Flask, blueprint: str) -> None:
    """Every view of the blueprint says what it needs; RuntimeError names one that does not."""
    for name, view in app.view_functions.items():
        if name.startswith(f"{blueprint}.") and not hasattr(view, "operation"):
            raise RuntimeError(f"{name} lacks @operation: nobody could say who may call it")


def credential() -> Credential:
    """The credential of this request."""
    found: Credential = g.credential
    return found


def acting_tenant(named: str | None) -> UUID:
    """Id of the tenant that an event is for: the named one, else the key's own.

    Raises Problem: 403 for another tenant than the key's, 422 for an unknown one.
    """
    who = credential()
    if named is None or named == who.tenant_key:
        return who.tenant_id
    _refuse_foreign(who)
    with psycopg_connection() as connection:
        tenant_id = tenants.find_id(connection, named)
    if tenant_id is None:
        raise _unknown_tenant(named)
    return tenant_id


def tenant_to_change(named: str | None) -> Tenant:
    """The tenant that a new endpoint belongs to; raises Problem as ``acting_tenant`` does."""
    who = credential()
    if named is None or named == who.tenant_key:
        return db.session.scalars(select(Tenant).where(Tenant.id == who.tenant_id)).one()
    _refuse_foreign(who)
    tenant = tenants.find(named)
    if tenant is None:
        raise _unknown_tenant(named)
    return tenant


def tenant_to_read(named: str | None) -> UUID | None:
    """Whose rows a list shows: the named tenant's, else all that the key may see (None: all)."""
    return credential().only_tenant if named is None else tenant_to_change(named).id


def _verified(text: str) -> Credential | None:
    cache: VerifiedKeys = current_app.extensions["webhooks_verified_keys"]
    found, asked = cache.get(text), cache.clock()
    if found is None:
        found = keys.authenticate(text)
        if found is not None:
            cache.put(text, found, asked)
    return found


def _operation() -> Operation | None:
    """What the route of this request says of itself; None where there is no such route."""
    view = current_app.view_functions.get(request.endpoint or "")
    return getattr(view, "operation", None)


def _check_scope(who: Credential) -> None:
    needed = _operation()
    if needed is not None and needed.scope is not None and needed.scope not in who.scopes:
        raise Problem.of_field(
            403, "scope", f"this key lacks {needed.scope}; use one that has it, or admin"
        )


def require_all_tenants() -> None:
    """Problem 403 unless the key is bound to all tenants."""
    who = credential()
    if not who.all_tenants:
        raise Problem(403, f"this key acts for {who.tenant_key!r} only; use one of all tenants")


def _refuse_foreign(who: Credential) -> None:
    if not who.all_tenants:
        raise Problem.of_field(
            403, "tenant", f"this key acts for {who.tenant_key!r} only; leave tenant out"
        )


def _unknown_tenant(named: str) -> Problem:
    return Problem.of_field(422, "tenant", f"{named[:70]!r} does not exist; create it first")


def _unauthorized(detail: str, error: str) -> Problem:
    return Problem(401, detail, headers={"WWW-Authenticate": f'Bearer realm="webhooks"{error}'})
