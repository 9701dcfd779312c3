"""Pages: cursors that are signed, go both ways, and neither skip nor repeat."""

from __future__ import annotations

import random
from typing import Any

import psycopg
import pytest
from flask import Flask

from tests.api import Api
from tests.queue import claim, delivered, emit, make_endpoint, make_endpoints, register
from webhooks import web_database
from webhooks.api import delivery_lists
from webhooks.deliveries import settlement
from webhooks.secrets import Keyring

URLS = ("/endpoints", "/deliveries", "/api-keys")


@pytest.fixture
def api(app: Flask) -> Api:
    return Api(app)


def page(api: Api, path: str, **parameters: Any) -> Any:
    query = "&".join(f"{k}={v}" for k, v in parameters.items() if v is not None)
    answer = api.get(f"{path}{'&' if '?' in path else '?'}{query}")
    assert answer.status_code == 200, answer.text
    return answer.json


def walk(
    api: Api, path: str, limit: int, which: str = "next", cursor: str | None = None
) -> list[Any]:
    """Every page in one direction."""
    pages = [page(api, path, limit=limit, cursor=cursor)]
    while pages[-1][which] is not None:
        pages.append(page(api, path, limit=limit, cursor=pages[-1][which]))
    return pages


def ids(pages: list[Any]) -> list[str]:
    return [row["id"] for each in pages for row in each["data"]]


@pytest.mark.parametrize("limit", [1, 3, 7, 200])
def test_both_ways_show_the_same_rows(api: Api, connection: psycopg.Connection, limit: int) -> None:
    """Forwards to the end and back again: the same rows, each once, live and finished."""
    make_endpoints(connection, 3)
    emit(connection, 4)
    worker_id = register(connection)
    for _ in range(2):
        done = [delivered(each) for each in claim(connection, worker_id, room=3)]
        settlement.settle(connection, worker_id, done)

    for path, count in (("/deliveries", 12), ("/deliveries?status=delivered", None),
                        ("/deliveries?status=pending", None), ("/endpoints", 3)):  # fmt: skip
        forwards = walk(api, path, limit)
        found = ids(forwards)
        assert len(found) == len(set(found)) == (count or len(found)) > 0
        assert forwards[0]["prev"] is None
        assert forwards[-1]["next"] is None
        back = walk(api, path, limit, "prev", forwards[-1]["prev"]) if len(forwards) > 1 else []
        assert ids(back[::-1]) + ids(forwards[-1:]) == found if back else len(forwards) == 1
        assert all(len(each["data"]) <= limit for each in (*forwards, *back))


def test_new_rows_neither_shift_nor_repeat_a_page(api: Api, connection: psycopg.Connection) -> None:
    """While a client pages on, others add: what it saw comes once, what is new is above."""
    dice = random.Random(7)
    make_endpoints(connection, 20)
    before = ids(walk(api, "/endpoints", 200))
    seen, cursor = [], None
    while True:
        make_endpoints(connection, dice.randrange(3))
        here = page(api, "/endpoints", limit=3, cursor=cursor)
        seen += [row["id"] for row in here["data"]]
        cursor = here["next"]
        if cursor is None:
            break
    assert len(seen) == len(set(seen))
    assert set(before) <= set(seen)


def test_what_finishes_meanwhile_is_not_skipped(api: Api, connection: psycopg.Connection) -> None:
    """A delivery that moves on in the list may come again; none is left out (W146)."""
    make_endpoints(connection, 12)
    emit(connection)
    everything = set(ids(walk(api, "/deliveries", 200)))
    worker_id = register(connection)
    seen: list[str] = []
    cursor: str | None = None
    while True:
        here = page(api, "/deliveries", limit=2, cursor=cursor)
        seen += [row["id"] for row in here["data"]]
        cursor = here["next"]
        if cursor is None:
            break
        done = [delivered(each) for each in claim(connection, worker_id, room=1)]
        settlement.settle(connection, worker_id, done)

    assert set(seen) == everything


@pytest.mark.parametrize("path", URLS)
def test_a_cursor_belongs_to_its_list_filter_and_caller(app: Flask, api: Api, path: str) -> None:
    """With any of them changed it is refused by name; as it was given it works."""
    for _ in range(3):
        api.endpoint()
        api.event()
        api.post("/api-keys", {"name": "n", "scopes": ["admin"], "all_tenants": True})
    cursor = page(api, path, limit=1)["next"]
    other = {"/endpoints": "/api-keys", "/api-keys": "/deliveries", "/deliveries": "/endpoints"}

    assert api.get(f"{path}?limit=1&cursor={cursor}").status_code == 200
    assert api.get(f"{path}?limit=2&cursor={cursor}").status_code == 200
    forged = cursor[:-2] + ("AA" if cursor[-2:] != "AA" else "BB")
    for answer in (
        api.get(f"{path}?cursor={cursor}&tenant=default"),
        api.get(f"{other[path]}?cursor={cursor}"),
        api.get(f"{path}?cursor={forged}"),
        Api(app, "acme").get(f"{path}?cursor={cursor}"),
    ):
        assert answer.status_code == 422
        assert answer.json["errors"][0]["field"] == "cursor"


