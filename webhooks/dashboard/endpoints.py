"""Endpoints: list, register, one with its state, edit, pause, resume, delete."""

from __future__ import annotations

import re
from datetime import UTC

from flask import abort, current_app, flash, make_response, redirect, request, url_for
from werkzeug.wrappers import Response

from webhooks import backoff, endpoints, ids, target_check, tenants
from webhooks.backoff import Policy, PolicyError, Source
from webhooks.dashboard import endpoint_form, lists, queries, retries
from webhooks.dashboard.endpoint_form import Values
from webhooks.dashboard.live import page
from webhooks.dashboard.site import Permission, blueprint, may, needs, row_id, settings, user
from webhooks.endpoints import EndpointError
from webhooks.models import Endpoint, Tenant
from webhooks.release import Mode, Release, Unfinished

PAGE_ROWS = 50
RECENT = 10

# The button that shows the ladder and saves nothing.
PREVIEW = "preview"

# What browsers send of a field for a date and a time, with seconds or without.
ZONELESS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?")

RESUMED = {
    Mode.ALL: "Active. Deliveries that were held are on their way.",
    Mode.SINCE: "Active. What was made since then is on its way; {} older ones are cancelled.",
    Mode.NONE: "Active. {} deliveries that were held are cancelled.",
}


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
    values = endpoint_form.new_values(Policy.from_settings(settings()))
    return _form({"tenant": tenants.DEFAULT, **values}, {})


@blueprint.post("/endpoints")
@needs(Permission.CHANGE)
def create_endpoint() -> Response:
    """Register an endpoint and show its secret, in this answer only."""
    values = request.form.to_dict()
    if PREVIEW in values:
        return _form(values, {})
    try:
        endpoint, secret = endpoints.create(
            _tenant(values),
            settings(),
            current_app.extensions["webhooks_keyring"],
            actor=user().username,
            **endpoint_form.fields(values),
        )
    except EndpointError as error:
        return make_response(_form(values, endpoint_form.errors(error)), 422)
    _warn(endpoint)
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
    default, _ = backoff.in_force(None, endpoint.tenant.retry_policy, settings())
    return _form(endpoint_form.values_of(endpoint, default), {}, endpoint)


@blueprint.post("/endpoints/<text>")
@needs(Permission.CHANGE)
def update_endpoint(text: str) -> Response:
    """Change an endpoint."""
    endpoint = _find(text)
    values = request.form.to_dict()
    if PREVIEW in values:
        return _form(values, {}, endpoint)
    try:
        changes = endpoint_form.changes(values, endpoint)
        endpoints.update(endpoint, settings(), actor=user().username, **changes)
    except EndpointError as error:
        return make_response(_form(values, endpoint_form.errors(error), endpoint), 422)
    flash("Saved. Deliveries from now on use these settings.")
    _warn(endpoint)
    return _to(text)


@blueprint.post("/endpoints/<text>/pause")
@needs(Permission.CHANGE)
def pause_endpoint(text: str) -> Response:
    """Hold an endpoint's deliveries."""
    endpoints.pause(_find(text), actor=user().username)
    flash("Paused. Its deliveries are held until you resume it.")
    return _to(text)


@blueprint.get("/endpoints/<text>/resume")
@needs(Permission.CHANGE)
def choose_release(text: str) -> Response:
    """Ask what is sent of what was held."""
    return _resume_page(text, {"release": Mode.ALL.value}, {})


@blueprint.post("/endpoints/<text>/resume")
@needs(Permission.CHANGE)
def resume_endpoint(text: str) -> Response:
    """Deliver to an endpoint again, paused or disabled."""
    endpoint, values = _find(text), request.form.to_dict()
    try:
        release = _release(values)
        cancelled = endpoints.resume(endpoint, actor=user().username, release=release)
    except EndpointError as error:
        errors = {error.field.removeprefix("release."): error.message}
        return make_response(_resume_page(text, values, errors), 422)
    except Unfinished as error:
        return make_response(_resume_page(text, values, {"release": f"{error}."}), 409)
    flash(RESUMED[release.mode].format(f"{cancelled:,}"))
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


def _warn(endpoint: Endpoint) -> None:
    """Say what is not wrong with its URL, but is worth a look."""
    found = target_check.check(endpoint.url)
    if found is not None:
        flash(f"{found[0].upper()}{found[1:]}.", "warning")


def _to(text: str) -> Response:
    return redirect(url_for("dashboard.show_endpoint", text=text), 303)


def _form(values: Values, errors: Values, endpoint: Endpoint | None = None) -> Response:
    return page(
        "endpoint_form.html",
        values=values,
        errors=errors,
        endpoint_id=endpoint.id if endpoint else None,
        tenants=[] if endpoint else tenants.all_tenants(),
        defaults=settings(),
        schemes=endpoint_form.SCHEMES,
        previewed=PREVIEW in values,
        usual=_usual(endpoint),
        preview=_preview(values, endpoint.tenant if endpoint else None),
    )


def _usual(endpoint: Endpoint | None) -> str:
    """Whose policy it follows without one of its own."""
    tenant = endpoint.tenant if endpoint else tenants.find(tenants.DEFAULT)
    policy = tenant.retry_policy if tenant else None
    return retries.WHOSE[backoff.in_force(None, policy, settings())[1]]


def _preview(values: Values, tenant: Tenant | None) -> retries.Ladder | str:
    """The ladder of what is chosen, or what is wrong with it."""
    try:
        tenant = tenant or _tenant(values)
        chosen = endpoint_form.policy(values)
        if chosen is not None:
            return retries.ladder(Policy.parse(chosen), Source.ENDPOINT)
    except (EndpointError, PolicyError) as error:
        return error.message
    return retries.ladder(*backoff.in_force(None, tenant.retry_policy, settings()))


def _tenant(values: Values) -> Tenant:
    key = values.get("tenant", tenants.DEFAULT)
    tenant = tenants.find(key)
    if tenant is None:
        raise EndpointError("tenant", f"{key[:70]!r} is not a tenant; choose one of the list")
    return tenant


def _resume_page(text: str, values: Values, errors: Values) -> Response:
    endpoint = queries.endpoint(row_id(ids.ENDPOINT, text)) or abort(404)
    since = f"{endpoint['status_changed_at'].astimezone(UTC):%Y-%m-%dT%H:%M:%S}"
    return page(
        "endpoint_resume.html",
        endpoint=endpoint,
        values={"since": since, **values},
        errors=errors,
        backlog_cap=queries.BACKLOG_CAP,
    )


def _release(values: Values) -> Release:
    """What the form says; its time has no zone and is UTC, as its label says."""
    chosen: dict[str, str] = {"mode": values.get("release", Mode.ALL.value)}
    if chosen["mode"] == Mode.SINCE:
        since = values.get("since", "").strip()
        found = ZONELESS.fullmatch(since)
        chosen["since"] = f"{since}{'' if found[1] else ':00'}Z" if found else since
    return Release.parse(chosen)
