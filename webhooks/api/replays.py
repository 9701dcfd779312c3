"""/replays: many finished deliveries sent again, as a job that workers advance."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import msgspec
import psycopg
from flask import Blueprint, Response, current_app, request, url_for
from sqlalchemy import select

from webhooks import ids, replays
from webhooks.api import bodies, delivery_filters, pages
from webhooks.api.authentication import credential, tenant_to_change, tenant_to_read
from webhooks.api.bodies import answer
from webhooks.api.operations import Parameter, operation
from webhooks.api.pages import Page
from webhooks.api.problems import Problem, not_found
from webhooks.api.replay_answers import ReplayPlan, ShownReplay, job_of, shown
from webhooks.attempt import FINISHED, ErrorClass, Status
from webhooks.events import EventError, check_type
from webhooks.models import Replay
from webhooks.replays import LONG_AGO, Wanted
from webhooks.scopes import Scope
from webhooks.web_database import psycopg_connection

LEAST_PER_SECOND = 0.01
MOST_PER_SECOND = 100_000

blueprint = Blueprint("replays", __name__)


class Selection(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which deliveries: of those that have finished by now, the dead letters unless given.

    ``from`` and ``to`` are times of their finishing, ``status_code`` one such as 503, or 5xx.
    """

    status: str = Status.DEAD_LETTERED.value
    endpoint: str | None = None
    event_type: str | None = None
    error_class: str | None = None
    status_code: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    to: str | None = None
    tenant: str | None = None


class NewReplay(Selection, forbid_unknown_fields=True, kw_only=True):
    """A replay to make. It begins at once unless ``start`` is false.

    ``canary``: one delivery first, then ten, then the rest; it stops by itself when more than
    ``stop_share`` of a stage fail. ``per_second``: no more than that.
    """

    start: bool = True
    canary: bool = True
    stop_share: float = replays.STOP_SHARE
    per_second: float | None = None


_selection = msgspec.json.Decoder(Selection)
_new = msgspec.json.Decoder(NewReplay)


@blueprint.post("/replays/dry-run")
@operation(Scope.DELIVERIES_REPLAY, body=Selection, answer=ReplayPlan)
def dry_run() -> Response:
    """How many it would be, which, and what would be skipped for what reason. Nothing changes."""
    wanted = _wanted(bodies.read_struct(_selection))
    try:
        with psycopg_connection() as connection:
            found = replays.plan(connection, wanted)
    except psycopg.errors.QueryCanceled as error:
        raise Problem(422, pages.TOO_SLOW) from error
    return answer(
        ReplayPlan(
            matching=found.matching,
            replayed=found.replayed,
            skipped=dict(found.skipped),
            sample=[ids.encode(ids.DELIVERY, each) for each in found.sample],
            complete=found.complete,
        )
    )


@blueprint.post("/replays")
@operation(Scope.DELIVERIES_REPLAY, body=NewReplay, answer=ShownReplay, status=201)
def create() -> Response:
    """Make a replay. What finishes after this moment is not among it."""
    wanted = bodies.read_struct(_new)
    _check_numbers(wanted)
    with psycopg_connection() as connection:
        job = replays.create(
            connection, _wanted(wanted), start=wanted.start, per_second=wanted.per_second,
            stop_share=wanted.stop_share if wanted.canary else None, actor=credential().actor,
        )  # fmt: skip
    location = {"Location": url_for(".read", replay_id=ids.encode(ids.REPLAY, job["id"]))}
    return answer(shown(job), 201, location)


@blueprint.get("/replays")
@operation(
    Scope.DELIVERIES_READ,
    answer=Page[ShownReplay],
    parameters=(
        Parameter("tenant", "Those of this tenant; for a key of all tenants"), *pages.PARAMETERS,
    ),
)  # fmt: skip
def list_() -> Response:
    """Replays, newest first."""
    pages.check_parameters("tenant", "limit", "cursor")
    query = select(Replay)
    tenant_id = tenant_to_read(request.args.get("tenant"))
    if tenant_id is not None:
        query = query.where(Replay.tenant_id == tenant_id)
    return answer(pages.by_id(query, Replay.id, lambda row: shown(job_of(row[0]))))


