"""POST /endpoints/{id}/pause, /resume and /test."""

from __future__ import annotations

import threading
import time
from typing import Any
from uuid import UUID

import msgspec
from flask import Blueprint, Response, current_app, url_for

from webhooks import endpoints, trial_events
from webhooks.api import bodies, deliveries, endpoint_rows
from webhooks.api.authentication import credential
from webhooks.api.bodies import answer
from webhooks.api.deliveries import DeliveryWithAttempts
from webhooks.api.endpoint_rows import ShownEndpoint
from webhooks.api.operations import operation
from webhooks.api.problems import Problem
from webhooks.endpoints import EndpointError
from webhooks.events import EventError, check_type
from webhooks.models import Endpoint, db
from webhooks.release import ALL, Release, Unfinished
from webhooks.scopes import Scope
from webhooks.web_database import psycopg_connection

PATIENCE_S = 10.0
LOOK_EVERY_S = 0.1
# Of a process's threads (``web.threads``): emit needs the others.
MOST_WAITING = 4

blueprint = Blueprint("endpoint_verbs", __name__)


class Pause(msgspec.Struct, forbid_unknown_fields=True):
    """Why, in at most 500 printable characters."""

    reason: str | None = None


class Resume(msgspec.Struct, forbid_unknown_fields=True):
    """What is sent of what was held: all of it unless given."""

    release: dict[str, Any] | None = None


class Trial(msgspec.Struct, forbid_unknown_fields=True):
    """What to send: unless given, the event type's example, or one of ours."""

    event_type: str = trial_events.TYPE
    payload: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


_waiting = threading.BoundedSemaphore(MOST_WAITING)
_pause = msgspec.json.Decoder(Pause)
_resume = msgspec.json.Decoder(Resume)
_trial = msgspec.json.Decoder(Trial)


@blueprint.post("/endpoints/<endpoint_id>/pause")
@operation(Scope.ENDPOINTS_WRITE, body=Pause, answer=ShownEndpoint)
def pause(endpoint_id: str) -> Response:
    """Hold its deliveries until it is resumed; what is in flight ends as usual."""
    endpoint, wanted = endpoint_rows.find(endpoint_id), bodies.read_struct(_pause)
    return _changed(endpoint, status="paused", status_reason=wanted.reason)


@blueprint.post("/endpoints/<endpoint_id>/resume")
@operation(Scope.ENDPOINTS_WRITE, body=Resume, answer=ShownEndpoint)
def resume(endpoint_id: str) -> Response:
    """Deliver again, a disabled one too; 409 when there is more to cancel than one request can."""
    endpoint, wanted = endpoint_rows.find(endpoint_id), bodies.read_struct(_resume)
    try:
        release = ALL if wanted.release is None else Release.parse(wanted.release)
    except EndpointError as error:
        raise Problem.of_field(422, error.field, error.message) from error
    return _changed(endpoint, status="active", release=release)


@blueprint.post("/endpoints/<endpoint_id>/test")
@operation(Scope.ENDPOINTS_WRITE, body=Trial, answer=DeliveryWithAttempts, also=(202,))
def test(endpoint_id: str) -> Response:
    """Send it an event of its own, and answer with the delivery once an attempt has ended.

    202 with the delivery's address when that takes longer than 10 s, or when many others wait
    already. It is signed, retried and kept like any other. 409 when the endpoint is paused or
    disabled.
    """
    endpoint, wanted = endpoint_rows.find(endpoint_id), bodies.read_struct(_trial)
    try:
        check_type(wanted.event_type)
    except EventError as error:
        raise Problem.of_field(422, "event_type", error.message) from error
    if endpoint.status != "active":
        raise Problem(409, f"the endpoint is {endpoint.status}; resume it first")
    payload = _payload(wanted) or trial_events.example(endpoint.tenant, wanted.event_type)
    place = endpoint.tenant_id, endpoint.id, wanted.event_type, payload
    db.session.rollback()  # no transaction is open while it is on its way
    with psycopg_connection() as connection:
        delivery_id = trial_events.emit(connection, *place)
    current_app.extensions["webhooks_notifier"].notify()
    found = _wait(delivery_id)
    location = {"Location": url_for("api.deliveries.read", delivery_id=found.id)}
    return answer(found, 200 if found.attempts else 202, location)


def _payload(wanted: Trial) -> bytes:
    payload = bytes(wanted.payload)
    try:
        payload.decode()  # the decoder skips over it without looking
    except UnicodeDecodeError as error:
        raise Problem.of_field(400, "payload", f"it is not UTF-8: {error.reason}") from error
    return payload


def _changed(endpoint: Endpoint, **fields: Any) -> Response:
    actor, endpoint_id = credential().actor, endpoint.id
    try:
        endpoints.update(endpoint, bodies.settings(), actor=actor, **fields)
    except EndpointError as error:
        field = error.field.replace("status_reason", "reason")
        raise Problem.of_field(422, field, error.message) from error
    except Unfinished as error:
        raise Problem(409, str(error)) from error
    return answer(endpoint_rows.shown(endpoint_rows.read(endpoint_id)))


def _wait(delivery_id: UUID) -> DeliveryWithAttempts:
    """The delivery as soon as it has an attempt, or as it is when that takes too long."""
    may_wait = _waiting.acquire(blocking=False)
    deadline = time.monotonic() + (PATIENCE_S if may_wait else 0)
    try:
        while True:
            found = deliveries.read_with_attempts(delivery_id)
            db.session.rollback()
            if found.attempts or time.monotonic() >= deadline:
                return found
            time.sleep(LOOK_EVERY_S)
    finally:
        if may_wait:
            _waiting.release()
