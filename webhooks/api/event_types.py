"""/event-types: what a tenant's events look like."""

from __future__ import annotations

from typing import Any

import msgspec
from flask import Blueprint, Response, request, url_for
from msgspec import UNSET, UnsetType
from sqlalchemy import select

from webhooks import event_types, ids
from webhooks.api import bodies, pages
from webhooks.api.authentication import credential, tenant_to_change
from webhooks.api.bodies import Timestamp, answer, rfc3339, timestamp
from webhooks.api.operations import Parameter, operation
from webhooks.api.pages import Page
from webhooks.api.problems import Problem, not_found
from webhooks.event_types import MOST_EXAMPLE_BYTES, EventTypeError
from webhooks.models import EventType, Tenant
from webhooks.schemas import MOST_SCHEMA_BYTES
from webhooks.scopes import Scope

MOST_BYTES = bodies.ENVELOPE_BYTES + MOST_SCHEMA_BYTES + MOST_EXAMPLE_BYTES
MOST_DOCUMENT_BYTES = 2 * 1024 * 1024
TENANT = Parameter("tenant", "Whose; for a key of all tenants")

blueprint = Blueprint("event_types", __name__)


class NewType(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An event type to add. ``schema`` is a JSON Schema (2020-12), ``example`` a payload."""

    name: str
    description: str = ""
    schema: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    example: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    tenant: str | None = None


class TypeChange(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What to change. ``schema`` null: any payload; ``archived``: shown as out of use."""

    description: str | UnsetType = UNSET
    schema: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    example: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    archived: bool | UnsetType = UNSET


class ShownType(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An event type. ``schema`` and ``example`` are the JSON that was given; null: none."""

    id: str
    name: str
    description: str
    schema: Any
    example: Any
    archived_at: Timestamp | None
    created_at: Timestamp
    updated_at: Timestamp


class ImportVerdict(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What became of one webhook of the document, and why."""

    name: str
    verdict: str
    reason: str | None


class ImportVerdicts(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One for each webhook, in the document's order."""

    data: list[ImportVerdict]


_new = msgspec.json.Decoder(NewType)
_change = msgspec.json.Decoder(TypeChange)


@blueprint.post("/event-types")
@operation(Scope.ENDPOINTS_WRITE, body=NewType, answer=ShownType, status=201)
def create() -> Response:
    """Add an event type."""
    wanted = bodies.read_struct(_new, MOST_BYTES)
    tenant = tenant_to_change(wanted.tenant)
    fields = _texts(wanted.schema, wanted.example) | {"description": wanted.description}
    made = _save(tenant, wanted.name, only_new=True, **fields)
    return answer(_shown(made), 201, {"Location": url_for(".read", name=made.name)})


@blueprint.get("/event-types")
@operation(Scope.ENDPOINTS_READ, answer=Page[ShownType], parameters=(TENANT, *pages.PARAMETERS))
def list_() -> Response:
    """The tenant's event types, newest first."""
    pages.check_parameters("tenant", "limit", "cursor")
    query = select(EventType).where(EventType.tenant_id == _tenant().id)
    return answer(pages.by_id(query, EventType.id, lambda row: _shown(row[0])))


@blueprint.get("/event-types/<name>")
@operation(Scope.ENDPOINTS_READ, answer=ShownType, parameters=(TENANT,))
def read(name: str) -> Response:
    """One event type, by its name."""
    pages.check_parameters("tenant")
    return answer(_shown(_find(name)))


@blueprint.patch("/event-types/<name>")
@operation(Scope.ENDPOINTS_WRITE, body=TypeChange, answer=ShownType, parameters=(TENANT,))
def update(name: str) -> Response:
    """Change what is given; emits follow within two seconds."""
    pages.check_parameters("tenant")
    _find(name)
    change = bodies.read_struct(_change, MOST_BYTES)
    plain = {"description": change.description, "archived": change.archived}
    fields = {key: value for key, value in plain.items() if value is not UNSET}
    fields |= _texts(change.schema, change.example)
    return answer(_shown(_save(_tenant(), name, **fields)))


@blueprint.delete("/event-types/<name>")
@operation(Scope.ENDPOINTS_WRITE, status=204, parameters=(TENANT,))
def delete(name: str) -> tuple[str, int]:
    """Take it out of the catalogue; events and subscriptions of that name stay."""
    pages.check_parameters("tenant")
    event_types.delete(_find(name), actor=credential().actor)
    return "", 204


@blueprint.post("/event-types/import")
@operation(
    Scope.ENDPOINTS_WRITE,
    body=dict[str, Any],
    answer=ImportVerdicts,
    parameters=(TENANT, Parameter("dry_run", "true: say what would be done, and do nothing")),
)
def import_() -> Response:
    """The webhooks of an OpenAPI 3.1 document, each as an event type; one verdict each."""
    pages.check_parameters("tenant", "dry_run")
    dry_run = pages.choice("dry_run", ["true", "false"]) == "true"
    tenant, body = _tenant(), bodies.read(MOST_DOCUMENT_BYTES)
    try:
        document = msgspec.json.decode(body)
        found = event_types.import_openapi(
            tenant, document, actor=credential().actor, dry_run=dry_run
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem.of_field(400, "body", f"it is not JSON in UTF-8: {error}") from error
    except EventTypeError as error:
        raise Problem.of_field(422, error.field, error.message) from error
    return answer(ImportVerdicts(data=[_verdict(each) for each in found]))


def _verdict(found: event_types.Imported) -> ImportVerdict:
    return ImportVerdict(name=found.name, verdict=found.verdict, reason=found.reason)


def _tenant() -> Tenant:
    return tenant_to_change(request.args.get("tenant"))


def _find(name: str) -> EventType:
    found = event_types.find(_tenant(), name)
    if found is None:
        raise not_found("event type")
    return found


def _save(tenant: Tenant, name: str, **fields: Any) -> EventType:
    try:
        return event_types.save(tenant, name, actor=credential().actor, **fields)[0]
    except EventTypeError as error:
        raise Problem.of_field(422, error.field, error.message) from error


def _texts(schema: msgspec.Raw, example: msgspec.Raw) -> dict[str, Any]:
    """Those that are given, as the JSON that was sent; a schema that is null is none."""
    given = {"schema": bytes(schema), "example": bytes(example)}
    try:
        texts: dict[str, Any] = {name: it.decode() for name, it in given.items() if it}
        return {
            name: None if (name, it) == ("schema", "null") else it for name, it in texts.items()
        }
    except UnicodeDecodeError as error:
        raise Problem.of_field(400, "body", f"it is not UTF-8: {error.reason}") from error


def _shown(row: EventType) -> ShownType:
    return ShownType(
        id=ids.encode(ids.EVENT_TYPE, row.id),
        name=row.name,
        description=row.description,
        schema=None if row.schema is None else msgspec.Raw(row.schema.encode()),
        example=None if row.example is None else msgspec.Raw(row.example.encode()),
        archived_at=timestamp(row.archived_at),
        created_at=rfc3339(row.created_at),
        updated_at=rfc3339(row.updated_at),
    )