def test_a_rotation_of_the_keyring_ends_no_readers_pages(app: Flask, api: Api) -> None:
    """A cursor of the old key is taken as long as the key is there."""
    for _ in range(3):
        api.endpoint()
    cursor = page(api, "/endpoints", limit=1)["next"]
    old = app.extensions["webhooks_settings"].keyring

    app.extensions["webhooks_keyring"] = Keyring.parse("new:" + "A" * 43 + f"=,{old}")
    assert api.get(f"/endpoints?cursor={cursor}").status_code == 200
    app.extensions["webhooks_keyring"] = Keyring.parse("new:" + "A" * 43 + "=")
    assert api.get(f"/endpoints?cursor={cursor}").status_code == 422


def test_deliveries_are_filtered(api: Api, connection: psycopg.Connection) -> None:
    """By state, several of them, type, code and its class, error, time, event and its key."""
    make_endpoint(connection)
    for kind in ("a.b", "a.c"):
        connection.execute("SELECT webhooks.emit('default', %s, '{}', %s)", [kind, f"key {kind}"])
    worker_id = register(connection)
    first, second = claim(connection, worker_id)
    settlement.settle(connection, worker_id, [delivered(first)])

    def found(query: str) -> list[str]:
        return sorted(row["event_type"] for row in page(api, f"/deliveries?{query}")["data"])

    assert found("status=delivered,in_flight") == ["a.b", "a.c"]
    assert found("status=delivered") == found("status_code=200") == found("status_code=2xx")
    assert found("status=delivered") == [first.event_type]
    assert found("status=in_flight") == [second.event_type]
    assert found("event_type=a.c") == ["a.c"]
    assert found("idempotency_key=key%20a.b") == ["a.b"]
    assert found("idempotency_key=other") == []
    assert found("status_code=5xx") == found("error_class=timeout") == []
    assert found("from=2020-01-01T00:00:00Z") == [first.event_type]
    assert found("to=2020-01-01T00:00:00%2B01:00") == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("status=dead", "status"), ("status=", "status"), ("status=%00", "status"),
        ("status_code=99", "status_code"), ("status_code=6xx", "status_code"),
        ("status_code=%D9%A1%D9%A1%D9%A1", "status_code"), ("error_class=x", "error_class"),
        ("from=yesterday", "from"), ("from=10000-01-01T00:00:00Z", "from"),
        ("from=2026-11-30T14:00:00", "from"), ("to=1900-01-01T00:00:00Z", "to"),
        ("from=9999-12-31T23:59:59%2B14:00", "from"), ("to=infinity", "to"), ("to=%00", "to"),
        ("event_type=a%20b", "event_type"), ("event_type=%ff", "event_type"),
        ("idempotency_key=%00", "idempotency_key"), ("idempotency_key=", "idempotency_key"),
        ("event=evt_1", "event"), ("endpoint=%ff", "endpoint"), ("limit=-1", "limit"),
        ("limit=0", "limit"), ("limit=1e9", "limit"), ("limit=abc", "limit"), ("q=1", "q"),
        ("stauts=pending", "stauts"), ("status=pending&status=pending", "status"),
    ],
)  # fmt: skip
def test_an_odd_parameter_is_refused_by_name(api: Api, query: str, field: str) -> None:
    """Never a 5xx (W147, W203)."""
    answer = api.get(f"/deliveries?{query}")

    assert (answer.status_code, answer.json["errors"][0]["field"]) == (422, field), answer.text


def test_a_search_that_takes_too_long_says_how_to_narrow_it(
    api: Api, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a 503: asking again would not help."""
    make_endpoint(connection)
    emit(connection)
    slow = delivery_lists._LIVE.replace("WHERE", "CROSS JOIN pg_sleep(5) WHERE", 1)
    monkeypatch.setattr(delivery_lists, "_LIVE", slow)
    monkeypatch.setattr(web_database, "LIMITS", "SET LOCAL statement_timeout = '200ms'")

    answer = api.get("/deliveries?event_type=test")

    assert answer.status_code == 422
    assert "give endpoint or event" in answer.json["detail"]
