"""Whatever is sent, the API answers in its own words: never a 5xx."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from flask import Flask

from tests.api import Api, errors
from tests.postgres.test_isolation import ROUTES, path_of, rules
from tests.postgres.test_isolation import theirs as theirs
from webhooks.api import endpoint_verbs

ODD: list[Any] = [
    None, True, -1, 0, 1.5, 1e308, 2**63, 10**400, "", " ", "\0", "a\0b", "\ud800", "é" * 3000,
    "x" * 70_000, "2026-02-30T00:00:00Z", "'; --", "%s %(tenant)s {0}", [], [[]], [None], ["\0"],
    {}, {"\0": 1}, {"mode": "since", "since": "\0"}, {"a": {"b": [{}]}},
]  # fmt: skip
BYTES = [
    b"", b"{", b"null", b"[]", b"1", b'"', b"\xff", b"\xef\xbb\xbf{}", b"[" * 100_000, b"{}{}",
    b'{"a": NaN}', b'{"a": 1, "a": 2}', b'{"\\ud800": 1}', b"\0",
]  # fmt: skip
TEXTS = ["", "\0", "é", "%s", "x" * 3000, "-1", "0", "1e9", "٣", "9" * 30, "a b", "..", "*"]


def bodies(route: str, body_type: Any) -> Iterator[bytes]:
    """The route's own body with each field odd, one at a time; then what is no body at all."""
    sample = ROUTES[route].body
    names = getattr(body_type, "__struct_encode_fields__", ())
    for name in names:
        for odd in ODD:
            yield json.dumps({**(sample or {}), name: odd}).encode()
        raw = json.dumps({**(sample or {}), name: "RAW"}).encode()
        yield raw.replace(b'"RAW"', b'"\xff"')
    yield from BYTES


@pytest.mark.parametrize("route", [route for route in ROUTES if not route.startswith("GET")])
def test_odd_bodies_are_refused_in_words(
    app: Flask, theirs: dict[str, str], monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    """In each field of each body, and in place of a body."""
    monkeypatch.setattr(endpoint_verbs, "PATIENCE_S", 0)
    api = Api(app, "victim")
    if "tenants" in route or "workers" in route:
        api = Api(app)
    described = app.view_functions[rules(app)[route].endpoint].operation  # type: ignore[attr-defined]
    method, path = path_of(route, theirs)
    for body in bodies(route, described.body):
        answer = api.call(method, path, body)
        assert answer.status_code < 500, (body[:200], answer.text)
        assert answer.status_code != 429
        if answer.status_code >= 400:
            errors(answer)


def queries(app: Flask, theirs: dict[str, str]) -> Iterator[str]:
    """Each parameter of each list with each odd text, and one that there is not."""
    for route in ROUTES:
        method, path = path_of(route, theirs)
        described = app.view_functions[rules(app)[route].endpoint].operation  # type: ignore[attr-defined]
        names = (each.name for each in described.parameters)
        if method == "GET":
            yield from (f"{path}?{urlencode({name: text})}" for name in names for text in TEXTS)
            yield f"{path}?no_such=1"


def test_odd_queries_are_refused_in_words(app: Flask, theirs: dict[str, str]) -> None:
    """Of every list, in each parameter."""
    api = Api(app)
    for path in queries(app, theirs):
        answer = api.get(path)
        assert answer.status_code < 500, (path, answer.text)
        if answer.status_code >= 400:
            errors(answer)


def test_odd_parts_of_a_path_are_not_there(app: Flask, theirs: dict[str, str]) -> None:
    """404 for what is no id."""
    api = Api(app)
    for route in (route for route in ROUTES if "<" in route):
        for odd in ("%00", "%FF", "é", "ep_", "x" * 3000, "-", "%F0%9F%92%A9", "0" * 30):
            method, path = path_of(route, dict.fromkeys(theirs, odd))
            answer = api.call(method, path, ROUTES[route].body)
            assert answer.status_code == 404, (route, odd[:20], answer.text)
