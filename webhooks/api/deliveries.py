"""GET /deliveries, GET /deliveries/<id>, POST /deliveries/<id>/replays and /retries."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from flask import Blueprint, Response, current_app
from sqlalchemy import RowMapping, text
from sqlalchemy.exc import OperationalError

from webhooks import deliveries, ids
from webhooks.api import delivery_filters, delivery_lists, pages
from webhooks.api.authentication import credential
from webhooks.api.bodies import answer, timestamp
from webhooks.api.operations import operation
from webhooks.api.problems import Problem, not_found
from webhooks.models import db
from webhooks.scopes import Scope
from webhooks.web_database import psycopg_connection

ATTEMPTS_SHOWN = 100
TOO_SLOW = (
    "looking for so few among so many took too long; give endpoint or event, or a shorter time "
    "by from and to"
)

# The queue first, by the literal: without it every partition would be looked into.
_FIND = """
SELECT {columns} FROM webhooks.deliveries d
WHERE d.id = :id AND (CAST(:tenant AS uuid) IS NULL OR d.tenant_id = :tenant) AND {where}
"""
_LIVE = _FIND.format(columns=delivery_lists.COLUMNS, where="d.finished_at = 'infinity'")
_FINISHED = _FIND.format(
    columns=delivery_lists.COLUMNS,
    where="d.finished_at < 'infinity' "
    "AND d.finished_at >= webhooks.uuid7_time(:id) - interval '1 day'",
)
_ATTEMPTS = """
SELECT number, trigger, outcome, status_code, error_class, detail, url, peer,
       request_headers, response_headers, response_body, truncated,
       dns_ms, connect_ms, tls_ms, first_byte_ms, total_ms, started_at
FROM webhooks.attempts
WHERE delivery_id = :id AND recorded_at >= CAST(:since AS timestamptz) - interval '1 day'
ORDER BY number DESC LIMIT :rows
"""
_TIMINGS = ("dns_ms", "connect_ms", "tls_ms", "first_byte_ms", "total_ms")

blueprint = Blueprint("deliveries", __name__)


@blueprint.get("/deliveries")
@operation(Scope.DELIVERIES_READ, parameters=(*delivery_filters.PARAMETERS, *pages.PARAMETERS))
def list_() -> Response:
    """Deliveries: what is live first, then what has finished, newest first in both."""
    pages.check_parameters(*delivery_filters.NAMES, "limit", "cursor")
    size, wanted = pages.limit(), delivery_filters.read()
    begins = pages.cursor(delivery_lists.context(wanted))
    try:
        return answer(delivery_lists.page(wanted, size, begins))
    except OperationalError as error:
        if not isinstance(error.orig, psycopg.errors.QueryCanceled):
            raise
        raise Problem(422, TOO_SLOW) from error


@blueprint.get("/deliveries/<delivery_id>")
@operation(Scope.DELIVERIES_READ)
def read(delivery_id: str) -> Response:
    """One delivery with its attempts, oldest first."""
    row = _find(_decoded(delivery_id))
    attempts = _attempts(row["id"], row["created_at"])
    return answer(
        {**_shown(row), "attempts": [_shown_attempt(attempt) for attempt in reversed(attempts)]}
    )


@blueprint.post("/deliveries/<delivery_id>/replays")
@operation(Scope.DELIVERIES_REPLAY)
def replay(delivery_id: str) -> Response:
    """Send a finished delivery again; ``held`` says why it waits; 409 where it cannot be sent."""
    return _act(deliveries.replay, delivery_id)


@blueprint.post("/deliveries/<delivery_id>/retries")
@operation(Scope.DELIVERIES_REPLAY)
def retry(delivery_id: str) -> Response:
    """Make a scheduled retry pending at once; ``held`` says why it waits; 409 if it cannot be."""
    return _act(deliveries.retry_now, delivery_id)


def _act(action: Callable[..., object], delivery_id: str) -> Response:
    who, value = credential(), _decoded(delivery_id)
    try:
        with psycopg_connection() as connection:
            action(connection, value, who.only_tenant, actor=who.actor)
    except deliveries.Missing as error:
        raise not_found("delivery") from error
    except deliveries.Refused as error:
        raise Problem(409, str(error)) from error
    current_app.extensions["webhooks_notifier"].notify()
    return answer(_shown(_find(value)), 202)


def _decoded(delivery_id: str) -> UUID:
    try:
        return ids.decode(ids.DELIVERY, delivery_id)
    except ValueError as error:
        raise not_found("delivery") from error


def _find(delivery_id: UUID) -> RowMapping:
    values = {"id": delivery_id, "tenant": credential().only_tenant}
    for statement in (_LIVE, _FINISHED, _LIVE):  # it may move between two looks
        row = db.session.execute(text(statement), values).mappings().first()
        if row is not None:
            return row
    raise not_found("delivery")


def _attempts(delivery_id: UUID, since: datetime) -> Sequence[RowMapping]:
    values = {"id": delivery_id, "since": since, "rows": ATTEMPTS_SHOWN}
    return db.session.execute(text(_ATTEMPTS), values).mappings().all()


def _shown(row: RowMapping) -> dict[str, Any]:
    closed = delivery_lists.closed_endpoints([row])
    return delivery_lists.shown(row, delivery_lists.tenant_keys([row]), closed)


def _shown_attempt(row: RowMapping) -> dict[str, Any]:
    return {
        "number": row["number"],
        "trigger": row["trigger"],
        "outcome": row["outcome"],
        "status_code": row["status_code"],
        "error_class": row["error_class"],
        "detail": row["detail"],
        "started_at": timestamp(row["started_at"]),
        "timings": {name: row[name] for name in _TIMINGS},
        "url": row["url"],
        "peer": row["peer"],
        "request_headers": row["request_headers"],
        "response_headers": row["response_headers"],
        "response_body": _text(row["response_body"], truncated=row["truncated"]),
        "response_truncated": row["truncated"],
    }


def _text(body: bytes | None, *, truncated: bool) -> str | None:
    """A body as text: bytes that are not UTF-8 replaced, a character cut in two left out."""
    if body is None:
        return None
    return codecs.getincrementaldecoder("utf-8")("replace").decode(body, final=not truncated)
