"""Event types: a tenant's catalogue, each with a description, a schema and an example."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select, text

from webhooks import audit, ids
from webhooks.catalog import RESERVED
from webhooks.events import EventError, check_type
from webhooks.field_error import FieldError
from webhooks.models import EventType, Tenant, db
from webhooks.schemas import Schema, SchemaFault, parse

LONGEST_DESCRIPTION = 2_000
MOST_EXAMPLE_BYTES = 65_536
MOST_TYPES = 5_000
REFERENCE = "#/components/schemas/"

_CHANGED = text("UPDATE webhooks.catalog SET version = version + 1")


class EventTypeError(FieldError):
    """A field of an event type is wrong: ``field`` names it, ``message`` says the remedy."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did with one webhook: created, updated, unchanged or refused, and why."""

    name: str
    verdict: str
    reason: str | None = None


def save(
    tenant: Tenant, name: str, *, actor: str, only_new: bool = False, **fields: Any
) -> tuple[EventType, str]:
    """Add an event type, or change the fields given; answers it, and created, updated or
    unchanged. ``fields``: description, schema and example (JSON texts, or None), archived.

    Raises EventTypeError, and changes nothing, when one is wrong; ``only_new``: also when it is
    there already.
    """
    _check_name(name)
    _lock(tenant)
    row = find(tenant, name)
    if row is not None and only_new:
        raise _error("name", f"{name!r} exists already; change it by PATCH")
    verdict = "unchanged" if row else "created"
    if row is None:
        row = _add(tenant, name)
    if changed := _apply(row, fields):
        verdict = "updated" if verdict == "unchanged" else verdict
    if verdict == "unchanged":
        db.session.rollback()
        return row, verdict
    row.updated_at = datetime.now(UTC)
    db.session.flush()
    action = "event_type.create" if verdict == "created" else "event_type.update"
    _audit(action, row, actor, changed)
    db.session.commit()
    return row, verdict


def find(tenant: Tenant, name: str) -> EventType | None:
    """The tenant's event type of this name, or None."""
    query = select(EventType).where(EventType.tenant_id == tenant.id, EventType.name == name)
    return db.session.scalar(query) if name.isprintable() else None


def delete(row: EventType, *, actor: str) -> None:
    """Take it out of the catalogue; events and subscriptions of that name stay as they are."""
    _audit("event_type.delete", row, actor, [])
    db.session.delete(row)
    db.session.commit()


def import_openapi(tenant: Tenant, document: Any, *, actor: str, dry_run: bool) -> list[Imported]:
    """The webhooks of an OpenAPI 3.1 document as event types, each by itself.

    A webhook's name is its event type's, unless it has ``x-event-type``. Raises EventTypeError
    when the document has none.
    """
    webhooks = document.get("webhooks") if isinstance(document, dict) else None
    if not isinstance(webhooks, dict) or not webhooks:
        raise EventTypeError("webhooks", "the document has none; give an OpenAPI 3.1 document")
    components = document.get("components")
    schemas = components.get("schemas", {}) if isinstance(components, dict) else {}
    return [
        _import(tenant, str(name), item, schemas, actor=actor, dry_run=dry_run)
        for name, item in webhooks.items()
    ]


def _import(
    tenant: Tenant, name: str, item: Any, schemas: Any, *, actor: str, dry_run: bool
) -> Imported:
    try:
        operation = _post(item)
        name = operation.get("x-event-type") or name
        media = _media(operation)
        fields: dict[str, Any] = {
            "description": operation.get("description") or operation.get("summary") or "",
        }
        if "schema" in media:
            fields["schema"] = json.dumps(_bundled(media["schema"], schemas))
        if "example" in media:
            fields["example"] = json.dumps(media["example"])
        if dry_run:
            return Imported(name, _foreseen(tenant, name, fields))
        return Imported(name, save(tenant, name, actor=actor, **fields)[1])
    except (EventTypeError, TypeError, ValueError, AttributeError, RecursionError) as error:
        db.session.rollback()
        return Imported(name, "refused", str(error))


def _foreseen(tenant: Tenant, name: str, fields: Mapping[str, Any]) -> str:
    _check_name(name)
    values = {key: _CHECKS[key](value) for key, value in fields.items()}
    row = find(tenant, name)
    if row is None:
        return "created"
    return "updated" if any(getattr(row, k) != v for k, v in values.items()) else "unchanged"


def _post(item: Any) -> dict[str, Any]:
    operation = item.get("post") if isinstance(item, dict) else None
    if not isinstance(operation, dict):
        raise EventTypeError("post", "the webhook has none")
    return operation


