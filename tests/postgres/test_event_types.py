"""Event types: a catalogue with schemas, and what emit makes of it."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import psycopg
import pytest
from flask import Flask

from tests.api import Api
from tests.queue import one
from webhooks import catalog
from webhooks.catalog import Catalog

# From the specification's own example of a product (json-schema.org, "Getting started").
PRODUCT = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "productId": {"type": "integer"},
        "productName": {"type": "string"},
        "price": {"type": "number", "exclusiveMinimum": 0},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1,
                 "uniqueItems": True},
    },
    "required": ["productId", "productName", "price"],
}  # fmt: skip
GOOD = {"productId": 1, "productName": "A green door", "price": 12.50, "tags": ["home", "green"]}


@pytest.fixture(autouse=True)
def _look_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was changed is seen by the next request."""
    monkeypatch.setattr(catalog, "LOOK_EVERY_S", 0.0)


@pytest.fixture
def api(app: Flask) -> Api:
    return Api(app)


def emit(api: Api, payload: Any, type: str = "product.made") -> Any:
    body = b'{"type": "%s", "payload": %s}' % (
        type.encode(), payload if isinstance(payload, bytes) else json.dumps(payload).encode(),
    )  # fmt: skip
    return api.call("POST", "/events", body)


def errors(answer: Any) -> dict[str, str]:
    return {each["field"]: each["message"] for each in answer.json["errors"]}


def test_a_payload_is_held_against_its_schema(api: Api, connection: psycopg.Connection) -> None:
    """Every fault is named by its JSON pointer; what fits, and other types, are accepted."""
    assert api.post("/event-types", {"name": "product.made", "schema": PRODUCT}).status_code == 201
    assert emit(api, GOOD).status_code == 202
    assert emit(api, {"anything": 1}, "other").status_code == 202

    answer = emit(api, {"productId": "1", "productName": "x", "price": 0, "tags": ["a", 5]})

    assert answer.status_code == 422
    assert errors(answer).keys() == {"payload/productId", "payload/price", "payload/tags/1"}
    assert errors(emit(api, {})).keys() == {"payload"}
    assert one(connection, "SELECT count(*) FROM webhooks.events") == 2


def test_numbers_are_judged_as_they_stand(api: Api, connection: psycopg.Connection) -> None:
    """Long integers and exact decimals fit or not by their value, and keep their bytes (W193,
    W194); one of more digits than can be read is refused (W197).
    """
    schema = {"properties": {"n": {"type": "integer"}, "p": {"multipleOf": 0.01}}}
    api.post("/event-types", {"name": "product.made", "schema": schema})
    long = b'{"n": %s, "p": 1.10}' % (b"9" * 60)

    assert emit(api, long).status_code == 202
    assert one(connection, "SELECT payload FROM webhooks.events") == long
    assert errors(emit(api, b'{"p": 1.105}')).keys() == {"payload/p"}
    assert emit(api, b'{"n": %s}' % (b"9" * 4300)).status_code == 202
    assert emit(api, b'{"n": %s}' % (b"9" * 4301)).status_code == 422
    assert emit(api, b'{"a": "\\u0000"}').status_code == 202
    assert emit(api, b"[" * 100_000 + b"]" * 100_000).status_code in (400, 422)


