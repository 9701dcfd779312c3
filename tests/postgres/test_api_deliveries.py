"""GET /api/v1/deliveries, one delivery, its replays and retries."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from flask import Flask

from tests.api import Api, errors
from tests.queue import claim, delivered, one, outcome, register
from webhooks import deliveries, ids
from webhooks.api import delivery_lists
from webhooks.attempt import ErrorClass, Outcome, Timings
from webhooks.deliveries import Settlement

MINUTE = timedelta(minutes=1)


@pytest.fixture
def api(app: Flask) -> Api:
    """A caller with a key of all tenants."""
    return Api(app)


def data(api: Api, path: str = "/deliveries") -> list[dict[str, Any]]:
    """The whole list, page by page of 2."""
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = api.get(f"{path}{'&' if '?' in path else '?'}limit=2{cursor}").json
        assert page is not None
        found += page["data"]
        assert len(page["data"]) <= 2
        if page["next"] is None:
            return found
        cursor = f"&cursor={page['next']}"


def finish(
    connection: psycopg.Connection, failed: Outcome | None = None, *, delay: timedelta | None = None
) -> None:
    """Claim what is pending and settle it: delivered, or failed and retried after ``delay``."""
    worker = register(connection)
    deliveries.settle(
        connection,
        worker,
        [
            delivered(c) if failed is None else Settlement(c, failed, delay)
            for c in claim(connection, worker)
        ],
    )


def test_the_list_shows_live_deliveries_first_and_the_newest_first(
    api: Api, connection: psycopg.Connection
) -> None:
    """Pages follow one another over the queue and the history without gap or repeat."""
    api.endpoint("*")
    first = [api.event(payload=n) for n in range(3)]
    finish(connection)
    second = [api.event(payload=n) for n in range(2)]
    finish(connection, outcome(ErrorClass.HTTP_5XX, 500))
    live = [api.event(payload=n) for n in range(3)]

    found = data(api)

    assert [d["event"] for d in found] == live[::-1] + second[::-1] + first[::-1]
    assert [d["status"] for d in found] == (
        ["pending"] * 3 + ["dead_lettered"] * 2 + ["delivered"] * 3
    )
    assert len({d["id"] for d in found}) == 8
    assert [d["finished_at"] is None for d in found] == [True] * 3 + [False] * 5


def test_rows_that_finished_in_the_same_instant_are_all_shown(
    api: Api, connection: psycopg.Connection
) -> None:
    """A page may end among rows of equal time: the id decides."""
    api.endpoint("*")
    for n in range(5):
        api.event(payload=n)
    finish(connection)

    assert one(connection, "SELECT count(DISTINCT finished_at) FROM webhooks.deliveries") == 1
    assert len({d["id"] for d in data(api)}) == 5


def test_the_list_is_filtered(api: Api, connection: psycopg.Connection) -> None:
    """By status, endpoint and event, alone and together."""
    a, b = api.endpoint("a"), api.endpoint("*")
    event = api.event("a")
    finish(connection)
    other = api.event("b")

    def shown(query: str) -> list[tuple[str, str]]:
        return [(d["event"], d["endpoint"]) for d in data(api, f"/deliveries?{query}")]

    assert shown(f"endpoint={a}") == [(event, a)]
    assert shown(f"endpoint={b}") == [(other, b), (event, b)]
    assert sorted(shown(f"event={event}")) == sorted([(event, a), (event, b)])
    assert shown("status=pending") == [(other, b)]
    assert sorted(shown("status=delivered")) == sorted([(event, a), (event, b)])
    assert shown("status=dead_lettered") == []
    assert shown(f"status=delivered&endpoint={b}") == [(event, b)]
    assert shown(f"event={other}&status=delivered") == []
    assert shown(f"event=evt_{'0' * 26}") == []


@pytest.mark.parametrize("few_endpoints", [0, 200])
@pytest.mark.parametrize("query", ["", "status=delivered", "status=dead_lettered"])
def test_a_tenants_key_sees_its_own_deliveries_alone(
    app: Flask,
    api: Api,
    connection: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    few_endpoints: int,
    query: str,
) -> None:
    """Whichever way the history is read, merged by endpoint or filtered (W158)."""
    monkeypatch.setattr(delivery_lists, "FEW_ENDPOINTS", few_endpoints)
    acme = Api(app, "acme")
    for tenant in ("acme", "default"):
        api.endpoint("*", tenant=tenant)
        api.endpoint("*", tenant=tenant)
    for failed in (None, outcome(ErrorClass.HTTP_5XX, 500)):
        api.event(tenant="acme")
        api.event()
        finish(connection, failed)
    api.event()
    api.event(tenant="acme")

    found = data(acme, f"/deliveries?{query}")
    every = data(api, f"/deliveries?{query}")

    assert {d["tenant"] for d in found} == {"acme"}
    assert found == [d for d in every if d["tenant"] == "acme"]
    assert len(every) == 2 * len(found)
    assert data(api, f"/deliveries?tenant=acme&{query}") == found


def test_odd_parameters_are_refused(api: Api) -> None:
    """A problem that names the parameter, never a 5xx (W147)."""
    for path, field in [
        ("?limit=-1", "limit"),
        ("?limit=0", "limit"),
        ("?limit=201", "limit"),
        ("?limit=1000000000", "limit"),
        ("?limit=abc", "limit"),
        ("?limit=", "limit"),
        ("?limit=1.5", "limit"),
        ("?limit=%EF%BC%91", "limit"),
        ("?limit=1&limit=2", "limit"),
        ("?cursor=garbage", "cursor"),
        ("?cursor=", "cursor"),
        ("?cursor=%00", "cursor"),
        ("?cursor=%ff", "cursor"),
        ("?cursor=" + "A" * 33, "cursor"),
        ("?cursor=" + "_" * 31 + "é", "cursor"),
        ("?cursor=gAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "cursor"),
        ("?status=xyz", "status"),
        ("?status=%00", "status"),
        ("?endpoint=abc", "endpoint"),
        ("?endpoint=%00", "endpoint"),
        ("?event=ep_" + "0" * 26, "event"),
        ("?q=%00", "q"),
        ("?q=%ff", "q"),
        ("?from=10000-01-01", "from"),
        ("?statsu=pending", "statsu"),
    ]:
        answer = api.get(f"/deliveries{path}")
        assert answer.status_code == 422, path
        assert list(errors(answer)) == [field]


def test_odd_ids_and_cursors_that_can_be_read_find_nothing(api: Api) -> None:
    """Any 128 bits are an id and any instant a place: empty or 404, never a 5xx (W147)."""
    for digits in ("0" * 26, "7" + "z" * 25):
        assert data(api, f"/deliveries?event=evt_{digits}") == []
        assert data(api, f"/deliveries?endpoint=ep_{digits}") == []
        for path in ("", "/replay", "/retry"):
            method = "POST" if path else "GET"
            assert api.call(method, f"/deliveries/dlv_{digits}{path}").status_code == 404
    for cursor in ("A" * 32, "_" * 32, "f________" + "A" * 23):
        assert api.get(f"/deliveries?cursor={cursor}").status_code in (200, 422)
    for text in ("abc", "%00", "%ff", "dlv_", "evt_" + "0" * 26, "x" * 3000):
        assert api.get(f"/deliveries/{text}").status_code == 404
        assert api.post(f"/deliveries/{text}/replay").status_code == 404
        assert api.post(f"/deliveries/{text}/retry").status_code == 404


def test_a_delivery_is_shown_with_every_attempt(api: Api, connection: psycopg.Connection) -> None:
    """Request, response, error and timings of each, oldest first (W167)."""
    endpoint, event = api.endpoint("*"), api.event()
    failed = outcome(
        ErrorClass.HTTP_5XX,
        500,
        detail="it answered 500",
        url="http://127.0.0.1:8080/hook",
        peer="127.0.0.1:8080",
        timings=Timings(dns_ms=1.5, total_ms=20.25),
        request_headers=(("webhook-id", event),),
        response_headers=(("Server", "x"),),
        body=b"\xff\x00caf\xc3\xa9",
    )
    finish(connection, failed, delay=MINUTE)
    (found,) = data(api)
    assert api.post(f"/deliveries/{found['id']}/retry").status_code == 202
    finish(connection)

    shown = api.get(f"/deliveries/{found['id']}").json

    assert shown is not None
    attempts = shown.pop("attempts")
    assert shown == data(api)[0]
    assert (shown["event"], shown["endpoint"], shown["attempt_count"]) == (event, endpoint, 2)
    assert [(a["number"], a["outcome"], a["trigger"]) for a in attempts] == [
        (1, "failed", "schedule"),
        (2, "delivered", "manual"),
    ]
    first = attempts[0]
    assert (first["status_code"], first["error_class"]) == (500, "http_5xx")
    assert first["detail"] == "it answered 500"
    assert (first["url"], first["peer"]) == ("http://127.0.0.1:8080/hook", "127.0.0.1:8080")
    assert first["timings"] == {
        "dns_ms": 1.5,
        "connect_ms": None,
        "tls_ms": None,
        "first_byte_ms": None,
        "total_ms": 20.25,
    }
    assert first["request_headers"] == [["webhook-id", event]]
    assert first["response_headers"] == [["Server", "x"]]
    assert first["response_body"] == "\ufffd\0café"
    assert first["response_truncated"] is False


def test_a_body_cut_within_a_character_ends_before_it(
    api: Api, connection: psycopg.Connection
) -> None:
    """The preview is cut on a character boundary (W200)."""
    api.endpoint("*")
    api.event()
    body = ("a" * 10 + "\U0001f600").encode()[:-1]
    finish(connection, outcome(ErrorClass.HTTP_5XX, 500, body=body, truncated=True), delay=MINUTE)
    (found,) = data(api)

    (attempt,) = (api.get(f"/deliveries/{found['id']}").json or {})["attempts"]

    assert attempt["response_body"] == "a" * 10
    assert attempt["response_truncated"] is True


def test_a_dead_letter_is_replayed(api: Api, connection: psycopg.Connection) -> None:
    """202 shows it pending again; a second replay is a conflict with the reason (W171)."""
    api.endpoint("*")
    api.event()
    finish(connection, outcome(ErrorClass.HTTP_5XX, 500))
    (dead,) = data(api)

    replayed = api.post(f"/deliveries/{dead['id']}/replay")
    again = api.post(f"/deliveries/{dead['id']}/replay")

    assert replayed.status_code == 202
    assert replayed.json is not None
    assert (replayed.json["id"], replayed.json["event"]) == (dead["id"], dead["event"])
    assert (replayed.json["status"], replayed.json["trigger"]) == ("pending", "manual")
    assert again.status_code == 409
    assert "pending" in (again.json or {})["detail"]
    actor = one(connection, "SELECT actor FROM webhooks.audit_log WHERE action LIKE 'delivery%%'")
    assert actor.startswith("API key test (")


def test_only_a_scheduled_delivery_is_retried_now(api: Api, connection: psycopg.Connection) -> None:
    """409 tells the state it is in."""
    api.endpoint("*")
    api.event()
    finish(connection)
    (done,) = data(api)

    answer = api.post(f"/deliveries/{done['id']}/retry")

    assert answer.status_code == 409
    assert "delivered" in (answer.json or {})["detail"]


@pytest.mark.parametrize(("action", "delay"), [("replay", None), ("retry", MINUTE)])
def test_what_a_paused_endpoint_holds_says_so(
    api: Api, connection: psycopg.Connection, action: str, delay: timedelta | None
) -> None:
    """202 with ``held``, in the list too; disabled: 409 with the reason (W089, W159)."""
    endpoint = f"/endpoints/{api.endpoint('*')}"
    api.event()
    finish(connection, outcome(ErrorClass.HTTP_5XX, 500), delay=delay)
    (failed,) = data(api)
    path = f"/deliveries/{failed['id']}/{action}"
    api.patch(endpoint, {"status": "disabled", "status_reason": "moved away"})
    refused = api.post(path)
    assert (refused.status_code, data(api)) == (409, [failed])
    assert "moved away" in (refused.json or {})["detail"]
    api.patch(endpoint, {"status": "paused"})

    held = api.post(path)

    assert held.status_code == 202
    assert (held.json or {})["held"] == "the endpoint is paused"
    assert [row["held"] for row in data(api)] == ["the endpoint is paused"]
    api.patch(endpoint, {"status": "active"})
    assert [row["held"] for row in data(api)] == [None]


@pytest.mark.parametrize(
    ("lane", "why"),
    [
        (
            "open_at = '2090-01-02T03:04:05Z'",
            "the receiver asked for a pause until 2090-01-02 03:04:05 UTC",
        ),
        (
            "open_at = '2090-01-02T03:04:05Z', broken_s = 30",
            "the endpoint does not answer; one delivery is tried at 2090-01-02 03:04:05 UTC",
        ),
        ("broken_s = 30", "the endpoint does not answer; one delivery is tried now"),
    ],
    ids=["throttled", "broken", "at its probe"],
)
def test_what_a_closed_lane_holds_says_until_when(
    api: Api, connection: psycopg.Connection, lane: str, why: str
) -> None:
    """A replay to an endpoint that is throttled or broken waits, and says so."""
    api.endpoint("*")
    api.event()
    finish(connection, outcome(ErrorClass.HTTP_4XX, 404), delay=None)
    (failed,) = data(api)
    connection.execute(f"UPDATE webhooks.lanes SET {lane}")

    held = api.post(f"/deliveries/{failed['id']}/replay")

    assert (held.status_code, (held.json or {})["held"]) == (202, why)
    assert [row["held"] for row in data(api)] == [why]


def test_another_tenants_delivery_is_not_there(
    app: Flask, api: Api, connection: psycopg.Connection
) -> None:
    """404 for reading, replaying and retrying; nothing changes (W158)."""
    acme = Api(app, "acme")
    api.endpoint("*")
    api.event()
    finish(connection, outcome(ErrorClass.HTTP_5XX, 500))
    (dead,) = data(api)

    assert acme.get(f"/deliveries/{dead['id']}").status_code == 404
    assert acme.post(f"/deliveries/{dead['id']}/replay").status_code == 404
    assert acme.post(f"/deliveries/{dead['id']}/retry").status_code == 404
    assert data(api) == [dead]


def test_a_replay_wakes_the_workers(app: Flask, api: Api, connection: psycopg.Connection) -> None:
    """What a person asked for starts at once."""
    api.endpoint("*")
    api.event()
    finish(connection, outcome(ErrorClass.HTTP_5XX, 500))
    calls: list[bool] = []

    class Recorder:
        def notify(self) -> None:
            calls.append(True)

    app.extensions["webhooks_notifier"] = Recorder()
    api.post(f"/deliveries/{data(api)[0]['id']}/replay")

    assert calls == [True]


def test_an_old_delivery_is_found_in_its_history(api: Api, connection: psycopg.Connection) -> None:
    """A delivery that finished days after it was made is found by its id and by its event."""
    api.endpoint("*")
    event = api.event()
    finish(connection)
    connection.execute("SELECT webhooks.make_partition('deliveries', current_date + 3)")
    connection.execute("UPDATE webhooks.deliveries SET finished_at = now() + interval '3 days'")
    identifier = ids.encode("dlv", one(connection, "SELECT id FROM webhooks.deliveries"))

    assert (api.get(f"/deliveries/{identifier}").json or {})["status"] == "delivered"
    assert [d["id"] for d in data(api, f"/deliveries?event={event}")] == [identifier]
    assert [d["id"] for d in data(api)] == [identifier]
