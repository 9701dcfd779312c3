"""How often a key may write (a token bucket in the database), and emit (in each process).

Headers: draft-ietf-httpapi-ratelimit-headers-10.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from uuid import UUID

from flask import Response, current_app, g, request

from webhooks import buckets
from webhooks.api.authentication import credential
from webhooks.api.bodies import settings
from webhooks.api.operations import Operation
from webhooks.api.problems import Problem
from webhooks.buckets import Bucket, Taken
from webhooks.scopes import Scope
from webhooks.web_database import psycopg_connection

WRITING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
MINUTE_S = 60.0
MOST_KEYS = 10_000


class Emits:
    """Emits of each key in this process: one second's worth at once. Any thread may use it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._due: OrderedDict[UUID, float] = OrderedDict()

    def wait_s(self, key_id: UUID, per_second: int) -> float:
        """Take one; seconds to wait instead when there is none (GCRA, ITU-T I.371)."""
        now = self._clock()
        with self._lock:
            due = max(self._due.get(key_id, now), now)
            if due - now > 1 - 1 / per_second:
                return due - now - (1 - 1 / per_second)
            self._due[key_id] = due + 1 / per_second
            self._due.move_to_end(key_id)
            if len(self._due) > MOST_KEYS:
                self._due.popitem(last=False)
        return 0.0


def check() -> None:
    """Before each request: Problem 429 when the key has used up what it may."""
    view = current_app.view_functions.get(request.endpoint or "")
    described: Operation | None = getattr(view, "operation", None)
    if described is None or described.public or request.method not in WRITING:
        return
    if described.scope is Scope.EVENTS_WRITE:
        _check_emit()
    else:
        _check_write()


def show(response: Response) -> Response:
    """After each request: what is left."""
    taken: Taken | None = g.pop("writes_taken", None)
    if taken is not None:
        response.headers["RateLimit-Policy"] = f'"writes";q={settings().writes_per_minute};w=60'
        response.headers["RateLimit"] = f'"writes";r={taken.left};t={math.ceil(taken.wait_s)}'
    return response


def _check_emit() -> None:
    most = settings().emits_per_second
    if most == 0:
        return
    emits: Emits = current_app.extensions["webhooks_emits"]
    wait_s = emits.wait_s(credential().key_id, most)
    if wait_s > 0:
        raise _too_many(f"{most} emits a second by each web process", wait_s)


def _check_write() -> None:
    most = settings().writes_per_minute
    if most == 0:
        return
    with psycopg_connection() as connection:
        taken = buckets.take(
            connection, Bucket(most, MINUTE_S), "api writes", credential().public_id
        )
    g.writes_taken = taken
    if not taken.allowed:
        raise _too_many(f"{most} writes a minute", taken.wait_s)


def _too_many(what: str, wait_s: float) -> Problem:
    seconds = max(1, math.ceil(wait_s))
    return Problem(
        429, f"this key may make {what}; try again in {seconds} s",
        headers={"Retry-After": str(seconds)},
    )  # fmt: skip
