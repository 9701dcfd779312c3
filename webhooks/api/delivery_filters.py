"""The query parameters of lists of deliveries, as a Filter."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID

from flask import request

from webhooks import ids
from webhooks.api import pages
from webhooks.api.authentication import acting_tenant, tenant_to_read
from webhooks.api.bodies import suggestion
from webhooks.api.delivery_lists import Filter
from webhooks.api.operations import Parameter
from webhooks.api.problems import Problem
from webhooks.attempt import ErrorClass, Status
from webhooks.events import (
    EventError,
    check_idempotency_key,
    check_type,
    find_by_idempotency_key,
)
from webhooks.web_database import psycopg_connection

PARAMETERS = (
    Parameter("status", f"One or more of {', '.join(Status)}, separated by commas"),
    Parameter("endpoint", "Those to this endpoint (ep_…)"),
    Parameter("event", "Those of this event (evt_…)"),
    Parameter("event_type", "Those of this event type"),
    Parameter("tenant", "Those of this tenant; for a key of all tenants"),
    Parameter("from", "Finished at this time (RFC 3339) or later; what is live has not"),
    Parameter("to", "Finished before this time"),
    Parameter("status_code", "The last answer's HTTP status, or its class: 404, 5xx"),
    Parameter("error_class", f"One of {', '.join(ErrorClass)}"),
    Parameter("idempotency_key", "Those of the event that was emitted with it, for a day"),
)
NAMES = tuple(parameter.name for parameter in PARAMETERS)

_CODE = re.compile(r"([1-5])([0-9]{2}|xx)", re.ASCII)
NO_EVENT = UUID(int=0)


def read() -> Filter:
    """The request's filter; Problem 422 names a parameter that is wrong."""
    args = request.args
    return Filter(
        tenant_id=tenant_to_read(args.get("tenant")),
        statuses=_statuses(),
        endpoint_id=pages.id_parameter("endpoint", ids.ENDPOINT),
        event_id=_event(),
        event_type=event_type(),
        codes=codes(args.get("status_code")),
        error_class=pages.choice("error_class", list(ErrorClass)),
        finished_from=time_parameter("from"),
        finished_to=time_parameter("to"),
    )


def event_type() -> str | None:
    """The event type of the query, if there is one; Problem 422 for what can be none."""
    wanted = request.args.get("event_type")
    if wanted is not None:
        _check(lambda: check_type(wanted), "event_type")
    return wanted


def time_parameter(name: str) -> datetime | None:
    """A time of RFC 3339 with its zone, from 1970 to 9999; Problem 422 for anything else."""
    text = request.args.get(name)
    return None if text is None else read_time(name, text)


def read_time(name: str, text: str) -> datetime:
    """The same of a text that is there, in UTC."""
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None or not 1970 <= at.year < 9999:
            raise ValueError
        return at.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise _refused(name, f"{text[:40]!r} is not a time such as 2026-11-30T14:00:00Z") from error


def _statuses() -> tuple[str, ...]:
    text = request.args.get("status")
    if text is None:
        return ()
    wanted = sorted(set(text.split(",")))
    for status in wanted:
        if status not in set(Status):
            raise _refused("status", f"{status[:40]!r} is no status; {suggestion(status, Status)}")
    return tuple(wanted)


def _event() -> UUID | None:
    """The event named by its id, or by the idempotency key that it was emitted with."""
    event_id = pages.id_parameter("event", ids.EVENT)
    key = request.args.get("idempotency_key")
    if key is None:
        return event_id
    if event_id is not None:
        raise _refused("idempotency_key", "give event or idempotency_key, not both")
    _check(lambda: check_idempotency_key(key), "idempotency_key")
    tenant_id = acting_tenant(request.args.get("tenant"))
    with psycopg_connection() as connection:
        return find_by_idempotency_key(connection, tenant_id, key) or NO_EVENT


def codes(text: str | None) -> tuple[int, int] | None:
    """The lowest and the highest status that ``404`` or ``5xx`` means; Problem 422."""
    if text is None:
        return None
    form = _CODE.fullmatch(text)
    if form is None:
        raise _refused("status_code", f"{text[:40]!r} is not a status such as 404, or 5xx")
    if form[2] == "xx":
        lowest = int(form[1]) * 100
        return lowest, lowest + 99
    return int(text), int(text)


def _check(check: Callable[[], None], name: str) -> None:
    try:
        check()
    except EventError as error:
        raise _refused(name, error.message) from error


def _refused(name: str, message: str) -> Problem:
    return Problem.of_field(422, name, message)
