"""Subscriptions and their filters: which events an endpoint gets, by what they say."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from flask import Flask

from tests.api import Api
from tests.queue import make_endpoints, one
from webhooks import deliveries


@pytest.fixture
def api(app: Flask) -> Api:
    return Api(app)


def subscribe(api: Api, endpoint: str, event_type: str, filter: str | None = None) -> Any:
    answer = api.post(
        "/subscriptions", {"endpoint": endpoint, "event_type": event_type, "filter": filter}
    )
    assert answer.status_code == 201, answer.json
    return answer.json


def emit(connection: psycopg.Connection, payload: str, type: str = "order.paid") -> None:
    connection.execute("SELECT webhooks.emit('default', %s, %s)", [type, payload])


def got(connection: psycopg.Connection) -> list[str]:
    """The payloads that are pending, one for each delivery."""
    rows = connection.execute(
        "SELECT convert_from(v.payload, 'UTF8') FROM webhooks.deliveries_queue q "
        "JOIN webhooks.events v ON v.id = q.event_id ORDER BY q.id"
    )
    return [row[0] for row in rows]


def test_only_what_passes_the_filter_is_delivered(api: Api, connection: psycopg.Connection) -> None:
    """By numbers, texts, members of lists; what is missing does not pass (SQL/JSON, lax mode)."""
    endpoint = api.endpoint("other")
    wanted = subscribe(api, endpoint, "order.*", '$.amount > 100 && $.lines[*].sku == "A"')
    for payload in (
        '{"amount": 100.01, "lines": [{"sku": "B"}, {"sku": "A"}]}',
        '{"amount": 100, "lines": [{"sku": "A"}]}', '{"amount": 200}', "[]", "null", '"x"',
        '{"amount": "200", "lines": [{"sku": "A"}]}',
    ):  # fmt: skip
        emit(connection, payload)

    assert got(connection) == ['{"amount": 100.01, "lines": [{"sku": "B"}, {"sku": "A"}]}']
    assert one(connection, "SELECT count(*) FROM webhooks.deliveries") == 1
    assert api.patch(f"/subscriptions/{wanted['id']}", {"filter": None}).json["filter"] is None
    emit(connection, "{}")
    assert len(got(connection)) == 2


def test_an_endpoint_gets_an_event_once_if_any_of_its_subscriptions_wants_it(
    api: Api, connection: psycopg.Connection
) -> None:
    """With and without filters; and each endpoint by its own (W149)."""
    first, second = api.endpoint("order.paid"), api.endpoint("other")
    subscribe(api, first, "order.*", "$.n == 1")
    subscribe(api, second, "*", "$.n == 1")
    subscribe(api, second, "order.*", "$.n > 0")
    for n in (0, 1, 2):
        emit(connection, f'{{"n": {n}}}')

    counts = dict(connection.execute(
        "SELECT convert_from(v.payload, 'UTF8'), count(*) FROM webhooks.deliveries_queue q "
        "JOIN webhooks.events v ON v.id = q.event_id GROUP BY 1").fetchall())  # fmt: skip
    assert counts == {'{"n": 0}': 1, '{"n": 1}': 2, '{"n": 2}': 2}


@pytest.mark.parametrize("payload", [r'{"a": "\u0000"}', '{"a": 1e400000}'])
def test_what_cannot_be_judged_is_seen_and_can_be_replayed(
    api: Api, connection: psycopg.Connection, payload: str
) -> None:
    """The emit goes well; the delivery is cancelled with that reason (W191, W194)."""
    endpoint, other = api.endpoint("other"), api.endpoint("order.paid")
    subscribe(api, endpoint, "order.paid", "$.a == 1")

    emit(connection, payload)

    rows = connection.execute(
        "SELECT id, status, reason FROM webhooks.deliveries ORDER BY status"
    ).fetchall()
    assert [row[1:] for row in rows] == [("cancelled", "filter_error"), ("pending", None)]
    assert other
    deliveries.replay(connection, rows[0][0], None, actor="ada")
    assert len(got(connection)) == 2


def test_a_large_fan_out_follows_the_filters_of_its_emit(
    api: Api, connection: psycopg.Connection
) -> None:
    """What is left to the workers has been filtered already."""
    make_endpoints(connection, 600)
    connection.execute("UPDATE webhooks.subscriptions SET filter = '$.n == 1'")
    emit(connection, '{"n": 1}')
    emit(connection, '{"n": 2}')

    sizes = [row[0] for row in connection.execute(
        "SELECT cardinality(endpoint_ids) FROM webhooks.fanouts")]  # fmt: skip
    assert sizes == [600]


@pytest.mark.parametrize(
    ("filter", "says"),
    [
        ("$.a", "selects values"), ("$.a ? (@ > 1)", "selects values"), ("a > 1", "no SQL/JSON"),
        ("$.a >", "no SQL/JSON"), ("", "no SQL/JSON"), ('$.a like_regex "(a+)+$"', "like_regex"),
        ("$.a == 1" + " " * 1000, "at most"), ("$.a == 1\0", "at most"), ("1", "selects values"),
    ],
)  # fmt: skip
def test_a_filter_that_is_none_is_refused(api: Api, filter: str, says: str) -> None:
    """When it is saved, with what one looks like."""
    answer = api.post(
        "/subscriptions", {"endpoint": api.endpoint("x"), "event_type": "a", "filter": filter}
    )

    assert answer.status_code == 422
    (error,) = answer.json["errors"]
    assert (error["field"], says in error["message"]) == ("filter", True), error


@pytest.mark.parametrize(
    "filter", ["$.a > 1", "exists($.a ? (@ > 1))", '$.a starts with "x"', "true == true",
               "$.a == 1 || $.b[*] == 2", "strict $.a == 1", "($.a == 1) is unknown"]
)  # fmt: skip
def test_a_predicate_is_taken(api: Api, filter: str) -> None:
    """In each form that PostgreSQL knows."""
    assert subscribe(api, api.endpoint("x"), "a", filter)["filter"] == filter


def test_a_filter_can_be_tried(api: Api) -> None:
    """As emit would see it: yes, no, or that it cannot be told."""

    def tried(payload: bytes) -> Any:
        body = b'{"filter": "$.a > 1", "payload": %s}' % payload
        return api.call("POST", "/subscriptions/dry-run", body).json["matches"]

    assert tried(b'{"a": 2}') is True
    assert tried(b'{"a": 1}') is False
    assert tried(b"[]") is False
    assert tried(b'{"a": "\\u0000"}') is None
    wrong = api.post("/subscriptions/dry-run", {"filter": "$.a", "payload": 1})
    assert wrong.json["errors"][0]["field"] == "filter"


def test_subscriptions_are_a_resource(api: Api, connection: psycopg.Connection) -> None:
    """Added, listed, changed and taken away; the endpoint shows its patterns."""
    endpoint, other = api.endpoint("a"), api.endpoint("b")
    made = subscribe(api, endpoint, "c.*", "$.n > 1")

    assert api.get(f"/subscriptions/{made['id']}").json == made
    assert api.get(f"/endpoints/{endpoint}").json["event_types"] == ["a", "c.*"]
    assert {s["event_type"] for s in api.get("/subscriptions").json["data"]} == {"a", "b", "c.*"}
    mine = api.get(f"/subscriptions?endpoint={other}").json["data"]
    assert [s["event_type"] for s in mine] == ["b"]
    twice = api.post("/subscriptions", {"endpoint": endpoint, "event_type": "c.*"})
    assert twice.json["errors"][0]["field"] == "event_type"
    assert api.delete(f"/subscriptions/{mine[0]['id']}").status_code == 409
    assert api.delete(f"/subscriptions/{made['id']}").status_code == 204
    assert api.delete(f"/subscriptions/{made['id']}").status_code == 404
    actions = connection.execute(
        "SELECT action FROM webhooks.audit_log WHERE action LIKE 'subscription%' ORDER BY id"
    ).fetchall()
    assert actions == [("subscription.create",), ("subscription.delete",)]


def test_the_simple_form_keeps_filters(api: Api) -> None:
    """Changing an endpoint's event types leaves the filters of those that stay (W149's kind)."""
    endpoint = api.endpoint("a")
    subscribe(api, endpoint, "b", "$.n > 1")

    api.patch(f"/endpoints/{endpoint}", {"event_types": ["b", "c"]})

    found = {s["event_type"]: s["filter"] for s in api.get("/subscriptions").json["data"]}
    assert found == {"b": "$.n > 1", "c": None}


def test_everything_is_not_what_is_ours(api: Api, connection: psycopg.Connection) -> None:
    """The pattern * does not match event types that begin with webhooks.; their own do."""
    api.endpoint("*")
    named = api.endpoint("webhooks.*")
    tenant = one(connection, "SELECT id FROM webhooks.tenants")

    connection.execute("SELECT webhooks.accept(%s, 'webhooks.endpoint.disabled', '{}')", [tenant])

    found = connection.execute("SELECT endpoint_id FROM webhooks.deliveries").fetchall()
    assert len(found) == 1
    assert named == api.get("/deliveries").json["data"][0]["endpoint"]
