"""endpoints: paused, disabled, resumed, and what is released of what was held."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from flask import Flask

from tests.endpoints import create, lane
from tests.queue import (
    claim,
    delivered,
    emit,
    make_endpoints,
    one,
    outcome,
    register,
    statuses,
)
from webhooks import deliveries, endpoints, fanouts
from webhooks.attempt import ErrorClass
from webhooks.db import EVER_SINCE
from webhooks.deliveries import NO_CURSOR, Settlement, cancelling
from webhooks.lanes import DEFAULT_RULES, Rules
from webhooks.models import Endpoint, db
from webhooks.release import Mode, Release, Unfinished
from webhooks.settings import Settings


@pytest.fixture
def context(app: Flask) -> Iterator[Flask]:
    """The app, in its context."""
    with app.app_context():
        yield app


def test_a_paused_endpoint_holds_its_deliveries(
    context: Flask, connection: psycopg.Connection
) -> None:
    """Held is pending behind a closed lane; resuming releases all of it."""
    endpoint, _ = create(context)
    worker = register(connection)

    endpoints.pause(endpoint, actor="ada")
    emit(connection, 3)
    held = claim(connection, worker)
    reason = endpoint.status_reason
    endpoints.resume(endpoint, actor="bob")

    assert (held, reason) == ((), "paused by ada")
    assert (endpoint.status, endpoint.status_reason) == ("active", None)
    assert len(claim(connection, worker)) == 3


def test_resuming_forgets_the_failures_and_wakes_the_workers(
    context: Flask, connection: psycopg.Connection
) -> None:
    """One more failure after it must not disable the endpoint again (W090)."""
    calls: list[bool] = []

    class Recorder:
        def notify(self) -> None:
            calls.append(True)

    context.extensions["webhooks_notifier"] = Recorder()
    endpoint, _ = create(context)
    connection.execute(
        "UPDATE webhooks.lanes SET failures = 19, blocked = 2, strikes = 19, broken_s = 60, "
        "failing_since = now(), failed_at = now(), warned_at = now(), throttled_at = now(), "
        "open_at = 'infinity', rate_open_at = 'infinity', closed_reason = 'x', "
        "closed_status = 'disabled'"
    )
    connection.execute(
        "UPDATE webhooks.endpoints SET status = 'disabled', status_reason = 'x', "
        "status_evidence = '{\"failures\": 19}'"
    )

    endpoints.resume(endpoint, actor="ada")

    now = lane(connection)
    counts = [now[name] for name in ("failures", "blocked", "strikes", "broken_s")]
    times = [now[name] for name in ("failing_since", "failed_at", "warned_at", "throttled_at")]
    assert (counts, times) == ([0] * 4, [None] * 4)
    assert (now["open"], now["closed_reason"], now["closed_status"]) == (True, None, None)
    assert now["rate_open_at"] == EVER_SINCE
    assert (endpoint.status, endpoint.status_evidence) == ("active", None)
    assert calls == [True]


@pytest.mark.parametrize(
    ("change", "opened", "actions"),
    [
        ({"status": "active"}, True, ["endpoint.resume"]),
        ({"url": "https://elsewhere.example/hook"}, True, ["endpoint.update"]),
        ({"headers": {"X-Tenant": "a"}}, True, ["endpoint.update"]),
        ({"description": "ours"}, False, ["endpoint.update"]),
    ],
    ids=["active", "url", "headers", "description"],
)
def test_a_person_opens_a_lane_that_the_breaker_closed(
    context: Flask,
    connection: psycopg.Connection,
    change: dict[str, Any],
    opened: bool,
    actions: list[str],
) -> None:
    """Active again, or another URL: what failed before counts no more. The log says who it was."""
    endpoint, _ = create(context)
    connection.execute(
        "UPDATE webhooks.lanes SET failures = 12, strikes = 12, broken_s = 60, "
        "failing_since = now(), open_at = now() + interval '1 hour', "
        "throttle_until = now() + interval '1 hour', closed_reason = 'breaker'"
    )

    endpoints.update(endpoint, context.extensions["webhooks_settings"], actor="ada", **change)

    now = lane(connection)
    assert (now["open"], now["broken_s"] == 0, now["failures"] == 0) == (opened,) * 3
    rows = connection.execute("SELECT action, actor FROM webhooks.audit_log ORDER BY id").fetchall()
    assert rows[1:] == [(action, "ada") for action in actions]


def fail(
    connection: psycopg.Connection, worker_id: UUID, times: int, rules: Rules = DEFAULT_RULES
) -> None:
    """Let one attempt after another time out, in a settle each."""
    failed = outcome(ErrorClass.HTTP_4XX, 404)
    for _ in range(times):
        (found,) = claim(connection, worker_id)[:1]
        deliveries.settle(connection, worker_id, [Settlement(found, failed, None)], rules)


def test_a_resumed_endpoint_counts_from_nothing(
    context: Flask, connection: psycopg.Connection
) -> None:
    """Disabled after 20 failures, switched on, one more fails: still on (W090, W092)."""
    endpoint, _ = create(context, max_in_flight=1)
    worker_id, rules = register(connection), Rules(disable_after_s=0)
    emit(connection, 30)
    fail(connection, worker_id, 20, rules)
    db.session.refresh(endpoint)
    evidence = endpoint.status_evidence
    assert (endpoint.status, evidence and evidence["failures"]) == ("disabled", 20)
    assert claim(connection, worker_id) == ()

    endpoints.resume(endpoint, actor="ada")
    fail(connection, worker_id, 1, rules)

    db.session.refresh(endpoint)
    assert (endpoint.status, lane(connection)["failures"]) == ("active", 1)
    (found,) = claim(connection, worker_id)
    deliveries.settle(connection, worker_id, [delivered(found)])
    assert lane(connection)["failures"] == 0


def hold(context: Flask, connection: psycopg.Connection) -> Endpoint:
    """A paused endpoint with a scheduled and three pending deliveries, then two newer ones."""
    endpoint, _ = create(context)
    worker_id = register(connection)
    emit(connection)
    (failed,) = claim(connection, worker_id)
    retry = Settlement(failed, outcome(ErrorClass.TIMEOUT), timedelta(hours=1))
    deliveries.settle(connection, worker_id, [retry])
    endpoints.pause(endpoint, actor="ada")
    emit(connection, 3)
    connection.execute("SELECT pg_sleep(0.005)")
    return endpoint


@pytest.mark.parametrize(
    ("mode", "cancelled", "left"),
    [("all", 0, {"pending": 5, "scheduled": 1}), ("since", 4, {"pending": 2, "cancelled": 4}),
     ("none", 6, {"cancelled": 6})],
)  # fmt: skip
def test_what_is_released_is_chosen_when_resuming(
    context: Flask, connection: psycopg.Connection, mode: str, cancelled: int, left: dict[str, int]
) -> None:
    """All, what was made since a time, or none; the rest is cancelled with that reason."""
    endpoint = hold(context, connection)
    since = one(connection, "SELECT now()")
    emit(connection, 2)
    release = Release(Mode(mode), since if mode == "since" else None)

    assert endpoints.resume(endpoint, actor="bob", release=release) == cancelled

    assert statuses(connection) == left
    reasons = connection.execute(
        "SELECT DISTINCT reason FROM webhooks.deliveries WHERE status = 'cancelled'"
    ).fetchall()
    assert reasons == ([("not released when the endpoint was resumed",)] if cancelled else [])
    assert lane(connection)["open"] is True
    detail = one(
        connection, "SELECT detail FROM webhooks.audit_log WHERE action = 'endpoint.resume'"
    )
    times = {"since": since.isoformat()} if mode == "since" else {}
    assert detail == {"release": mode, "cancelled": cancelled, **times}


def test_a_crash_while_cancelling_leaves_the_endpoint_paused(
    context: Flask, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent that was not to be released; doing it again finishes."""
    endpoint = hold(context, connection)
    work = cancelling._cancel
    done: list[int] = []

    def crash(*arguments: Any) -> int:
        if done:
            raise ConnectionError
        done.append(work(*arguments))
        return done[0]

    monkeypatch.setattr(cancelling, "_cancel", crash)
    with pytest.raises(ConnectionError):
        endpoints.resume(endpoint, actor="ada", release=Release(Mode.NONE))
    monkeypatch.undo()
    assert statuses(connection) == {"cancelled": 1, "pending": 3}
    assert (endpoint.status, lane(connection)["open"]) == ("paused", False)

    assert endpoints.resume(endpoint, actor="ada", release=Release(Mode.NONE)) == 3

    assert (endpoint.status, lane(connection)["open"]) == ("active", True)


