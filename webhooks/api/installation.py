"""GET /workers and /stats: who delivers, what waits, how it goes."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import psycopg
from flask import Blueprint, Response, request
from sqlalchemy import Row, func, select

from webhooks import backlog, stats, workers
from webhooks.api import pages
from webhooks.api.authentication import require_all_tenants, tenant_to_read
from webhooks.api.bodies import Timestamp, answer, rfc3339
from webhooks.api.endpoint_stats import Outcomes, shown_outcomes
from webhooks.api.operations import Parameter, operation
from webhooks.api.pages import Page
from webhooks.db import INDEXES_ONLY, transaction
from webhooks.models import Worker
from webhooks.rollups import ALL
from webhooks.scopes import Scope
from webhooks.web_database import psycopg_connection

FIVE_MINUTES, HOUR, DAY = timedelta(minutes=5), timedelta(hours=1), timedelta(days=1)

blueprint = Blueprint("installation", __name__)


class ShownWorker(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A delivery worker. ``live``: its lease runs; what it holds is taken back otherwise."""

    id: str
    host: str
    pid: int
    version: str
    started_at: Timestamp
    seen_at: Timestamp
    in_flight: int
    capacity: int
    live: bool


class Workers(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """All live workers together, as they said at their last beat."""

    live: int
    in_flight: int
    capacity: int


class Stats(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Counts end at ``counted_up_to``: that many or more.

    ``oldest_pending_s``: how long a delivery has waited for its first try that could go at
    once; null: none has to. ``workers``: null for one tenant, as they are everybody's.
    """

    pending: int
    in_flight: int
    scheduled: int
    counted_up_to: int
    oldest_pending_s: float | None
    finished_per_min: float
    last_5_min: Outcomes
    last_hour: Outcomes
    last_24_h: Outcomes
    workers: Workers | None


@blueprint.get("/workers")
@operation(Scope.ADMIN, answer=Page[ShownWorker], parameters=pages.PARAMETERS)
def list_workers() -> Response:
    """The delivery workers, newest first; for a key of all tenants."""
    require_all_tenants()
    pages.check_parameters("limit", "cursor")
    is_live = func.clock_timestamp() - Worker.seen_at <= Worker.lease
    return answer(pages.by_id(select(Worker, is_live), Worker.id, _shown))


@blueprint.get("/stats")
@operation(
    Scope.DELIVERIES_READ,
    answer=Stats,
    parameters=(Parameter("tenant", "Of this tenant alone; for a key of all tenants"),),
)
def read() -> Response:
    """What is live, how long it waits, and the attempts of the last times, by roll-ups that lag
    by up to five seconds.
    """
    pages.check_parameters("tenant")
    tenant_id = tenant_to_read(request.args.get("tenant"))
    with (
        pages.search(),
        psycopg_connection() as connection,
        transaction(connection, *INDEXES_ONLY),
    ):
        first = backlog.first_in_line(connection, tenant_id)
        recent, hour, day = (
            stats.outcomes(connection, tenant_id, ALL, period)
            for period in (FIVE_MINUTES, HOUR, DAY)
        )
        found = Stats(
            **backlog.live(connection, tenant_id),
            counted_up_to=backlog.MOST_COUNTED,
            oldest_pending_s=first.seconds if first else None,
            finished_per_min=recent.finished_per_s * 60,
            last_5_min=shown_outcomes(recent),
            last_hour=shown_outcomes(hour),
            last_24_h=shown_outcomes(day),
            workers=_workers(connection) if tenant_id is None else None,
        )
    return answer(found)


def _workers(connection: psycopg.Connection) -> Workers:
    live, in_flight, capacity = workers.totals(connection)
    return Workers(live=live, in_flight=in_flight, capacity=capacity)


def _shown(row: Row[Worker, bool]) -> ShownWorker:
    worker, is_live = row
    return ShownWorker(
        id=str(worker.id),
        host=worker.host,
        pid=worker.pid,
        version=worker.version,
        started_at=rfc3339(worker.started_at),
        seen_at=rfc3339(worker.seen_at),
        in_flight=worker.in_flight,
        capacity=worker.capacity,
        live=is_live,
    )
