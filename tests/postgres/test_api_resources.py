"""The API's other resources: attempts, events, tenants, verbs of endpoints, stats, audit log."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from flask import Flask

from tests.api import Api
from tests.dispatching import dispatching, make_target
from tests.queue import claim, delivered, make_endpoint, one, outcome, register, statuses
from tests.recorder import Recorder
from tests.stack import eventually
from webhooks import ids, rollups, trial_events
from webhooks.api import endpoint_verbs
from webhooks.attempt import ErrorClass, Timings
from webhooks.deliveries import Settlement, settlement
from webhooks.settings import Settings
from webhooks.tally import Tally


@pytest.fixture
def api(app: Flask) -> Api:
    return Api(app)


def fail(connection: psycopg.Connection, times: int) -> str:
    """A delivery that failed so often, and died; its id."""
    worker_id = register(connection)
    for n in range(times):
        connection.execute(
            "UPDATE webhooks.deliveries_queue SET status = 'pending', due_at = NULL "
            "WHERE status = 'scheduled'"
        )
        (held,) = claim(connection, worker_id)

        wait = None if n == times - 1 else timedelta(hours=1)
        failed = outcome(ErrorClass.HTTP_5XX, 500 + n)
        settlement.settle(connection, worker_id, [Settlement(held, failed, wait)])
        connection.execute("UPDATE webhooks.lanes SET open_at = '-infinity', broken_s = 0")
    return ids.encode(ids.DELIVERY, held.delivery_id)


def test_attempts_are_listed_both_ways_and_read_by_number(
    api: Api, connection: psycopg.Connection
) -> None:
    """Newest first, by pages; one alone is what the list shows."""
    make_endpoint(connection)
    api.event()
    delivery = fail(connection, 5)
    path = f"/deliveries/{delivery}/attempts"

    first = api.get(f"{path}?limit=2").json
    second = api.get(f"{path}?limit=2&cursor={first['next']}").json
    third = api.get(f"{path}?limit=2&cursor={second['next']}").json

    numbers = [[each["number"] for each in page["data"]] for page in (first, second, third)]
    assert numbers == [[5, 4], [3, 2], [1]]
    assert third["next"] is None
    assert api.get(f"{path}?limit=2&cursor={second['prev']}").json["data"] == first["data"]
    assert api.get(f"{path}/4").json == first["data"][1]
    assert first["data"][1]["status_code"] == 503
    for number in ("0", "6", "99999999999999999999"):
        assert api.get(f"{path}/{number}").status_code == 404
    assert api.get(f"{path}/-1").status_code == 404
    assert api.get(f"{path}/x").status_code == 404


def test_a_waiting_delivery_is_cancelled_with_its_reason(
    api: Api, connection: psycopg.Connection
) -> None:
    """It is on record who did it; what is in flight or has finished is a conflict."""
    make_endpoint(connection)
    api.event()
    (found,) = api.get("/deliveries").json["data"]
    path = f"/deliveries/{found['id']}"

    cancelled = api.post(f"{path}/cancel", {"reason": "the customer asked"})

    assert cancelled.status_code == 202
    assert (cancelled.json["status"], cancelled.json["reason"]) == (
        "cancelled", "the customer asked",
    )  # fmt: skip
    again = api.post(f"{path}/cancel", {})
    assert (again.status_code, "it is cancelled" in again.json["detail"]) == (409, True)
    assert api.post(f"{path}/replay").status_code == 202
    claim(connection, register(connection))
    in_flight = api.post(f"{path}/cancel", {})
    assert (in_flight.status_code, "wait" in in_flight.json["detail"]) == (409, True)
    assert api.post(f"{path}/cancel", {"reason": "a\nb"}).json["errors"][0]["field"] == "reason"
    (entry,) = api.get("/audit-log?action=delivery.cancelled").json["data"]
    assert entry["actor"].startswith("API key")
    assert (entry["object"], entry["detail"]) == (found["id"], {"reason": "the customer asked"})


def test_events_are_listed_newest_first(api: Api, connection: psycopg.Connection) -> None:
    """By type and time; a payload that is gone has no size."""
    sent = [api.post("/events", {"type": f"t.{n % 2}", "payload": n}).json["id"] for n in range(4)]

    page = api.get("/events?limit=3").json
    rest = api.get(f"/events?limit=3&cursor={page['next']}").json

    assert [row["id"] for row in (*page["data"], *rest["data"])] == sent[::-1]
    assert page["data"][0] == {
        "id": sent[3], "tenant": "default", "type": "t.1", "payload_bytes": 1,
        "created_at": page["data"][0]["created_at"],
    }  # fmt: skip
    assert {row["type"] for row in api.get("/events?event_type=t.0").json["data"]} == {"t.0"}
    assert api.get("/events?to=2020-01-01T00:00:00Z").json["data"] == []
    assert len(api.get("/events?from=2020-01-01T00:00:00Z").json["data"]) == 4


def test_late_commits_are_seen_by_who_reads_some_seconds_twice(
    api: Api, connection: psycopg.Connection, database_url: str
) -> None:
    """An event whose transaction began first and ended last lies below one that was listed:
    the next look from the top, with an overlap, has both (W146).
    """
    with psycopg.connect(database_url) as slow:
        early = slow.execute("SELECT webhooks.emit('default', 'slow', '1')").fetchone()
        late = api.post("/events", {"type": "quick", "payload": 1}).json["id"]
        seen = {row["id"] for row in api.get("/events").json["data"]}
        assert seen == {late}
        slow.commit()
    assert early is not None
    seen |= {row["id"] for row in api.get("/events").json["data"]}
    assert seen == {late, ids.encode(ids.EVENT, early[0])}


def test_tenants_are_managed_by_a_key_of_all_tenants(app: Flask, api: Api) -> None:
    """Made, listed, read and changed by their key; another's key sees its own alone."""
    made = api.post("/tenants", {"key": "acme", "name": "Acme Inc."})
    assert made.status_code == 201
    assert made.headers["Location"] == "/api/v1/tenants/acme"
    assert [t["key"] for t in api.get("/tenants").json["data"]] == ["acme", "default"]
    changed = api.patch(
        "/tenants/acme",
        {"name": "Acme", "payload_days": 7, "retry_policy": {"delays_s": [1]}},
    ).json
    assert (changed["name"], changed["payload_days"]) == ("Acme", 7)
    assert api.get("/tenants/acme").json == changed

    own = Api(app, "acme")
    assert own.get("/tenants/acme").json == changed
    assert own.get("/tenants").status_code == own.post("/tenants", {"key": "x"}).status_code == 403
    assert own.patch("/tenant", {"payload_days": None}).json["payload_days"] is None
    for fields, field in (
        ({"payload_days": 0}, "payload_days"), ({"name": ""}, "name"), ({"nmae": "x"}, "nmae"),
        ({"retry_policy": {"attempts": 0}}, "retry_policy.attempts"),
    ):  # fmt: skip
        answer = api.patch("/tenants/acme", fields)
        assert (answer.status_code, answer.json["errors"][0]["field"]) == (422, field)
    assert api.post("/tenants", {"key": "acme"}).json["errors"][0]["field"] == "key"


