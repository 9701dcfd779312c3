"""/endpoints/{id}/pause, /resume, /test, /stats and /backlog."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
from flask import Blueprint, Response, current_app, url_for

from webhooks import endpoints, ids, stats, trial_events
from webhooks.api import attempts, bodies, deliveries, endpoint_rows
from webhooks.api.authentication import credential
from webhooks.api.bodies import answer, timestamp
from webhooks.api.operations import operation
from webhooks.api.problems import Problem, not_found
from webhooks.endpoints import EndpointError
from webhooks.events import EventError, check_type
from webhooks.models import Endpoint, db
from webhooks.release import ALL, Release, Unfinished
from webhooks.scopes import Scope
from webhooks.web_database import psycopg_connection

PERIODS = {"last_24_h": timedelta(hours=24), "last_7_d": timedelta(days=7)}
PATIENCE_S = 10.0
LOOK_EVERY_S = 0.1

blueprint = Blueprint("endpoint_verbs", __name__)


class Pause(msgspec.Struct, forbid_unknown_fields=True):
    """Why, in at most 500 printable characters."""

    reason: str | None = None


class Resume(msgspec.Struct, forbid_unknown_fields=True):
    """What is sent of what was held: all of it unless given."""

    release: dict[str, Any] | None = None


class Trial(msgspec.Struct, forbid_unknown_fields=True):
    """What to send; an example unless given."""

    event_type: str = trial_events.TYPE
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(trial_events.PAYLOAD))


_pause = msgspec.json.Decoder(Pause)
_resume = msgspec.json.Decoder(Resume)
_trial = msgspec.json.Decoder(Trial)


@blueprint.post("/endpoints/<endpoint_id>/pause")
@operation(Scope.ENDPOINTS_WRITE, body=Pause)
def pause(endpoint_id: str) -> Response:
    """Hold its deliveries until it is resumed; what is in flight ends as usual."""
    endpoint, wanted = endpoint_rows.find(endpoint_id), bodies.read_struct(_pause)
    return _changed(endpoint, status="paused", status_reason=wanted.reason)


@blueprint.post("/endpoints/<endpoint_id>/resume")
@operation(Scope.ENDPOINTS_WRITE, body=Resume)
def resume(endpoint_id: str) -> Response:
    """Deliver again, a disabled one too; 409 when there is more to cancel than one request can."""
    endpoint, wanted = endpoint_rows.find(endpoint_id), bodies.read_struct(_resume)
    try:
        release = ALL if wanted.release is None else Release.parse(wanted.release)
    except EndpointError as error:
        raise Problem.of_field(422, error.field, error.message) from error
    return _changed(endpoint, status="active", release=release)


@blueprint.post("/endpoints/<endpoint_id>/test")
@operation(Scope.ENDPOINTS_WRITE, body=Trial)
def test(endpoint_id: str) -> Response:
    """Send it an event of its own, and answer with the delivery once an attempt has ended.

    202 with the delivery's address when that takes longer than 10 s: it goes on like any
    other. 409 when the endpoint is paused or disabled.
    """
    endpoint, wanted = endpoint_rows.find(endpoint_id), bodies.read_struct(_trial)
    try:
        check_type(wanted.event_type)
    except EventError as error:
        raise Problem.of_field(422, "event_type", error.message) from error
    if endpoint.status != "active":
        raise Problem(409, f"the endpoint is {endpoint.status}; resume it first")
    place = endpoint.tenant_id, endpoint.id, wanted.event_type, bytes(wanted.payload)
    db.session.rollback()  # no transaction is open while it is on its way
    with psycopg_connection() as connection:
        delivery_id = trial_events.emit(connection, *place)
    current_app.extensions["webhooks_notifier"].notify()
    return _wait(delivery_id)


@blueprint.get("/endpoints/<endpoint_id>/stats")
@operation(Scope.ENDPOINTS_READ)
def read_stats(endpoint_id: str) -> Response:
    """Attempts of the last day and week, by roll-ups that lag by up to five seconds."""
    endpoint = endpoint_rows.find(endpoint_id)
    place = endpoint.tenant_id, endpoint.id
    with psycopg_connection() as connection:
        found = {
            name: shown_outcomes(stats.outcomes(connection, *place, period))
            for name, period in PERIODS.items()
        }
        success, failure = stats.last_times(connection, *place)
    days = {"last_success_day": _day(success), "last_failure_day": _day(failure)}
    return answer({"endpoint": endpoint_id, **found, **days})


@blueprint.get("/endpoints/<endpoint_id>/backlog")
@operation(Scope.ENDPOINTS_READ)
def read_backlog(endpoint_id: str) -> Response:
    """What waits, since when, why, and how long it will take. Counts end at 10,000."""
    endpoint = endpoint_rows.find(endpoint_id)
    row = db.session.execute(endpoint_rows.query().where(Endpoint.id == endpoint.id)).first()
    if row is None:
        raise not_found("endpoint")
    with psycopg_connection() as connection:
        found = stats.backlog(connection, endpoint.tenant_id, endpoint.id)
    return answer(
        {
            "endpoint": endpoint_id,
            "pending": found.pending,
            "scheduled": found.scheduled,
            "in_flight": found.in_flight,
            "counted_up_to": stats.MOST_COUNTED,
            "oldest_pending_s": found.oldest_pending_s,
            "drains_in_s": found.drains_in_s,
            "lane": endpoint_rows.shown(row)["lane"],
        }
    )


def shown_outcomes(found: stats.Outcomes) -> dict[str, Any]:
    """Outcomes as the API shows them."""
    return {
        "delivered": found.delivered,
        "failed": found.failed,
        "dead_lettered": found.dead_lettered,
        "success_share": found.success_share,
        "p50_ms": found.p50_ms,
        "p95_ms": found.p95_ms,
    }


def _day(at: Any) -> str | None:
    text = timestamp(at)
    return None if text is None else text[:10]


def _changed(endpoint: Endpoint, **fields: Any) -> Response:
    actor, endpoint_id = credential().actor, endpoint.id
    try:
        endpoints.update(endpoint, bodies.settings(), actor=actor, **fields)
    except EndpointError as error:
        field = error.field.replace("status_reason", "reason")
        raise Problem.of_field(422, field, error.message) from error
    except Unfinished as error:
        raise Problem(409, str(error)) from error
    row = db.session.execute(endpoint_rows.query().where(Endpoint.id == endpoint_id)).first()
    if row is None:
        raise not_found("endpoint")
    return answer(endpoint_rows.shown(row))


def _wait(delivery_id: UUID) -> Response:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        row = deliveries.find(delivery_id)
        tried = attempts.newest(delivery_id, row["created_at"])
        db.session.rollback()
        if tried or time.monotonic() >= deadline:
            break
        time.sleep(LOOK_EVERY_S)
    body = {**deliveries.shown(row), "attempts": [attempts.shown(a) for a in reversed(tried)]}
    public_id = ids.encode(ids.DELIVERY, delivery_id)
    location = {"Location": url_for("api.deliveries.read", delivery_id=public_id)}
    return answer(body, 200 if tried else 202, location)
