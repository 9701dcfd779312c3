"""/endpoints/{id}/stats and /backlog: how it has gone, and what waits."""

from __future__ import annotations

from datetime import timedelta

import msgspec
from flask import Blueprint, Response

from webhooks import backlog, stats
from webhooks.api import endpoint_rows, pages
from webhooks.api.bodies import Timestamp, answer, rfc3339, timestamp
from webhooks.api.endpoint_rows import ShownLane
from webhooks.api.operations import operation
from webhooks.db import INDEXES_ONLY, transaction
from webhooks.lanes import State
from webhooks.scopes import Scope
from webhooks.web_database import psycopg_connection

# As long as its lane is in one of these, nothing leaves the queue.
STANDING = (State.BROKEN, State.PAUSED, State.DISABLED)
DAY, WEEK = timedelta(days=1), timedelta(days=7)

blueprint = Blueprint("endpoint_stats", __name__)


class Outcomes(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Attempts since the first whole minute of a period of up to two hours, or the first whole
    hour of a longer one; ``dead_lettered`` deliveries are among the failed. Durations in ms,
    right within a seventh.
    """

    from_: Timestamp = msgspec.field(name="from")
    delivered: int
    failed: int
    dead_lettered: int
    success_share: float | None
    p50_ms: float | None
    p95_ms: float | None


class EndpointStats(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The last success and failure are known to the minute, or to the hour or the day when they
    were long ago; null: none is on record.
    """

    endpoint: str
    last_24_h: Outcomes
    last_7_d: Outcomes
    last_success_at: Timestamp | None
    last_failure_at: Timestamp | None


class Backlog(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What waits for an endpoint. Counts end at ``counted_up_to``: that many or more.

    ``drains_in_s``: when what is pending will be gone, if it goes on as in the last five
    minutes; null: unknown. ``lane``: why it waits.
    """

    endpoint: str
    pending: int
    in_flight: int
    scheduled: int
    counted_up_to: int
    oldest_pending_s: float | None
    drains_in_s: float | None
    lane: ShownLane


@blueprint.get("/endpoints/<endpoint_id>/stats")
@operation(Scope.ENDPOINTS_READ, answer=EndpointStats)
def read_stats(endpoint_id: str) -> Response:
    """Attempts of the last day and week, by roll-ups that lag by up to five seconds."""
    pages.check_parameters()
    endpoint = endpoint_rows.find(endpoint_id)
    place = endpoint.tenant_id, endpoint.id
    with psycopg_connection() as connection, transaction(connection, *INDEXES_ONLY):
        day, week = (stats.outcomes(connection, *place, period) for period in (DAY, WEEK))
        success, failure = stats.last_times(connection, *place)
    return answer(
        EndpointStats(
            endpoint=endpoint_id,
            last_24_h=shown_outcomes(day),
            last_7_d=shown_outcomes(week),
            last_success_at=timestamp(success),
            last_failure_at=timestamp(failure),
        )
    )


@blueprint.get("/endpoints/<endpoint_id>/backlog")
@operation(Scope.ENDPOINTS_READ, answer=Backlog)
def read_backlog(endpoint_id: str) -> Response:
    """What waits, since when, why, and how long it will take."""
    pages.check_parameters()
    endpoint = endpoint_rows.find(endpoint_id)
    lane = endpoint_rows.shown_lane(endpoint_rows.read(endpoint.id))
    with psycopg_connection() as connection, transaction(connection, *INDEXES_ONLY):
        found = backlog.of_endpoint(connection, endpoint.tenant_id, endpoint.id)
    return answer(
        Backlog(
            endpoint=endpoint_id,
            pending=found.pending,
            in_flight=found.in_flight,
            scheduled=found.scheduled,
            counted_up_to=backlog.MOST_COUNTED,
            oldest_pending_s=found.oldest_pending_s,
            drains_in_s=None if lane.state in STANDING else found.drains_in_s,
            lane=lane,
        )
    )


def shown_outcomes(found: stats.Outcomes) -> Outcomes:
    """Outcomes as the API shows them."""
    return Outcomes(
        from_=rfc3339(found.since),
        delivered=found.delivered,
        failed=found.failed,
        dead_lettered=found.dead_lettered,
        success_share=found.success_share,
        p50_ms=found.p50_ms,
        p95_ms=found.p95_ms,
    )
