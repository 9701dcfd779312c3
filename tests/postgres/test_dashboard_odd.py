"""The dashboard shows whatever is stored: hostile text, missing and binary values."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest
from flask import Flask
from flask.testing import FlaskClient

from tests.browser import seed
from tests.pages import HOSTILE, path_of, signed_in
from webhooks import ids


@pytest.fixture
def owner(app: Flask) -> FlaskClient:
    return signed_in(app)


def test_nothing_that_comes_from_outside_is_markup(
    owner: FlaskClient, connection: psycopg.Connection
) -> None:
    """Event types, descriptions, URLs, reasons, headers, bodies: text everywhere (W162)."""
    seed.partitions(connection)
    endpoint = seed.add_endpoint(
        connection, f"javascript:alert(1)//{HOSTILE}", HOSTILE, description=HOSTILE,
        status="paused", reason=HOSTILE,
    )  # fmt: skip
    event_id = seed.add_event(connection, HOSTILE, f'{{"</script>": "{HOSTILE[2:]}"}}'.encode())
    for status in ("pending", "dead_lettered"):
        delivery_id = seed.add_delivery(
            connection, endpoint, event_id, status, type=HOSTILE, reason=HOSTILE,
            error="http_5xx", code=503,
        )  # fmt: skip
        seed.add_attempt(
            connection, delivery_id, 1, detail=HOSTILE, url=HOSTILE, peer=HOSTILE,
            body=HOSTILE.encode(), response=[[HOSTILE, HOSTILE]], request=[[HOSTILE, HOSTILE]],
            error=HOSTILE, trigger=HOSTILE,
        )  # fmt: skip
    seed.add_worker(connection, HOSTILE, 1)
    endpoint_path, delivery_path = path_of("ep", endpoint), path_of("dlv", delivery_id)

    for path in ("/", "/deliveries", "/endpoints", endpoint_path, f"{endpoint_path}/edit",
                 f"{endpoint_path}/delete", delivery_path, path_of("evt", event_id),
                 path_of("evt", event_id) + "?view=raw"):  # fmt: skip
        html = owner.get(path).text
        assert "<script>alert" not in html, path
        assert "<svg onload" not in html, path
        assert 'href="javascript:' not in html, path
        assert "alert(1)" in html, path


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"body": None},
        {"body": b""},
        {"body": b"\x89PNG\0\xff\xfe" * 100},
        {"body": b"x" * 65_536, "truncated": True},
        {"body": b"\xff\xfe"},
        {"request": None, "response": None},
        {"request": [], "response": []},
        {"dns": None, "connect": None, "tls": None, "first": None, "total": None},
        {"code": None, "error": "worker_lost", "detail": "its worker was lost", "url": None,
         "peer": None, "body": None, "request": None, "response": None},
        {"code": 799},
        {"outcome": "delivered", "error": None, "code": 204, "body": b""},
    ],
)  # fmt: skip
def test_odd_attempts_are_readable(
    owner: FlaskClient, connection: psycopg.Connection, odd: dict[str, Any]
) -> None:
    """Missing, empty, binary and cut values: 200 and a page (W168)."""
    seed.partitions(connection)
    endpoint = seed.add_endpoint(connection, "https://a.example/")
    delivery_id = seed.add_delivery(connection, endpoint, seed.add_event(connection), "pending")
    seed.add_attempt(connection, delivery_id, 1, **odd)

    answer = owner.get(path_of("dlv", delivery_id))

    assert answer.status_code == 200
    assert "Attempt 1" in answer.text


def test_rows_whose_neighbours_are_gone_are_readable(
    owner: FlaskClient, connection: psycopg.Connection
) -> None:
    """No attempt, no event, no lane, no endpoint, or a deleted one; odd event types (W168)."""
    seed.partitions(connection)
    deleted = seed.add_endpoint(connection, "https://a.example/")
    connection.execute("UPDATE webhooks.endpoints SET deleted_at = now()")
    nobody, event_id = UUID(int=7), seed.add_event(connection, "a/b%2Fc", b"")
    for endpoint in (deleted, nobody):
        for status in ("pending", "delivered"):
            for event in (event_id, nobody):
                delivery_id = seed.add_delivery(connection, endpoint, event, status, type="a/b%2Fc")
                assert owner.get(path_of("dlv", delivery_id)).status_code == 200
    assert owner.get(path_of("evt", event_id)).status_code == 200
    assert "deleted" in owner.get("/deliveries").text
    assert owner.get(f"/deliveries?endpoint={ids.encode('ep', deleted)}").status_code == 200
    assert owner.get("/").status_code == 200


@pytest.mark.parametrize(
    "path",
    ["/deliveries/x", "/deliveries/dlv_" + "0" * 26, "/endpoints/ep_" + "z" * 26, "/events/%00",
     "/endpoints?before=x", "/deliveries?endpoint=x", "/deliveries/evt_" + "0" * 26],
)  # fmt: skip
def test_an_id_that_is_none_is_not_found(owner: FlaskClient, path: str) -> None:
    """404, a page of our own, for ids that are malformed or lead nowhere."""
    answer = owner.get(path)

    assert answer.status_code == 404
    assert "There is nothing here" in answer.text
