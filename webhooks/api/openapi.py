"""GET /openapi.json: the API as an OpenAPI 3.1 document, made from what its routes say.

Source: https://spec.openapis.org/oas/v3.1.0
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

import msgspec
from flask import Blueprint, Flask, Response, current_app
from werkzeug.routing import Rule

from webhooks import ids
from webhooks.api.bodies import JSON
from webhooks.api.operations import Operation, Parameter, operation
from webhooks.api.problems import KINDS, MEDIA_TYPE, TITLES, FieldError
from webhooks.scopes import Scope

PREFIX = "/api/v1"
REF = "#/components/schemas/{name}"
PROBLEM = {"$ref": "#/components/schemas/Problem"}
BODILESS = (204,)
# Which answers any route may give, and which only those with a body or an id.
ALWAYS = (401, 422, 429, 503)
WITH_BODY = (400, 413, 415)
READING = "get"

_PART = re.compile(r"<(\w+)>")
_ID = rf"[0-7][{ids.ALPHABET}]{{{ids.LENGTH - 1}}}"
PATH_PARTS: Mapping[str, tuple[str, str]] = {
    "endpoint_id": ("An endpoint's id", f"^{ids.ENDPOINT}_{_ID}$"),
    "subscription_id": ("A subscription's id", f"^{ids.SUBSCRIPTION}_{_ID}$"),
    "secret_id": ("A signing secret's id", f"^{ids.SECRET}_{_ID}$"),
    "event_id": ("An event's id", f"^{ids.EVENT}_{_ID}$"),
    "delivery_id": ("A delivery's id", f"^{ids.DELIVERY}_{_ID}$"),
    "replay_id": ("A replay's id", f"^{ids.REPLAY}_{_ID}$"),
    "key_id": ("An API key's id", f"^{ids.API_KEY}_{_ID}$"),
    "group_id": ("A failure group's id", f"^{ids.FAILURE_GROUP}_{_ID}$"),
    "number": ("The number of the attempt, from 1", "^[0-9]{1,9}$"),
    "tenant_key": ("A tenant's key", "^[a-z0-9][a-z0-9_-]{0,62}$"),
    "name": ("An event type's name", r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"),
}

blueprint = Blueprint("openapi", __name__)


@blueprint.get("/openapi.json")
@operation(None, public=True, answer=dict[str, Any])
def document() -> Response:
    """This document."""
    encoded = _encoded(current_app._get_current_object())  # type: ignore[attr-defined]
    return Response(encoded, content_type=JSON)


@cache
def _encoded(app: Flask) -> bytes:
    return msgspec.json.format(msgspec.json.encode(build(app)), indent=1)


def build(app: Flask) -> dict[str, Any]:
    """The document, the same for the same routes."""
    routes = list(_routes(app))
    types = [t for _, _, found, _ in routes for t in (found.body, found.answer) if t is not None]
    schemas, components = msgspec.json.schema_components([*types, FieldError], ref_template=REF)
    by_type = {
        repr(kind): schema for kind, schema in zip([*types, FieldError], schemas, strict=True)
    }
    paths: dict[str, dict[str, Any]] = {}
    for path, method, found, view in routes:
        paths.setdefault(path, {})[method] = _operation(path, method, found, view, by_type)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Webhooks", "version": version("webhooks-platform"),
            "description": "Emit events, manage endpoints, see and replay deliveries.",
        },
        "servers": [{"url": PREFIX}],
        "security": [{"key": []}],
        "tags": [{"name": tag} for tag in sorted({_tag(path) for path in paths})],
        "paths": {path: dict(sorted(each.items())) for path, each in sorted(paths.items())},
        "components": {
            "schemas": {**components, "Problem": _problem()},
            "securitySchemes": {"key": {
                "type": "http", "scheme": "bearer",
                "description": f"An API key; its scopes are among {', '.join(Scope)}",
            }},
        },
    }  # fmt: skip


def _routes(app: Flask) -> Iterable[tuple[str, str, Operation, Callable[..., Any]]]:
    for rule in app.url_map.iter_rules():
        if rule.rule.startswith(f"{PREFIX}/"):
            view: Any = app.view_functions[rule.endpoint]
            for method in sorted(_methods(rule)):
                yield _path(rule), method.lower(), view.operation, view


def _methods(rule: Rule) -> set[str]:
    return (rule.methods or set()) - {"HEAD", "OPTIONS"}


def _path(rule: Rule) -> str:
    return _PART.sub(r"{\1}", rule.rule.removeprefix(PREFIX))


def _operation(
    path: str,
    method: str,
    found: Operation,
    view: Callable[..., Any],
    by_type: Mapping[str, Any],
) -> dict[str, Any]:
    text = " ".join((view.__doc__ or "").split()).replace("``", "`")
    names = re.findall(r"{(\w+)}", path)
    described: dict[str, Any] = {
        "operationId": f"{view.__module__.rpartition('.')[2]}.{view.__name__.strip('_')}",
        "tags": [_tag(path)],
        "summary": re.split("[.:;]", text.replace("`", ""))[0],
        "description": _description(text, found),
        "parameters": [*map(_in_path, names), *map(_in_query, found.parameters)],
        "responses": _responses(path, method, found, by_type),
    }  # fmt: skip
    if found.public:
        described["security"] = []
    if found.body is not None:
        content = {JSON: {"schema": by_type[repr(found.body)]}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _description(text: str, found: Operation) -> str:
    return text if found.scope is None else f"{text} Needs the scope `{found.scope}`."


def _tag(path: str) -> str:
    return path.split("/")[1].removesuffix(".json").replace("-", " ")


def _in_path(name: str) -> dict[str, Any]:
    description, pattern = PATH_PARTS[name]
    return {
        "name": name, "in": "path", "required": True, "description": description,
        "schema": {"type": "string", "pattern": pattern},
    }  # fmt: skip


def _in_query(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name, "in": "query", "description": parameter.description,
        "schema": msgspec.json.schema(parameter.type),
    }  # fmt: skip


def _responses(
    path: str, method: str, found: Operation, by_type: Mapping[str, Any]
) -> dict[str, Any]:
    good: dict[str, Any] = {"description": "Done"}
    if found.status not in BODILESS:
        schema = {} if found.answer is None else by_type[repr(found.answer)]
        good["content"] = {JSON: {"schema": schema}}
    statuses = {*ALWAYS, *(WITH_BODY if found.body is not None else ())}
    statuses |= {409} if method != READING else set()
    statuses |= {404} if "{" in path else set()
    statuses |= {403} if found.scope is not None else set()
    bad = {str(status): _problem_answer(status) for status in sorted(statuses)}
    usual = {str(status): good for status in (found.status, *found.also)}
    return usual | ({} if found.public else bad)


def _problem_answer(status: int) -> dict[str, Any]:
    return {"description": TITLES[KINDS[status]], "content": {MEDIA_TYPE: {"schema": PROBLEM}}}


def _problem() -> dict[str, Any]:
    """Problem details (RFC 9457), as ``problems.py`` writes them."""
    return {
        "type": "object",
        "required": ["type", "title", "status", "detail", "request_id"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "request_id": {"type": "string"},
            "errors": {"type": "array", "items": {"$ref": REF.format(name="FieldError")}},
        },
    }