def test_pause_and_resume_are_verbs(api: Api, connection: psycopg.Connection) -> None:
    """Each may be repeated; the reason is kept, and what is released is said."""
    endpoint = api.endpoint()
    path = f"/endpoints/{endpoint}"

    for _ in range(2):
        paused = api.post(f"{path}/pause", {"reason": "maintenance"}).json
        assert (paused["status"], paused["status_reason"]) == ("paused", "maintenance")
    api.event()
    resumed = api.post(f"{path}/resume", {"release": {"mode": "none"}}).json
    assert resumed["status"] == "active"
    assert statuses(connection) == {"cancelled": 1}
    assert api.post(f"{path}/resume", {}).json["status"] == "active"
    for verb, body, field in (
        ("pause", {"reason": "a\nb"}, "reason"),
        ("resume", {"release": {"mode": "some"}}, "release.mode"),
    ):
        answer = api.post(f"{path}/{verb}", body)
        assert (answer.status_code, answer.json["errors"][0]["field"]) == (422, field)


def test_a_test_event_goes_the_usual_way_to_one_endpoint(
    api: Api, settings: Settings, connection: psycopg.Connection
) -> None:
    """Signed and recorded like any other; the answer is the delivery with its attempt."""
    with Recorder(lambda nth, _: 500 if nth > 1 else 200) as receiver:
        endpoint = ids.encode(ids.ENDPOINT, make_target(connection, receiver.url))
        make_target(connection, f"{receiver.url}/other")
        connection.execute("UPDATE webhooks.subscriptions SET pattern = 'other'")
        with dispatching(settings, retry_attempts=1):
            good = api.post(f"/endpoints/{endpoint}/test", {})
            bad = api.post(f"/endpoints/{endpoint}/test",
                           {"event_type": "a.b", "payload": {"n": 1}})  # fmt: skip

    assert (good.status_code, good.json["status"]) == (200, "delivered")
    assert good.json["attempts"][0]["status_code"] == 200
    assert good.headers["Location"] == f"/api/v1/deliveries/{good.json['id']}"
    assert bad.json["attempts"][0]["error_class"] == "http_5xx"
    assert [(r.path, r.body) for r in receiver.requests][1] == ("/hook", b'{"n": 1}')
    assert receiver.requests[0].headers["webhook-event-type"] == "webhooks.test"
    assert len(receiver.requests) == 2