def _media(operation: Mapping[str, Any]) -> dict[str, Any]:
    content = operation.get("requestBody", {}).get("content", {})
    media: Any = content.get("application/json") or next(iter(content.values()), {})
    return media if isinstance(media, dict) else {}


def _bundled(schema: Any, schemas: Mapping[str, Any]) -> Any:
    """The schema with what it refers to of the document in its own ``$defs``."""
    needed: dict[str, Any] = {}
    waiting = list(_references(schema))
    while waiting:
        name = waiting.pop()
        if name not in needed and name in schemas:
            needed[name] = _local(schemas[name])
            waiting += _references(schemas[name])
    local = _local(schema)
    if not needed:
        return local
    return {**local, "$defs": {**local.get("$defs", {}), **needed}}


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        reference = value.get("$ref")
        if isinstance(reference, str) and reference.startswith(REFERENCE):
            yield reference.removeprefix(REFERENCE).partition("/")[0]
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


def _local(value: Any) -> Any:
    """The same with references into itself."""
    if isinstance(value, dict):
        return {
            key: each.replace(REFERENCE, "#/$defs/")
            if key == "$ref" and isinstance(each, str) else _local(each)
            for key, each in value.items()
        }  # fmt: skip
    return [_local(each) for each in value] if isinstance(value, list) else value


def _add(tenant: Tenant, name: str) -> EventType:
    found = db.session.scalars(
        select(EventType.id).where(EventType.tenant_id == tenant.id).limit(MOST_TYPES)
    ).all()
    if len(found) >= MOST_TYPES:
        raise _error("name", f"the tenant has {MOST_TYPES} event types; delete some first")
    row = EventType(tenant_id=tenant.id, name=name)
    db.session.add(row)
    db.session.flush()
    return row


def _apply(row: EventType, fields: Mapping[str, Any]) -> list[str]:
    """Set what differs; the names of those fields."""
    try:
        values = {name: _CHECKS[name](value) for name, value in fields.items()}
    except EventTypeError:
        db.session.rollback()
        raise
    if "archived" in values:
        archived = values.pop("archived")
        if archived != (row.archived_at is not None):
            values["archived_at"] = datetime.now(UTC) if archived else None
    changed = [name for name, value in values.items() if getattr(row, name) != value]
    for name in changed:
        setattr(row, name, values[name])
    _check_example(row)
    return changed


def _check_example(row: EventType) -> None:
    if row.schema is None or row.example is None:
        return
    if errors := Schema(row.schema).errors(row.example):
        where, why = errors[0]
        raise _error("example", f"it does not fit the schema: {where or '/'}: {why}")


def _check_name(name: str) -> None:
    try:
        check_type(name)
    except EventError as error:
        raise EventTypeError("name", error.message) from error
    if name.startswith(RESERVED):
        raise EventTypeError("name", f"{name[:80]!r} is reserved; choose another beginning")


def _check_description(description: str) -> str:
    if len(description) > LONGEST_DESCRIPTION or "\0" in description:
        raise EventTypeError(
            "description", f"give at most {LONGEST_DESCRIPTION} characters, without NUL"
        )
    return description


def _check_schema(schema: str | None) -> str | None:
    try:
        if schema is not None:
            Schema(schema)
    except SchemaFault as error:
        raise EventTypeError("schema", str(error)) from error
    return schema


def _check_json(example: str | None) -> str | None:
    try:
        if example is not None:
            parse(example)
    except SchemaFault as error:
        raise EventTypeError("example", str(error)) from error
    if example is not None and len(example) > MOST_EXAMPLE_BYTES:
        raise EventTypeError("example", f"it has more than {MOST_EXAMPLE_BYTES} characters")
    return example


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "description": _check_description,
    "schema": _check_schema,
    "example": _check_json,
    "archived": bool,
}


def _lock(tenant: Tenant) -> None:
    """Two that add the same name at once wait for each other."""
    row = select(Tenant.id).where(Tenant.id == tenant.id)
    db.session.execute(row.with_for_update(key_share=True))


def _error(field: str, message: str) -> EventTypeError:
    db.session.rollback()
    return EventTypeError(field, message)


def _audit(action: str, row: EventType, actor: str, changed: list[str]) -> None:
    db.session.execute(_CHANGED)
    about = ids.encode(ids.EVENT_TYPE, row.id)
    audit.record(
        action, about, actor=actor, tenant_id=row.tenant_id, name=row.name, changed=changed
    )