def test_each_item_of_a_batch_has_its_own_verdict(api: Api) -> None:
    """One that does not fit keeps no other back (W161)."""
    api.post("/event-types", {"name": "product.made", "schema": PRODUCT})
    items = [{"type": "product.made", "payload": payload} for payload in (GOOD, {}, GOOD)]

    verdicts = api.post("/events/batch", items).json["data"]

    assert [each["status"] for each in verdicts] == [202, 422, 202]
    assert verdicts[1]["errors"][0]["field"] == "payload"


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ({"type": "nope"}, "nope"), ({"pattern": "("}, "regex"), ({"$ref": "#/x"}, "/x"),
        ({"$ref": "https://example.com/schema"}, "another address"),
        ({"$ref": "file:///etc/passwd"}, "another address"), ([], "object"), ("x", "object"),
        ({"minimum": "1"}, "1"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_used_is_refused(api: Api, schema: Any, where: str) -> None:
    """With what is wrong; nothing is ever fetched."""
    answer = api.post("/event-types", {"name": "a", "schema": schema})

    assert (answer.status_code, list(errors(answer))) == (422, ["schema"])
    assert where in errors(answer)["schema"]
    assert api.get("/event-types").json["data"] == []


def test_a_pattern_cannot_explode(api: Api) -> None:
    """One that backtracks for ever elsewhere is judged in time that grows with the text."""
    api.post("/event-types", {"name": "product.made", "schema": {"pattern": "^(a+)+$"}})

    assert emit(api, "a" * 50_000 + "b").status_code == 422


def test_an_example_fits_its_schema(api: Api) -> None:
    """When either is saved; the JSON is shown as it was given."""
    body = b'{"name": "a", "schema": {"type": "number"}, "example": 1.10}'
    made = api.call("POST", "/event-types", body)
    assert made.status_code == 201
    assert b'"example":1.10' in made.data
    assert errors(api.patch("/event-types/a", {"example": "x"})).keys() == {"example"}
    assert errors(api.patch("/event-types/a", {"schema": {"type": "string"}})).keys() == {"example"}
    assert api.patch("/event-types/a", {"schema": None, "example": "x"}).status_code == 200


def test_event_types_are_a_resource(app: Flask, api: Api, connection: psycopg.Connection) -> None:
    """Added, read, changed, archived, listed and deleted by name, each in the audit log."""
    made = api.post("/event-types", {"name": "a.b", "description": "d"})
    assert made.headers["Location"] == "/api/v1/event-types/a.b"
    again = api.post("/event-types", {"name": "a.b"})
    assert (again.status_code, list(errors(again))) == (422, ["name"])
    archived = api.patch("/event-types/a.b", {"archived": True}).json
    assert archived["archived_at"] is not None
    assert api.patch("/event-types/a.b", {"archived": True}).json == archived
    assert emit(api, 1, "a.b").status_code == 202
    assert api.patch("/event-types/a.b", {"archived": False}).json["archived_at"] is None
    api.post("/event-types", {"name": "z"})
    assert [row["name"] for row in api.get("/event-types").json["data"]] == ["z", "a.b"]
    assert Api(app, "acme").get("/event-types/a.b").status_code == 404
    assert api.delete("/event-types/a.b").status_code == 204
    assert api.delete("/event-types/a.b").status_code == 404
    actions = connection.execute(
        "SELECT action, count(*) FROM webhooks.audit_log WHERE action LIKE 'event_type%' "
        "GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert actions == [
        ("event_type.create", 2), ("event_type.delete", 1), ("event_type.update", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": "a b"}, "name"), ({"name": ""}, "name"), ({"name": "x" * 256}, "name"),
        ({"name": "webhooks.test"}, "name"), ({"name": "a", "description": "x" * 2001},
         "description"), ({"name": "a", "description": "\0"}, "description"),
        ({"name": "a", "shema": {}}, "shema"), ({}, "name"),
    ],
)  # fmt: skip
def test_a_wrong_event_type_is_refused_by_its_field(api: Api, fields: Any, field: str) -> None:
    """And nothing is stored."""
    answer = api.post("/event-types", fields)

    assert (answer.status_code, list(errors(answer))) == (422, [field])


def test_a_tenant_may_refuse_what_it_does_not_know(
    api: Api, connection: psycopg.Connection
) -> None:
    """By the API, in a batch and in SQL; what it knows is taken, another tenant does not mind."""
    api.post("/tenants", {"key": "acme"})
    assert api.patch("/tenant", {"unknown_event_types": "refuse"}).status_code == 200
    api.post("/event-types", {"name": "invoice.paid"})

    refused = emit(api, 1, "invoice.payed")
    assert (refused.status_code, errors(refused)["type"]) == (
        422, "'invoice.payed' is not an event type of this tenant; did you mean invoice.paid?",
    )  # fmt: skip
    assert emit(api, 1, "invoice.paid").status_code == 202
    with pytest.raises(psycopg.Error, match="not an event type of this tenant") as caught:
        connection.execute("SELECT webhooks.emit('default', 'other', '1')")
    assert caught.value.sqlstate == "WH003"
    connection.execute("SELECT webhooks.emit('default', 'invoice.paid', '1')")
    connection.execute("SELECT webhooks.emit('acme', 'other', '1')")
    wrong = api.patch("/tenant", {"unknown_event_types": "maybe"})
    assert list(errors(wrong)) == ["unknown_event_types"]


def test_our_own_event_types_are_ours(api: Api, connection: psycopg.Connection) -> None:
    """Nobody else emits what begins with webhooks., by the API or in SQL."""
    assert list(errors(emit(api, 1, "webhooks.endpoint.disabled"))) == ["type"]
    assert emit(api, 1, "webhooks").status_code == 202
    assert emit(api, 1, "webhooksx.a").status_code == 202
    with pytest.raises(psycopg.Error, match="reserved") as caught:
        connection.execute("SELECT webhooks.emit('default', 'webhooks.x', '1')")
    assert caught.value.sqlstate == "WH003"


def test_an_openapi_document_is_imported(api: Api) -> None:
    """Its webhooks become event types, with the schemas that they refer to (OpenAPI 3.1)."""
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Pets", "version": "1"},
        "webhooks": {
            "newPet": {"post": {
                "summary": "A pet came",
                "requestBody": {"content": {"application/json": {
                    "schema": {"$ref": "#/components/schemas/Pet"},
                    "example": {"id": 1, "owner": {"name": "Ana"}}}}}}},
            "pet.gone": {"post": {"x-event-type": "pet.left", "description": "It left"}},
            "bad name": {"post": {}},
            "broken": {"post": {"requestBody": {"content": {"application/json": {
                "schema": {"$ref": "#/components/schemas/Missing"}}}}}},
            "get": {"get": {}},
        },
        "components": {"schemas": {
            "Pet": {"type": "object", "required": ["id"], "properties": {
                "id": {"type": "integer"}, "owner": {"$ref": "#/components/schemas/Owner"}}},
            "Owner": {"type": "object", "properties": {"pets": {"type": "array", "items": {
                "$ref": "#/components/schemas/Pet"}}}, "required": ["name"]},
        }},
    }  # fmt: skip

    def verdicts(query: str = "") -> dict[str, str]:
        answer = api.post(f"/event-types/import{query}", document)
        assert answer.status_code == 200, answer.json
        return {each["name"]: each["verdict"] for each in answer.json["data"]}

    expected = {"newPet": "created", "pet.left": "created", "bad name": "refused",
                "broken": "refused", "get": "refused"}  # fmt: skip
    assert verdicts("?dry_run=true") == expected
    assert api.get("/event-types").json["data"] == []
    assert verdicts() == expected
    unchanged = {"newPet": "unchanged", "pet.left": "unchanged"}
    assert verdicts() == verdicts("?dry_run=true") == expected | unchanged
    document["webhooks"]["pet.gone"]["post"]["description"] = "It went"  # type: ignore[index]
    assert verdicts()["pet.left"] == "updated"

    assert emit(api, {"id": 1, "owner": {"name": "Ana"}}, "newPet").status_code == 202
    assert errors(emit(api, {"id": 1, "owner": {}}, "newPet")).keys() == {"payload/owner"}


@pytest.mark.parametrize("document", [{}, [], {"webhooks": {}}, {"webhooks": []}, "x", 1])
def test_a_document_without_webhooks_is_refused(api: Api, document: Any) -> None:
    """By the field that is missing."""
    answer = api.post("/event-types/import", document)

    assert (answer.status_code, list(errors(answer))) == (422, ["webhooks"])


def test_the_catalogue_is_looked_at_every_two_seconds(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at each emit: only whether there was a change, and only then all of it."""
    monkeypatch.setattr(catalog, "LOOK_EVERY_S", 2.0)
    now = [0.0]
    mine = Catalog(lambda: now[0])
    asked: list[str] = []

    class Connection:
        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def execute(self, statement: str) -> Any:
            asked.append(statement)
            return iter(()) if "FROM webhooks.catalog" not in statement else self

        def fetchone(self) -> tuple[int]:
            return (7,)

    for at in (0.0, 1.0, 1.9, 2.0, 3.0):
        now[0] = at
        mine.check(Connection, UUID(int=1), "a", b"1")  # type: ignore[arg-type]

    assert asked.count(catalog.VERSION) == 2
    assert asked.count(catalog.SCHEMAS) == 1