@blueprint.get("/replays/<replay_id>")
@operation(Scope.DELIVERIES_READ, answer=ShownReplay)
def read(replay_id: str) -> Response:
    """One replay: how far it is, and what it skipped."""
    try:
        with psycopg_connection() as connection:
            found = replays.find(connection, _decoded(replay_id), credential().only_tenant)
    except replays.Missing as error:
        raise not_found("replay") from error
    return answer(shown(found))


@blueprint.post("/replays/<replay_id>/start")
@operation(Scope.DELIVERIES_REPLAY, answer=ShownReplay)
def start(replay_id: str) -> Response:
    """Begin a planned one."""
    return _act("start", replay_id)


@blueprint.post("/replays/<replay_id>/pause")
@operation(Scope.DELIVERIES_REPLAY, answer=ShownReplay)
def pause(replay_id: str) -> Response:
    """Take nothing more for now; what is in the queue already goes on."""
    return _act("pause", replay_id)


@blueprint.post("/replays/<replay_id>/resume")
@operation(Scope.DELIVERIES_REPLAY, answer=ShownReplay)
def resume(replay_id: str) -> Response:
    """Go on, also with one that its canary has stopped."""
    return _act("resume", replay_id)


@blueprint.post("/replays/<replay_id>/cancel")
@operation(Scope.DELIVERIES_REPLAY, answer=ShownReplay)
def cancel(replay_id: str) -> Response:
    """Take nothing more for good; what is in the queue already goes on."""
    return _act("cancel", replay_id)


def _act(verb: str, replay_id: str) -> Response:
    who, value = credential(), _decoded(replay_id)
    try:
        with psycopg_connection() as connection:
            job = replays.act(connection, verb, value, who.only_tenant, actor=who.actor)
    except replays.Missing as error:
        raise not_found("replay") from error
    except replays.Refused as error:
        raise Problem(409, str(error)) from error
    current_app.extensions["webhooks_notifier"].notify(fan_out=True)
    return answer(shown(job))


def _decoded(replay_id: str) -> UUID:
    try:
        return ids.decode(ids.REPLAY, replay_id)
    except ValueError as error:
        raise not_found("replay") from error


def _wanted(given: Selection) -> Wanted:
    """As the job stores it; Problem 422 names a field that is wrong."""
    if given.status not in FINISHED:
        raise _refused("status", f"{given.status[:40]!r} is not one of {', '.join(FINISHED)}")
    if given.error_class is not None and given.error_class not in set(ErrorClass):
        raise _refused("error_class", f"give one of {', '.join(ErrorClass)}")
    codes = delivery_filters.codes(given.status_code)
    return Wanted(
        tenant_id=_tenant(given.tenant),
        status=given.status,
        endpoint_id=_endpoint(given.endpoint),
        event_type=_type(given.event_type),
        error_class=given.error_class,
        lowest_code=codes and codes[0],
        highest_code=codes and codes[1],
        finished_from=_time("from", given.from_) or LONG_AGO,
        finished_to=_time("to", given.to),
    )


def _tenant(named: str | None) -> UUID | None:
    return credential().only_tenant if named is None else tenant_to_change(named).id


def _endpoint(text: str | None) -> UUID | None:
    try:
        return None if text is None else ids.decode(ids.ENDPOINT, text)
    except ValueError as error:
        raise _refused("endpoint", str(error)) from error


def _type(event_type: str | None) -> str | None:
    try:
        if event_type is not None:
            check_type(event_type)
    except EventError as error:
        raise _refused("event_type", error.message) from error
    return event_type


def _time(name: str, text: str | None) -> datetime | None:
    return None if text is None else delivery_filters.read_time(name, text).astimezone(UTC)


def _check_numbers(wanted: NewReplay) -> None:
    if not 0 <= wanted.stop_share <= 1:
        raise _refused("stop_share", f"{wanted.stop_share:g} is not 0 to 1")
    rate = wanted.per_second
    if rate is not None and not LEAST_PER_SECOND <= rate <= MOST_PER_SECOND:
        raise _refused("per_second", f"{rate:g} is not {LEAST_PER_SECOND} to {MOST_PER_SECOND:,}")


def _refused(name: str, message: str) -> Problem:
    return Problem.of_field(422, name, message)
