"""Events: send one, look at one with its payload and its deliveries."""

from __future__ import annotations

import msgspec
from flask import abort, current_app, flash, make_response, redirect, request, url_for
from werkzeug.wrappers import Response

from webhooks import events, fanouts, ids, tenants
from webhooks.catalog import Catalog, Unfit
from webhooks.dashboard import bodies, cursors, lists, queries
from webhooks.dashboard.files import attachment
from webhooks.dashboard.live import page
from webhooks.dashboard.site import Permission, blueprint, may, needs, row_id, settings
from webhooks.events import Accepted, EventError
from webhooks.models import Tenant
from webhooks.web_database import psycopg_connection

EXAMPLE = """{
  "id": "in_1042",
  "customer": "Acme GmbH",
  "amount": 129.50,
  "currency": "EUR",
  "lines": [
    {"sku": "seat", "quantity": 5}
  ]
}"""

Values = dict[str, str]


@blueprint.get("/send")
@needs(Permission.CHANGE)
def new_event() -> Response:
    """The form to send an event."""
    return _form({"type": "invoice.paid", "payload": EXAMPLE, "tenant": tenants.DEFAULT}, {})


@blueprint.post("/send")
@needs(Permission.CHANGE)
def send_event() -> Response:
    """Accept an event and go to its page."""
    # Browsers end a line of a text field with CR LF; nobody typed the CR.
    values = {name: text.replace("\r\n", "\n") for name, text in request.form.items()}
    try:
        accepted = _emit(values)
    except EventError as error:
        return make_response(_form(values, {error.field: error.message}), 422)
    except events.Conflict as conflict:
        return make_response(_form(values, {"idempotency_key": f"{conflict}."}), 409)
    is_large = accepted.deliveries > fanouts.IN_EMIT
    current_app.extensions["webhooks_notifier"].notify(fan_out=is_large)
    flash(_accepted(accepted), "accepted")
    event_id = ids.encode(ids.EVENT, accepted.id)
    return redirect(url_for("dashboard.show_event", text=event_id), 303)


@blueprint.get("/events/<text>")
@needs(Permission.READ)
def show_event(text: str) -> Response:
    """One event: what it says, and where it goes."""
    event_id = row_id(ids.EVENT, text)
    event = queries.event(event_id) or abort(404)
    wanted = lists.Filter(event_id=event_id)
    try:
        cursor = cursors.parse(request.args.get("page", ""), wanted.name())
    except ValueError:
        cursor = None
    return page(
        "event.html",
        event=event,
        payload=bodies.read(event["payload"], event["payload_size"]),
        raw=request.args.get("view") == "raw",
        page=lists.page(wanted, cursor),
        cursor=cursors.write,
        bodies_shown=may(Permission.READ_BODIES),
    )


@blueprint.get("/events/<text>/payload")
@needs(Permission.READ_BODIES)
def event_payload(text: str) -> Response:
    """The payload as a file, byte for byte."""
    event = queries.event(row_id(ids.EVENT, text), whole=True) or abort(404)
    if event["payload"] is None:
        abort(404)
    return attachment(event["payload"], f"{text}.json")


def _form(values: Values, errors: Values) -> Response:
    return page(
        "send.html",
        values=values,
        errors=errors,
        tenants=tenants.all_tenants(),
        host_url=request.host_url,
    )


def _emit(values: Values) -> Accepted:
    tenant = _tenant(values.get("tenant", tenants.DEFAULT))
    payload = values.get("payload", "").encode()
    _check(payload)
    key = values.get("idempotency_key", "").strip() or None
    event_type = values.get("type", "").strip()
    catalog: Catalog = current_app.extensions["webhooks_catalog"]
    try:
        catalog.check(psycopg_connection, tenant.id, event_type, payload)
    except Unfit as error:
        field, message = error.errors[0]
        raise EventError(field.partition("/")[0], f"{field}: {message}") from error
    with psycopg_connection() as connection:
        return events.emit(connection, tenant.id, event_type, payload, key)


def _tenant(key: str) -> Tenant:
    tenant = tenants.find(key)
    if tenant is None:
        raise EventError("tenant", f"{key[:70]!r} is not a tenant; choose one of the list")
    return tenant


def _check(payload: bytes) -> None:
    if not payload.strip():
        raise EventError("payload", "the payload is empty; give JSON")
    most = settings().max_payload_bytes
    if len(payload) > most:
        raise EventError("payload", f"it has {len(payload):,} bytes; give at most {most:,}")
    try:
        msgspec.json.decode(payload, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError) as error:
        detail = str(error).removeprefix("JSON is malformed: ")
        raise EventError("payload", f"this is not JSON: {detail}") from error


def _accepted(accepted: Accepted) -> str:
    if accepted.duplicate:
        return "Sent before with this idempotency key: this is the event accepted then."
    if not accepted.deliveries:
        return "Accepted. No endpoint is subscribed to this event type, so nothing is delivered."
    many = (
        "1 endpoint gets it"
        if accepted.deliveries == 1
        else f"{accepted.deliveries:,} endpoints get it"
    )
    return f"Accepted. {many}."
