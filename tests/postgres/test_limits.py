"""Limits: how often a key may write or emit, and how often a sign-in may fail."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from uuid import UUID

import psycopg
import pytest
from flask import Flask

from tests.api import Api
from tests.queue import one
from webhooks import buckets
from webhooks.api.limits import Emits
from webhooks.app import create_app
from webhooks.buckets import Bucket
from webhooks.dashboard import throttle
from webhooks.models import db
from webhooks.settings import Settings


def limited(settings: Settings, **changes: Any) -> Flask:
    return create_app(replace(settings, **changes))


def test_a_bucket_gives_its_burst_and_then_its_rate(connection: psycopg.Connection) -> None:
    """Three at once, then one each ten seconds; another name has its own."""
    bucket = Bucket(3, 30)
    taken = [buckets.take(connection, bucket, "a") for _ in range(4)]

    assert [each.allowed for each in taken] == [True, True, True, False]
    assert [each.left for each in taken] == [2, 1, 0, 0]
    assert taken[3].wait_s == pytest.approx(10, abs=2)
    assert buckets.take(connection, bucket, "b").allowed
    connection.execute("UPDATE webhooks.buckets SET at = at - interval '10 s'")
    assert buckets.take(connection, bucket, "a").allowed
    assert not buckets.take(connection, bucket, "a").allowed
    connection.execute("UPDATE webhooks.buckets SET at = at - interval '1 h'")
    assert buckets.take(connection, bucket, "a").left == 2
    connection.execute("UPDATE webhooks.buckets SET at = at - interval '2 days'")
    assert buckets.forget_full(connection) == 2


def test_a_key_may_write_so_often(settings: Settings, connection: psycopg.Connection) -> None:
    """By whatever process; reading and another key are not concerned, and headers tell it."""
    here, there = (limited(settings, writes_per_minute=3) for _ in range(2))
    api, other = Api(here), Api(here)
    twin = Api(there)
    twin.key = api.key

    answers = [each.post("/retry-policies/preview", {}) for each in (api, twin, api, twin)]

    assert [each.status_code for each in answers] == [200, 200, 200, 429]
    assert answers[0].headers["RateLimit-Policy"] == '"writes";q=3;w=60'
    assert re.fullmatch(r'"writes";r=2;t=0', answers[0].headers["RateLimit"])
    refused = answers[3]
    assert refused.json["type"] == "urn:webhooks:problem:too-many-requests"
    assert 1 <= int(refused.headers["Retry-After"]) <= 20
    assert refused.headers["RateLimit"].startswith('"writes";r=0;t=')
    assert api.get("/endpoints").status_code == 200
    assert "RateLimit" not in api.get("/endpoints").headers
    assert api.post("/events", {"type": "a", "payload": 1}).status_code == 202
    assert other.post("/retry-policies/preview", {}).status_code == 200
    for app in (here, there):
        with app.app_context():
            db.engine.dispose()
    assert one(connection, "SELECT count(*) FROM webhooks.buckets") == 2


def test_no_limit_costs_nothing(settings: Settings, connection: psycopg.Connection) -> None:
    """Switched off it asks nobody."""
    app = limited(settings, writes_per_minute=0)
    api = Api(app)

    assert "RateLimit" not in api.post("/retry-policies/preview", {}).headers
    assert one(connection, "SELECT count(*) FROM webhooks.buckets") == 0
    with app.app_context():
        db.engine.dispose()


def test_emits_are_limited_in_each_process(settings: Settings) -> None:
    """One second's worth at once, then the rest is told to wait; nothing of it is stored."""
    app = limited(settings, emits_per_second=1)
    api = Api(app)

    answers = [api.post("/events", {"type": "a", "payload": 1}) for _ in range(4)]

    codes = [each.status_code for each in answers]
    assert codes[0] == 202
    assert 429 in codes[1:]
    refused = answers[codes.index(429)]
    assert "1 emits a second" in refused.json["detail"]
    assert refused.headers["Retry-After"] == "1"
    with app.app_context():
        db.engine.dispose()


def test_the_rate_of_emits_is_exact() -> None:
    """Of a thousand tries at one moment, one second's worth gets through; other keys too."""
    now = [1000.0]
    emits = Emits(lambda: now[0])
    waits = [emits.wait_s(UUID(int=1), 50) for _ in range(1000)]

    assert sum(wait == 0 for wait in waits) == 50
    assert waits[-1] == pytest.approx(0.02)
    assert emits.wait_s(UUID(int=2), 50) == 0
    now[0] += 0.021
    assert emits.wait_s(UUID(int=1), 50) == 0
    assert emits.wait_s(UUID(int=1), 50) > 0


def test_failed_sign_ins_count_for_all_processes(settings: Settings) -> None:
    """Ten failures of a name from an address; then even another process says to wait."""
    apps = [limited(settings) for _ in range(2)]
    clients = [app.test_client() for app in apps]

    def fail(client: Any) -> Any:
        page = client.get("/sign-in").text
        token = re.search(r'name="csrf_token" value="([^"]+)"', page)
        assert token is not None
        form = {"csrf_token": token[1], "username": "ana", "password": "wrong"}
        return client.post("/sign-in", data=form)

    codes = [fail(clients[n % 2]).status_code for n in range(11)]

    assert codes == [401] * 10 + [429]
    for app in apps:
        with app.app_context():
            db.engine.dispose()


def test_a_name_and_an_address_are_closed_apart(app: Flask, connection: psycopg.Connection) -> None:
    """Ten failures close a name for its address, fifty an address for every name; each opens
    again bit by bit.
    """
    with app.app_context():
        for _ in range(10):
            assert throttle.wait_s("ana", "192.0.2.1") == 0
            throttle.failed("ana", "192.0.2.1")
        assert throttle.wait_s("Ana ", "192.0.2.1") == pytest.approx(30, abs=5)
        assert throttle.wait_s("ana", "192.0.2.2") == 0
        assert throttle.wait_s("ben", "192.0.2.1") == 0
        for n in range(40):
            throttle.failed(f"user{n}", "192.0.2.1")
        assert throttle.wait_s("ben", "192.0.2.1") > 0
        connection.execute("UPDATE webhooks.buckets SET at = at - interval '31 s'")
        assert throttle.wait_s("ana", "192.0.2.1") == 0
        throttle.failed("\ud800" * 10_000, "x" * 10_000)
    assert one(connection, "SELECT max(length(name)) FROM webhooks.buckets") == 64
