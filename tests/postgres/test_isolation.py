"""Tenants and scopes in one place: every route of the API, with every scope and a foreign id.

A new route has to be added to ROUTES, or the first test fails with its name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg
import pytest
from flask import Flask
from werkzeug.routing import Rule

from tests.api import Api
from tests.queue import claim, delivered, one, outcome, register
from webhooks import ids, rollups
from webhooks.attempt import Claim, ErrorClass
from webhooks.deliveries import Settlement, settlement
from webhooks.scopes import Scope, granted
from webhooks.tally import Tally

READ = "GET"
# Tables that any request may change: when a key was last used, and how often it wrote.
NOT_COMPARED = {"api_keys", "buckets"}


@dataclass(frozen=True)
class Route:
    """How to call a route: a body that is right, and what is in its query."""

    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict)


BODY: dict[str, Any] = {}
ROUTES: dict[str, Route] = {
    "POST /events": Route({"type": "a", "payload": 1}),
    "POST /events/batch": Route([{"type": "a", "payload": 1}]),
    "GET /events/<event_id>": Route(),
    "GET /events/<event_id>/payload": Route(),
    "GET /openapi.json": Route(),
    "GET /events": Route(),
    "GET /subscriptions": Route(),
    "POST /subscriptions": Route({"endpoint": "ep_" + "0" * 26, "event_type": "a"}),
    "POST /subscriptions/dry-run": Route({"filter": "$.a > 1", "payload": {"a": 2}}),
    "GET /subscriptions/<subscription_id>": Route(),
    "PATCH /subscriptions/<subscription_id>": Route({"filter": None}),
    "DELETE /subscriptions/<subscription_id>": Route(),
    "GET /event-types": Route(),
    "POST /event-types": Route({"name": "new.type"}),
    "GET /event-types/<name>": Route(),
    "PATCH /event-types/<name>": Route({"description": "changed"}),
    "DELETE /event-types/<name>": Route(),
    "POST /event-types/import": Route({"webhooks": {"n": {"post": {}}}}),
    "GET /endpoints": Route(),
    "POST /endpoints": Route({"url": "http://127.0.0.1:8080/", "event_types": ["*"]}),
    "GET /endpoints/<endpoint_id>": Route(),
    "PATCH /endpoints/<endpoint_id>": Route({"description": "changed"}),
    "DELETE /endpoints/<endpoint_id>": Route(),
    "POST /endpoints/<endpoint_id>/prove": Route(),
    "POST /endpoints/<endpoint_id>/pause": Route({}),
    "POST /endpoints/<endpoint_id>/resume": Route({}),
    "POST /endpoints/<endpoint_id>/test": Route({}),
    "GET /endpoints/<endpoint_id>/stats": Route(),
    "GET /endpoints/<endpoint_id>/backlog": Route(),
    "GET /endpoints/<endpoint_id>/secrets": Route(),
    "POST /endpoints/<endpoint_id>/secrets": Route({}),
    "DELETE /endpoints/<endpoint_id>/secrets/<secret_id>": Route(),
    "POST /endpoints/<endpoint_id>/secrets/<secret_id>/reveal": Route(),
    "GET /deliveries": Route(),
    "GET /deliveries/<delivery_id>": Route(),
    "GET /deliveries/<delivery_id>/attempts": Route(),
    "GET /deliveries/<delivery_id>/attempts/<number>": Route(),
    "POST /deliveries/<delivery_id>/cancel": Route({}),
    "POST /deliveries/<delivery_id>/replay": Route(),
    "POST /deliveries/<delivery_id>/retry": Route(),
    "POST /retry-policies/preview": Route({}),
    "GET /tenant": Route(),
    "PATCH /tenant": Route({"retry_policy": None}),
    "GET /replays": Route(),
    "POST /replays": Route({"start": False}),
    "POST /replays/dry-run": Route({}),
    "GET /replays/<replay_id>": Route(),
    "POST /replays/<replay_id>/start": Route(),
    "POST /replays/<replay_id>/pause": Route(),
    "POST /replays/<replay_id>/resume": Route(),
    "POST /replays/<replay_id>/cancel": Route(),
    "GET /tenants": Route(),
    "POST /tenants": Route({"key": "new"}),
    "GET /tenants/<tenant_key>": Route(),
    "PATCH /tenants/<tenant_key>": Route({"name": "changed"}),
    "GET /failure-groups": Route(),
    "PATCH /failure-groups/<group_id>": Route({"state": "muted"}),
    "GET /audit-log": Route(),
    "GET /workers": Route(),
    "GET /stats": Route(),
    "GET /api-keys": Route(),
    "POST /api-keys": Route({"name": "n", "scopes": ["events:write"]}),
    "GET /api-keys/<key_id>": Route(),
    "POST /api-keys/<key_id>/rotate": Route({}),
    "DELETE /api-keys/<key_id>": Route(),
}
LISTS = (
    "/endpoints",
    "/events",
    "/deliveries",
    "/api-keys",
    "/audit-log",
    "/replays",
    "/event-types",
    "/subscriptions",
    "/failure-groups",
)


def rules(app: Flask) -> dict[str, Rule]:
    """Method and path of each route of the API, without its prefix."""
    return {
        f"{method} {rule.rule.removeprefix('/api/v1')}": rule
        for rule in app.url_map.iter_rules()
        if rule.endpoint.startswith("api.")
        for method in rule.methods - {"HEAD", "OPTIONS"}
    }


@pytest.fixture
def theirs(app: Flask, connection: psycopg.Connection) -> dict[str, str]:
    """Ids of another tenant's things, one of each kind that stands in a path."""
    api = Api(app, "victim")
    endpoint = api.post(
        "/endpoints",
        {"url": "http://127.0.0.1:8080/", "event_types": ["*"],
         "headers": {"Authorization": "Bearer victims-own-token"}},
    ).json  # fmt: skip
    (secret,) = api.get(f"/endpoints/{endpoint['id']}/secrets").json["data"]
    event = api.post("/events", {"type": "a", "payload": "victims-own-payload"}).json["id"]
    api.post("/events", {"type": "a", "payload": 2})
    worker_id = register(connection)
    dead, scheduled = claim(connection, worker_id)
    failed = outcome(ErrorClass.HTTP_5XX, 500)
    settlement.settle(connection, worker_id, [Settlement(dead, failed, None), delivered(scheduled)])
    key = api.post("/api-keys", {"name": "victims-own-name", "scopes": ["admin"]}).json
    return {
        "endpoint_id": endpoint["id"],
        "secret_id": secret["id"],
        "event_id": event,
        "delivery_id": ids.encode(ids.DELIVERY, dead.delivery_id),
        "key_id": key["id"],
        "replay_id": api.post("/replays", {"start": False}).json["id"],
        "subscription_id": api.get("/subscriptions").json["data"][0]["id"],
        "name": api.post("/event-types", {"name": "victims.type"}).json["name"],
        "group_id": ids.encode(ids.FAILURE_GROUP, _count_failure(connection, dead)),
        "tenant_key": "victim",
        "number": "1",
    }