def test_more_than_one_request_can_cancel_is_told(
    context: Flask, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while the request ends: the endpoint is still paused, and asking again goes on."""
    endpoint, none = hold(context, connection), Release(Mode.NONE)
    monkeypatch.setattr("webhooks.release.LONGEST_S", 0)

    with pytest.raises(Unfinished, match="cancelled so far: 1; there are more"):
        endpoints.resume(endpoint, actor="ada", release=none)

    monkeypatch.undo()
    assert (endpoint.status, lane(connection)["open"]) == ("paused", False)
    assert statuses(connection) == {"cancelled": 1, "pending": 3}
    assert endpoints.resume(endpoint, actor="bob", release=none) == 3
    assert (endpoint.status, lane(connection)["open"]) == ("active", True)
    entries = connection.execute(
        "SELECT action, actor, detail FROM webhooks.audit_log ORDER BY id DESC LIMIT 2"
    ).fetchall()
    assert entries == [
        ("endpoint.resume", "bob", {"release": "none", "cancelled": 3}),
        ("endpoint.release", "ada", {"release": "none", "cancelled": 1}),
    ]


@pytest.mark.parametrize(("mode", "status"), [("none", "cancelled"), ("since", "pending")])
def test_what_an_open_fan_out_has_yet_to_make_is_released_or_not(
    context: Flask, connection: psycopg.Connection, mode: str, status: str
) -> None:
    """Its delivery is made, for the others' sake too, and cancelled where it is not released."""
    endpoint, _ = create(context)
    endpoint_id = endpoint.id
    make_endpoints(connection, 600)
    since = one(connection, "SELECT now()")
    endpoints.pause(endpoint, actor="ada")
    emit(connection)
    connection.execute("SELECT pg_sleep(0.005)")

    release = Release(Mode(mode), since if mode == "since" else None)
    cancelled = endpoints.resume(endpoint, actor="bob", release=release)
    while fanouts.expand(connection):
        pass

    assert cancelled == (mode == "none")
    found = "SELECT status FROM webhooks.deliveries WHERE endpoint_id = %s"
    assert one(connection, found, endpoint_id) == status
    assert sum(statuses(connection).values()) == 601
    assert statuses(connection).get("cancelled", 0) == cancelled


def test_a_large_deletion_is_finished_by_the_workers(
    context: Flask, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request ends after a while; what is left is cancelled on sight, and never sent."""
    monkeypatch.setattr(endpoints, "LONGEST_S", 0)
    endpoint, _ = create(context)
    emit(connection, 700)

    endpoints.delete(endpoint, actor="ada")

    assert statuses(connection) == {"pending": 700}
    batch = deliveries.claim(connection, register(connection), NO_CURSOR, 100)
    assert batch.claims == ()
    assert [deliveries.cancel_orphans(connection, batch.orphans) for _ in range(2)] == [500, 200]
    assert statuses(connection) == {"cancelled": 700}


def test_an_active_endpoint_has_nothing_to_release(
    context: Flask, connection: psycopg.Connection
) -> None:
    """Its deliveries are on their way; a repeated request cancels none of them."""
    endpoint, _ = create(context)
    emit(connection, 2)

    assert endpoints.resume(endpoint, actor="ada", release=Release(Mode.NONE)) == 0

    assert statuses(connection) == {"pending": 2}
    assert one(connection, "SELECT count(*) FROM webhooks.audit_log") == 1


def test_a_time_that_lies_ahead_is_refused(context: Flask, connection: psycopg.Connection) -> None:
    """By the database's clock, and nothing is cancelled."""
    endpoint = hold(context, connection)
    ahead = one(connection, "SELECT now() + interval '1 min'")

    with pytest.raises(endpoints.EndpointError) as caught:
        endpoints.resume(endpoint, actor="ada", release=Release(Mode.SINCE, ahead))

    assert caught.value.field == "release.since"
    assert (endpoint.status, statuses(connection)["pending"]) == ("paused", 3)


def test_a_person_can_disable_an_endpoint(context: Flask, connection: psycopg.Connection) -> None:
    """With a reason, held as paused; a replay to it is refused (W089)."""
    endpoint, _ = create(context)
    worker_id = register(connection)
    emit(connection)
    (first,) = claim(connection, worker_id)
    deliveries.settle(connection, worker_id, [delivered(first)])

    endpoints.disable(endpoint, actor="ada", reason="customer left")
    emit(connection)

    assert (endpoint.status, endpoint.status_reason) == ("disabled", "customer left")
    assert claim(connection, worker_id) == ()
    with pytest.raises(deliveries.Refused, match="customer left"):
        deliveries.replay(connection, first.delivery_id, None, actor="ada")


def test_fields_and_status_change_together_or_not_at_all(
    context: Flask, settings: Settings, connection: psycopg.Connection
) -> None:
    """One transaction: what is wrong with one leaves the other as it was."""
    endpoint, _ = create(context)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"description": "new", "status": "gone"}, "status"),
        ({"status": "paused", "timeout_s": 0}, "timeout_s"),
        ({"status_reason": "why"}, "status_reason"),
        ({"status": "active", "status_reason": "why"}, "status_reason"),
        ({"status": "paused", "status_reason": "a\nb"}, "status_reason"),
        ({"status": "paused", "status_reason": ""}, "status_reason"),
        ({"status": "paused", "release": Release()}, "release"),
        ({"release": Release()}, "release"),
    ]
    for change, field in wrong:
        with pytest.raises(endpoints.EndpointError) as caught:
            endpoints.update(endpoint, settings, actor="ada", **change)
        assert caught.value.field == field
    db.session.refresh(endpoint)
    assert (endpoint.status, endpoint.description) == ("active", "")

    endpoints.update(endpoint, settings, actor="ada", description="new", status="paused")

    assert (endpoint.status, endpoint.description) == ("paused", "new")
    actions = connection.execute("SELECT action FROM webhooks.audit_log ORDER BY id").fetchall()
    assert actions == [("endpoint.create",), ("endpoint.update",), ("endpoint.pause",)]
    assert one(
        connection, "SELECT count(DISTINCT xmin::text) FROM webhooks.audit_log WHERE action <> %s",
        "endpoint.create",
    ) == 1  # fmt: skip
