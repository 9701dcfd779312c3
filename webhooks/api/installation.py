"""GET /workers and /stats: who delivers, what waits, how it goes."""

from __future__ import annotations

from datetime import timedelta

from flask import Blueprint, Response, request

from webhooks import stats
from webhooks.api import pages
from webhooks.api.authentication import require_all_tenants, tenant_to_read
from webhooks.api.bodies import answer, timestamp
from webhooks.api.endpoint_verbs import shown_outcomes
from webhooks.api.operations import Parameter, operation
from webhooks.rollups import ALL
from webhooks.scopes import Scope
from webhooks.web_database import psycopg_connection

MOST_WORKERS = 1_000
WORKERS = """
SELECT id, host, pid, version, started_at, seen_at, in_flight, capacity,
       clock_timestamp() - seen_at <= lease
FROM webhooks.workers ORDER BY started_at, id LIMIT %s
"""
COLUMNS = (
    "id", "host", "pid", "version", "started_at", "seen_at", "in_flight", "capacity", "live",
)  # fmt: skip

blueprint = Blueprint("installation", __name__)


@blueprint.get("/workers")
@operation(Scope.ADMIN)
def workers() -> Response:
    """The delivery workers, oldest first; for a key of all tenants. ``live``: its lease runs."""
    require_all_tenants()
    pages.check_parameters()
    with psycopg_connection() as connection:
        rows = connection.execute(WORKERS, [MOST_WORKERS]).fetchall()
    return answer({"data": [_shown(row) for row in rows]})


@blueprint.get("/stats")
@operation(
    Scope.DELIVERIES_READ,
    parameters=(Parameter("tenant", "Of this tenant alone; for a key of all tenants"),),
)
def read() -> Response:
    """What is live, counted up to 10,000 of each state, and the attempts of the last times."""
    pages.check_parameters("tenant")
    tenant_id = tenant_to_read(request.args.get("tenant"))
    with psycopg_connection() as connection, pages.search():
        live = stats.live(connection, tenant_id)
        periods = {
            "last_5_min": timedelta(minutes=5),
            "last_hour": timedelta(hours=1),
            "last_24_h": timedelta(hours=24),
        }
        found = {
            name: shown_outcomes(stats.outcomes(connection, tenant_id, ALL, period))
            for name, period in periods.items()
        }
    return answer({**live, "counted_up_to": stats.MOST_COUNTED, **found})


def _shown(row: tuple[object, ...]) -> dict[str, object]:
    fields = dict(zip(COLUMNS, row, strict=True))
    times = {name: timestamp(fields[name]) for name in ("started_at", "seen_at")}  # type: ignore[arg-type]
    return {**fields, **times, "id": str(fields["id"])}
