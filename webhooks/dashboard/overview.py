"""The front page: how the queue stands and what needs a person."""

from __future__ import annotations

from flask import g, request
from werkzeug.wrappers import Response

from webhooks.dashboard import lists, queries
from webhooks.dashboard.live import page
from webhooks.dashboard.site import Permission, blueprint, needs

LATEST = 8


@blueprint.get("/")
@needs(Permission.READ)
def overview() -> Response:
    """Counts, workers, what needs attention, and what was delivered last."""
    midnight = g.now.replace(hour=0, minute=0, second=0, microsecond=0)
    workers = queries.workers()
    alive = [worker for worker in workers if not worker["lost"]]
    return page(
        "overview.html",
        counts=queries.overview(midnight),
        workers=workers,
        slots=sum(worker["capacity"] for worker in alive),
        attention=queries.attention(),
        dead_letters=queries.dead_letters(),
        dead_sample=queries.DEAD_SAMPLE,
        latest=lists.latest(LATEST),
        host_url=request.host_url,
    )