def _count_failure(connection: psycopg.Connection, claim: Claim) -> UUID:
    tally = Tally()
    tally.add([(claim, outcome(ErrorClass.HTTP_5XX, 500), True)])
    rollups.flush(connection, tally.take())
    found: UUID = one(connection, "SELECT id FROM webhooks.failure_groups")
    return found


def path_of(route: str, known: Mapping[str, str]) -> tuple[str, str]:
    method, _, path = route.partition(" ")
    return method, re.sub(r"<(?:\w+:)?(\w+)>", lambda found: known[found[1]], path)


def field_of(problem: Any) -> str | None:
    """Of the first error of a problem, if it has any."""
    return problem["errors"][0]["field"] if "errors" in problem else None


def contents(connection: psycopg.Connection) -> dict[str, str]:
    """What each table holds, as a hash."""
    tables = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'webhooks'::regnamespace "
        "AND relkind IN ('r', 'p') AND NOT relispartition"
    ).fetchall()
    found = {}
    for (table,) in tables:
        rows = connection.execute(f"SELECT t::text FROM webhooks.{table} t ORDER BY 1").fetchall()
        found[table] = hashlib.sha256(repr(rows).encode()).hexdigest()
    return {table: it for table, it in found.items() if table not in NOT_COMPARED}


def test_every_route_is_in_the_table(app: Flask) -> None:
    """What is not listed here is not tested for other people's ids."""
    assert rules(app).keys() == ROUTES.keys()


