"""The OpenAPI document: it is one, and says what the routes do."""

from __future__ import annotations

import re
from typing import Any

import jsonschema_rs
import pytest
from flask import Flask
from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.api import Api
from tests.postgres.test_isolation import ROUTES, rules


@pytest.fixture
def document(app: Flask) -> Any:
    answer = app.test_client().get("/api/v1/openapi.json")
    assert answer.status_code == 200
    return answer.json


def operations(document: Any) -> dict[str, Any]:
    return {
        method.upper() + " " + re.sub(r"{(.*?)}", r"<\1>", path): described
        for path, methods in document["paths"].items()
        for method, described in methods.items()
    }


def test_the_document_is_openapi(document: Any) -> None:
    """By the specification's own meta-schema, references and path parameters included."""
    errors = list(OpenAPIV31SpecValidator(document).iter_errors())

    assert [error.message for error in errors] == []


def test_every_route_is_described(app: Flask, document: Any) -> None:
    """With a summary, its tag, its good answer and its problems; no operation id twice."""
    described = operations(document)

    assert described.keys() == rules(app).keys()
    for route, each in described.items():
        assert 5 < len(each["summary"]) < 160, route
        assert "`" not in each["summary"], route
        assert any(status.startswith("2") for status in each["responses"]), route
        if route != "GET /openapi.json":
            assert "401" in each["responses"], route
    found = [each["operationId"] for each in described.values()]
    assert len(found) == len(set(found))


def test_every_route_says_what_it_answers(app: Flask) -> None:
    """Unless there is nothing to say; each API test holds its answers against that."""
    for route, rule in rules(app).items():
        found = app.view_functions[rule.endpoint].operation  # type: ignore[attr-defined]
        assert (found.answer is None) == (found.status == 204), route


def test_bodies_are_described_as_they_are_taken(app: Flask, document: Any) -> None:
    """What the isolation test sends, which the API takes, fits; an unknown field does not."""
    validators = document["components"]
    for route, each in operations(document).items():
        body = ROUTES[route].body
        if "requestBody" not in each:
            assert body in (None, {}), route
            continue
        schema = each["requestBody"]["content"]["application/json"]["schema"]
        fitting = jsonschema_rs.Draft202012Validator({**schema, "components": validators})
        assert fitting.is_valid(body), route
        if "$ref" in schema:
            assert not fitting.is_valid({**(body or {}), "no_such_field": 1}), route


def test_problems_are_as_described(app: Flask, document: Any) -> None:
    """A real one of each kind fits the schema of problems."""
    api = Api(app)
    schema = {"$ref": "#/components/schemas/Problem", "components": document["components"]}
    fitting = jsonschema_rs.Draft202012Validator(schema)

    for answer in (
        api.get("/endpoints/ep_1"), api.get("/deliveries?limit=0"), api.post("/events", {}),
        api.call("POST", "/events", b"{"), app.test_client().get("/api/v1/endpoints"),
        api.call("PUT", "/endpoints"),
    ):  # fmt: skip
        assert answer.content_type == "application/problem+json"
        assert fitting.is_valid(answer.json), answer.text


def test_the_text_is_the_same_each_time(app: Flask) -> None:
    """So that two versions can be compared."""
    client = app.test_client()
    first, second = (client.get("/api/v1/openapi.json").data for _ in range(2))

    assert first == second
    assert first.startswith(b'{\n "openapi": "3.1.0"')
