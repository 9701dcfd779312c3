"""Endpoints: list, register, one with its state, edit, pause, resume, delete."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from flask import abort, current_app, flash, make_response, redirect, request, url_for
from werkzeug.wrappers import Response

from webhooks import endpoints, ids, tenants
from webhooks.dashboard import lists, queries
from webhooks.dashboard.live import page
from webhooks.dashboard.site import Permission, blueprint, may, needs, row_id, settings, user
from webhooks.endpoints import EndpointError
from webhooks.models import Endpoint, Tenant

PAGE_ROWS = 50
RECENT = 10

Values = dict[str, str]


@blueprint.get("/endpoints")
@needs(Permission.READ)
def list_endpoints() -> Response:
    """Endpoints, newest first; ``before`` is the last one of the page before."""
    before = request.args.get("before")
    found = queries.endpoints(row_id(ids.ENDPOINT, before) if before else None, PAGE_ROWS + 1)
    return page(
        "endpoints.html",
        endpoints=found[:PAGE_ROWS],
        more=len(found) > PAGE_ROWS,
        first=not before,
        host_url=request.host_url,
        backlog_cap=queries.BACKLOG_CAP,
    )


@blueprint.get("/endpoints/new")
@needs(Permission.CHANGE)
def new_endpoint() -> Response:
    """The form to register an endpoint."""
    return _form({"event_types": "*", "tenant": tenants.DEFAULT}, {})


@blueprint.post("/endpoints")
@needs(Permission.CHANGE)
def create_endpoint() -> Response:
    """Register an endpoint and show its secret, in this answer only."""
    values = request.form.to_dict()
    try:
        endpoint, secret = endpoints.create(
            _tenant(values),
            settings(),
            current_app.extensions["webhooks_keyring"],
            actor=user().username,
            **_fields(values),
        )
    except EndpointError as error:
        return make_response(_form(values, _errors(error)), 422)
    shown = secret if may(Permission.READ_SECRETS) else None
    return make_response(page("endpoint_created.html", endpoint=endpoint, secret=shown), 201)


@blueprint.get("/endpoints/<text>")
@needs(Permission.READ)
def show_endpoint(text: str) -> Response:
    """One endpoint: settings, state with its reason, what waits, recent deliveries."""
    endpoint_id = row_id(ids.ENDPOINT, text)
    return page(
        "endpoint.html",
        endpoint=queries.endpoint(endpoint_id) or abort(404),
        recent=lists.page(lists.Filter(endpoint_id=endpoint_id), rows=RECENT),
        backlog_cap=queries.BACKLOG_CAP,
        defaults=settings(),
    )


@blueprint.get("/endpoints/<text>/edit")
@needs(Permission.CHANGE)
def edit_endpoint(text: str) -> Response:
    """The form to change an endpoint."""
    endpoint = _find(text)
    values = {
        "url": endpoint.url,
        "event_types": "\n".join(s.pattern for s in endpoint.subscriptions),
        "description": endpoint.description,
        "timeout_s": f"{endpoint.timeout_s:g}",
        "max_in_flight": str(endpoint.max_in_flight),
    }
    return _form(values, {}, endpoint.id)


@blueprint.post("/endpoints/<text>")
@needs(Permission.CHANGE)
def update_endpoint(text: str) -> Response:
    """Change an endpoint."""
    endpoint = _find(text)
    values = request.form.to_dict()
    try:
        endpoints.update(endpoint, settings(), actor=user().username, **_fields(values))
    except EndpointError as error:
        return make_response(_form(values, _errors(error), endpoint.id), 422)
    flash("Saved. Deliveries from now on use these settings.")
    return _to(text)


@blueprint.post("/endpoints/<text>/pause")
@needs(Permission.CHANGE)
def pause_endpoint(text: str) -> Response:
    """Hold an endpoint's deliveries."""
    endpoints.pause(_find(text), actor=user().username)
    flash("Paused. Its deliveries are held until you resume it.")
    return _to(text)


@blueprint.post("/endpoints/<text>/resume")
@needs(Permission.CHANGE)
def resume_endpoint(text: str) -> Response:
    """Deliver to an endpoint again, paused or disabled."""
    endpoints.resume(_find(text), actor=user().username)
    flash("Active. Deliveries that were held are on their way.")
    return _to(text)


@blueprint.get("/endpoints/<text>/delete")
@needs(Permission.CHANGE)
def confirm_deletion(text: str) -> Response:
    """Say what a deletion takes with it."""
    endpoint = queries.endpoint(row_id(ids.ENDPOINT, text)) or abort(404)
    waiting = endpoint["pending"] + endpoint["scheduled"]
    return page("endpoint_delete.html", endpoint=endpoint, waiting=waiting)


@blueprint.post("/endpoints/<text>/delete")
@needs(Permission.CHANGE)
def delete_endpoint(text: str) -> Response:
    """Delete an endpoint and cancel what waits for it."""
    endpoint = _find(text)
    url = endpoint.url
    endpoints.delete(endpoint, actor=user().username)
    flash(f"Deleted {url}. What waited for it is cancelled; its history stays.")
    return redirect(url_for("dashboard.list_endpoints"), 303)


def _find(text: str) -> Endpoint:
    return endpoints.find(None, row_id(ids.ENDPOINT, text)) or abort(404)


def _to(text: str) -> Response:
    return redirect(url_for("dashboard.show_endpoint", text=text), 303)


def _form(values: Values, errors: Values, endpoint_id: UUID | None = None) -> Response:
    return page(
        "endpoint_form.html",
        values=values,
        errors=errors,
        endpoint_id=endpoint_id,
        tenants=[] if endpoint_id else tenants.all_tenants(),
        defaults=settings(),
    )


def _tenant(values: Values) -> Tenant:
    key = values.get("tenant", tenants.DEFAULT)
    tenant = tenants.find(key)
    if tenant is None:
        raise EndpointError("tenant", f"{key[:70]!r} is not a tenant; choose one of the list")
    return tenant


def _fields(values: Values) -> dict[str, Any]:
    """The form's fields as endpoints.create takes them; EndpointError for what is no number."""
    fields: dict[str, Any] = {
        "url": values.get("url", "").strip(),
        "event_types": [
            part for part in re.split(r"[\s,]+", values.get("event_types", "")) if part
        ],
        "description": values.get("description", "").strip(),
    }
    for name, number in (("timeout_s", float), ("max_in_flight", int)):
        if text := values.get(name, "").strip():
            try:
                fields[name] = number(text)
            except ValueError as error:
                raise EndpointError(name, f"{text[:40]!r} is not a number") from error
    return fields


def _errors(error: EndpointError) -> Values:
    return {error.field.partition("[")[0]: error.message}