@pytest.mark.parametrize("scope", list(Scope))
def test_a_scope_opens_its_routes_and_no_other(
    app: Flask, theirs: dict[str, str], scope: Scope
) -> None:
    """403 with the name of what is missing, for each route that the scope does not include."""
    api, may = Api(app, "mine", [scope]), granted([scope])

    for route, rule in rules(app).items():
        needed = app.view_functions[rule.endpoint].operation.scope
        method, path = path_of(route, theirs)
        answer = api.call(method, path, ROUTES[route].body)
        refused = answer.status_code == 403 and field_of(answer.json) == "scope"
        assert refused == (needed is not None and needed not in may), route
        if refused:
            assert str(needed) in answer.json["errors"][0]["message"]


def test_anothers_things_are_not_there(
    app: Flask, connection: psycopg.Connection, theirs: dict[str, str]
) -> None:
    """Each route with a foreign id answers 404, as for an id that never was, and changes
    nothing (W158).
    """
    api = Api(app, "mine")
    unknown = {name: value.partition("_")[0] + "_" + "0" * 26 for name, value in theirs.items()}
    unknown |= {"name": "no.such", "tenant_key": "nobody", "number": "1"}
    before = contents(connection)

    for route in ROUTES:
        if "<" not in route:
            continue
        for known in (theirs, unknown):
            method, path = path_of(route, known)
            answer = api.call(method, path, ROUTES[route].body)
            assert answer.status_code == 404, (route, answer.text)
            detail = answer.json["detail"]
            assert not any(value in detail for value in known.values() if len(value) > 1)
    assert contents(connection) == before


def test_lists_show_ones_own_alone(app: Flask, theirs: dict[str, str]) -> None:
    """Whatever is asked for: a foreign id in a filter finds nothing, a foreign tenant is a 403."""
    api = Api(app, "mine")
    filters = {
        "/deliveries": [f"endpoint={theirs['endpoint_id']}", f"event={theirs['event_id']}", ""],
    }
    for path in LISTS:
        for query in filters.get(path, [""]):
            answer = api.get(f"{path}?{query}")
            assert answer.status_code == 200
            assert "victim" not in answer.text
            assert not any(v in answer.text for v in theirs.values() if len(v) > 6)
        assert api.get(f"{path}?tenant=victim").status_code == 403
    for route in ("POST /events", "POST /endpoints"):
        method, path = path_of(route, {})
        body = {**ROUTES[route].body, "tenant": "victim"}
        assert api.call(method, path, body).status_code == 403


def test_reading_keys_never_see_a_secret(
    app: Flask, connection: psycopg.Connection, theirs: dict[str, str]
) -> None:
    """A key with every scope but secrets:read and admin finds none, in any answer (W152)."""
    scopes = [scope for scope in Scope if scope not in (Scope.SECRETS_READ, Scope.ADMIN)]
    api = Api(app, "victim", scopes)
    stored = one(connection, "SELECT ciphertext FROM webhooks.signing_secrets LIMIT 1")

    for route in ROUTES:
        method, path = path_of(route, theirs)
        if method == READ:
            text = api.call(method, path).text
            assert "whsec_" not in text, route
            assert "victims-own-token" not in text, route
            assert stored not in text, route