def test_a_test_that_takes_long_goes_on(
    api: Api, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """202 with the delivery's address; to a paused endpoint nothing is sent."""
    monkeypatch.setattr(endpoint_verbs, "PATIENCE_S", 0.2)
    endpoint = api.endpoint()

    answer = api.post(f"/endpoints/{endpoint}/test", {})

    assert (answer.status_code, answer.json["status"]) == (202, "pending")
    assert api.get(answer.headers["Location"].removeprefix("/api/v1")).json == answer.json
    api.post(f"/endpoints/{endpoint}/pause", {})
    refused = api.post(f"/endpoints/{endpoint}/test", {})
    assert (refused.status_code, "paused" in refused.json["detail"]) == (409, True)
    assert statuses(connection) == {"pending": 1}


def test_a_test_event_is_an_example_of_its_type(
    api: Api, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalogue's, byte for byte; what is given is JSON in UTF-8, as for any event."""
    monkeypatch.setattr(endpoint_verbs, "PATIENCE_S", 0)
    path = f"/endpoints/{api.endpoint()}/test"
    api.call("POST", "/event-types", b'{"name": "a.b", "example": {"n":  1.50}}')

    for event_type, payload in (("a.b", b'{"n":  1.50}'), ("a.c", trial_events.PAYLOAD)):
        sent = api.post(path, {"event_type": event_type}).json
        assert api.get(f"/events/{sent['event']}/payload").data == payload
    given = api.post(path, {"event_type": "a.b", "payload": None}).json
    assert api.get(f"/events/{given['event']}/payload").data == b"null"
    odd = api.call("POST", path, b'{"payload": "\xff"}')
    assert (odd.status_code, odd.json["errors"][0]["field"]) == (400, "payload")


def test_only_some_wait_for_their_test_events(
    api: Api, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes when as many wait already is told at once where to look: emit needs threads."""
    monkeypatch.setattr(endpoint_verbs, "_waiting", threading.BoundedSemaphore(1))
    path = f"/endpoints/{api.endpoint()}/test"
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(api.post(path, {}).status_code))
    asking.start()
    eventually(lambda: statuses(connection) == {"pending": 1})

    began = time.monotonic()
    assert api.post(path, {}).status_code == 202
    assert time.monotonic() - began < endpoint_verbs.PATIENCE_S / 2

    held = claim(connection, register(connection))
    worker_id = one(connection, "SELECT id FROM webhooks.workers")
    settlement.settle(connection, worker_id, [delivered(each) for each in held])
    asking.join()
    assert answers == [200]


def test_an_endpoints_stats_and_backlog(api: Api, connection: psycopg.Connection) -> None:
    """Attempts by outcome with their durations, and what waits, with the reason."""
    endpoint_id = make_endpoint(connection)
    path = f"/endpoints/{ids.encode(ids.ENDPOINT, endpoint_id)}"
    empty = api.get(f"{path}/stats").json
    assert empty["last_24_h"] == {
        "from": empty["last_24_h"]["from"], "delivered": 0, "failed": 0, "dead_lettered": 0,
        "success_share": None, "p50_ms": None, "p95_ms": None,
    }  # fmt: skip
    assert (empty["last_success_at"], empty["last_failure_at"]) == (None, None)
    for _ in range(3):
        api.event()
    worker_id = register(connection)
    held = claim(connection, worker_id, room=1)[0]
    tally = Tally()
    slow = Timings(total_ms=100.0)
    tally.add((held, outcome(None, 200, timings=slow), True) for _ in range(3))
    tally.add([(held, outcome(ErrorClass.TIMEOUT), True)])
    rollups.flush(connection, tally.take())

    day = api.get(f"{path}/stats").json["last_24_h"]
    backlog = api.get(f"{path}/backlog").json
    whole = api.get("/stats").json

    assert (day["delivered"], day["failed"], day["dead_lettered"]) == (3, 1, 1)
    assert day["success_share"] == 0.75
    assert day["p50_ms"] == pytest.approx(100, rel=0.16)
    assert (backlog["pending"], backlog["scheduled"], backlog["in_flight"]) == (2, 0, 1)
    assert 0 < backlog["oldest_pending_s"] < 60
    assert 2 / 4 * 240 <= backlog["drains_in_s"] <= 2 / 4 * 300
    assert backlog["lane"]["state"] == "open"
    assert (whole["pending"], whole["in_flight"]) == (2, 1)
    assert whole["last_hour"]["delivered"] == 3
    assert 4 / 5 <= whole["finished_per_min"] <= 4 / 4
    assert whole["workers"] == {"live": 1, "in_flight": 0, "capacity": 100}
    own = api.get("/stats?tenant=default").json
    assert (own["last_5_min"]["failed"], own["pending"], own["workers"]) == (1, 2, None)
    api.post(f"{path}/pause", {})
    paused = api.get(f"{path}/backlog").json
    assert (paused["lane"]["state"], paused["drains_in_s"]) == ("paused", None)


def test_workers_are_shown_with_their_lease(
    app: Flask, api: Api, connection: psycopg.Connection
) -> None:
    """To a key of all tenants alone."""
    live, dead = register(connection), register(connection)
    connection.execute("UPDATE webhooks.workers SET lease = '-1 h' WHERE id = %s", [dead])

    found = {row["id"]: row for row in api.get("/workers").json["data"]}

    assert {key: row["live"] for key, row in found.items()} == {str(live): True, str(dead): False}
    assert found[str(live)]["capacity"] == 100
    page = api.get("/workers?limit=1").json
    rest = api.get(f"/workers?limit=1&cursor={page['next']}").json
    assert [row["id"] for row in (*page["data"], *rest["data"])] == [str(dead), str(live)]
    assert Api(app, "acme").get("/workers").status_code == 403


def test_the_audit_log_is_searched(app: Flask, api: Api) -> None:
    """By action, object, actor and time; a tenant's key sees its own entries."""
    acme = Api(app, "acme")
    endpoint = acme.endpoint()
    acme.post(f"/endpoints/{endpoint}/pause", {"reason": "why"})

    (entry,) = api.get(f"/audit-log?object={endpoint}&action=endpoint.pause").json["data"]

    assert (entry["detail"]["reason"], entry["tenant"]) == ("why", "acme")
    assert entry["actor"].startswith("API key test (")
    assert {e["object"] for e in acme.get("/audit-log").json["data"]} >= {endpoint}
    assert len(acme.get("/audit-log").json["data"]) < len(api.get("/audit-log").json["data"])
    assert api.get("/audit-log?actor=nobody").json["data"] == []
    for query in ("action=%00", "object=", "actor=" + "x" * 201, "from=now"):
        assert api.get(f"/audit-log?{query}").status_code == 422


def test_nothing_is_held_while_a_test_event_is_on_its_way(
    app: Flask, api: Api, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No transaction stays open: a lock or an old snapshot would slow the queue down."""
    monkeypatch.setattr(endpoint_verbs, "PATIENCE_S", 1.0)
    endpoint = api.endpoint()
    asking = threading.Thread(target=api.post, args=[f"/endpoints/{endpoint}/test", {}])
    asking.start()
    eventually(lambda: statuses(connection) == {"pending": 1})
    idle: list[Any] = []
    for _ in range(20):
        idle += connection.execute(
            "SELECT query FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' "
            "AND datname = current_database() AND state_change < clock_timestamp() - "
            "interval '80 ms'"
        ).fetchall()
        connection.execute("SELECT pg_sleep(0.02)")
    asking.join()
    assert idle == []
