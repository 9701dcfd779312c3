"""GET /audit-log: who did what to which object."""

from __future__ import annotations

from typing import Any

import msgspec
from flask import Blueprint, Response, request
from sqlalchemy import Row, func, select

from webhooks.api import delivery_filters, pages
from webhooks.api.authentication import tenant_to_read
from webhooks.api.bodies import Timestamp, answer, rfc3339
from webhooks.api.operations import Parameter, operation
from webhooks.api.pages import Page
from webhooks.api.problems import Problem
from webhooks.models import AuditEntry, Tenant
from webhooks.scopes import Scope

LONGEST_WORD = 200

blueprint = Blueprint("audit_log", __name__)

PARAMETERS = (
    Parameter("action", "Those of this action, such as endpoint.update"),
    Parameter("object", "Those about this id"),
    Parameter("actor", "Those by this actor, as it is written"),
    Parameter("tenant", "Those of this tenant; for a key of all tenants"),
    Parameter("from", "At this time (RFC 3339) or later"),
    Parameter("to", "Before this time"),
)


class Entry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Who did what to which object. ``tenant`` null: it concerns the installation."""

    id: str
    at: Timestamp
    tenant: str | None
    actor: str
    action: str
    object: str
    detail: dict[str, Any]


@blueprint.get("/audit-log")
@operation(Scope.ADMIN, answer=Page[Entry], parameters=(*PARAMETERS, *pages.PARAMETERS))
def list_() -> Response:
    """Entries, newest first; they are never changed."""
    pages.check_parameters(*(each.name for each in PARAMETERS), "limit", "cursor")
    query = select(AuditEntry, Tenant.key).outerjoin(Tenant, Tenant.id == AuditEntry.tenant_id)
    tenant_id = tenant_to_read(request.args.get("tenant"))
    if tenant_id is not None:
        query = query.where(AuditEntry.tenant_id == tenant_id)
    for name in ("action", "object", "actor"):
        if (wanted := _word(name)) is not None:
            query = query.where(getattr(AuditEntry, name) == wanted)
    for name, condition in (("from", AuditEntry.id.__ge__), ("to", AuditEntry.id.__lt__)):
        at = delivery_filters.time_parameter(name)
        if at is not None:
            query = query.where(condition(func.webhooks.uuid7_floor(at)))
    with pages.search():
        return answer(pages.by_id(query, AuditEntry.id, _shown))


def _word(name: str) -> str | None:
    text = request.args.get(name)
    if text is not None and not (text.isprintable() and 0 < len(text) <= LONGEST_WORD):
        raise Problem.of_field(422, name, f"give 1 to {LONGEST_WORD} printable characters")
    return text


def _shown(row: Row[AuditEntry, str | None]) -> Entry:
    entry, tenant = row
    return Entry(
        id=str(entry.id),
        at=rfc3339(entry.at),
        tenant=tenant,
        actor=entry.actor,
        action=entry.action,
        object=entry.object,
        detail=entry.detail,
    )
