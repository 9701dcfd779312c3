"""Deliveries: the list with its filter, and one with every attempt."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlencode

from flask import abort, current_app, flash, redirect, request, url_for
from werkzeug.wrappers import Response

from webhooks import deliveries, ids
from webhooks.attempt import FINISHED, Status
from webhooks.dashboard import bodies, cursors, lists, queries
from webhooks.dashboard.files import attachment
from webhooks.dashboard.formats import STATES
from webhooks.dashboard.live import page
from webhooks.dashboard.site import Permission, blueprint, may, needs, row_id, user
from webhooks.dashboard.timeline import phases
from webhooks.web_database import psycopg_connection

FILTERS = {"state", "endpoint", "page"}


@blueprint.get("/deliveries")
@needs(Permission.READ)
def list_deliveries() -> Response:
    """One page of deliveries, of one state and endpoint or of all."""
    state = request.args.get("state", "")
    endpoint = request.args.get("endpoint", "")
    wanted = lists.Filter(
        status=_state(state), endpoint_id=row_id(ids.ENDPOINT, endpoint) if endpoint else None
    )
    found = lists.page(wanted, _cursor(request.args.get("page"), wanted))
    return page(
        "deliveries.html",
        page=found,
        cursor=cursors.write,
        state=state,
        endpoint=endpoint,
        states=STATES,
        ignored=sorted(set(request.args) - FILTERS),
        offered=queries.offered_endpoints(wanted.endpoint_id),
        host_url=request.host_url,
    )


@blueprint.get("/deliveries/<text>")
@needs(Permission.READ)
def show_delivery(text: str) -> Response:
    """One delivery: where it stands, every attempt, the payload."""
    delivery_id = row_id(ids.DELIVERY, text)
    delivery = queries.delivery(delivery_id) or abort(404)
    below = request.args.get("below", type=int)
    attempts = queries.attempts(delivery_id, delivery["created_at"], below)
    shown = attempts[: queries.ATTEMPTS_SHOWN]
    return page(
        "delivery.html",
        delivery=delivery,
        attempts=shown,
        more=len(attempts) > len(shown),
        first_page=below is None,
        payload=bodies.read(delivery["payload"], delivery["payload_size"]),
        read=bodies.read,
        phases=phases,
        can=_possible(delivery) if may(Permission.CHANGE) else frozenset(),
        bodies_shown=may(Permission.READ_BODIES),
    )


@blueprint.post("/deliveries/<text>/replay")
@needs(Permission.CHANGE)
def replay(text: str) -> Response:
    """Send a finished delivery again."""
    done = "On its way again, with the full number of tries."
    return _act(text, deliveries.replay, done)


@blueprint.post("/deliveries/<text>/retry")
@needs(Permission.CHANGE)
def retry_now(text: str) -> Response:
    """Do not wait for the next attempt's time."""
    return _act(text, deliveries.retry_now, "Trying again now.")


@blueprint.post("/deliveries/<text>/cancel")
@needs(Permission.CHANGE)
def cancel(text: str) -> Response:
    """Give a delivery up; it can be replayed later."""
    reason = f"cancelled by {user().username}"
    return _act(text, deliveries.cancel, "Cancelled. It can be replayed.", reason=reason)


@blueprint.get("/deliveries/<text>/attempts/<int(max=2147483647):number>/body")
@needs(Permission.READ_BODIES)
def attempt_body(text: str, number: int) -> Response:
    """A response's body as a file, byte for byte."""
    body = queries.attempt_body(row_id(ids.DELIVERY, text), number)
    if body is None:
        abort(404)
    return attachment(body, f"{text}-{number}.bin")


@blueprint.app_template_global("deliveries_url")
def deliveries_url(state: str = "", endpoint: str = "", page: str = "") -> str:
    """The list's address; url_for knows "endpoint" as something else."""
    chosen = {"state": state, "endpoint": endpoint, "page": page}
    query = urlencode({name: value for name, value in chosen.items() if value})
    return url_for("dashboard.list_deliveries") + (f"?{query}" if query else "")


def _state(text: str) -> str | None:
    if text and text not in STATES:
        abort(400, f"state: {text[:40]!r} is not one of {', '.join(STATES)}.")
    return text or None


def _cursor(text: str | None, wanted: lists.Filter) -> cursors.Cursor | None:
    try:
        return cursors.parse(text, wanted.name()) if text else None
    except ValueError:
        abort(400, "page: this link belongs to another list. Start again from its first page.")


def _possible(delivery: queries.Row) -> frozenset[str]:
    """What can be done with a delivery as it stands."""
    status = Status(delivery["status"])
    if status in FINISHED:
        # Its payload and endpoint are needed; the rest is refused with its reason.
        gone = delivery["payload"] is None or delivery["endpoint_deleted_at"] is not None
        return frozenset() if gone else frozenset({"replay"})
    if status is Status.SCHEDULED:
        return frozenset({"retry", "cancel"})
    return frozenset({"cancel"}) if status is Status.PENDING else frozenset()


def _act(text: str, action: Callable[..., object], done: str, **more: str) -> Response:
    delivery_id = row_id(ids.DELIVERY, text)
    try:
        with psycopg_connection() as connection:
            held = action(connection, delivery_id, None, actor=user().username, **more)
    except deliveries.Missing:
        abort(404)
    except deliveries.Refused as refused:
        flash(f"Nothing was changed: {refused}.", "error")
    else:
        current_app.extensions["webhooks_notifier"].notify()
        flash(f"Held: {held}. It is sent once that is over." if held else done)
    return redirect(url_for("dashboard.show_delivery", text=text), 303)
