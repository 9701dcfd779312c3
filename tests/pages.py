"""What tests of the dashboard's pages share: signing in, forms, addresses."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from webhooks import ids, users

PASSWORD = "correct horse battery"
BANNER = "Development mode: plain http and loopback targets are allowed"
HOSTILE = "\"><script>alert(1)</script><svg onload=alert(1)>'"


def signed_in(app: Flask, role: str = "owner", *, base: str = "http://localhost") -> FlaskClient:
    """A client that is signed in as a user of this role, who is named like it."""
    with app.app_context():
        if users.find(role) is None:
            users.create(role, PASSWORD, role)
    client = app.test_client()
    answer = post(client, "/sign-in", {"username": role, "password": PASSWORD}, base_url=base)
    assert answer.status_code == 303, answer.text
    return client


def token(client: FlaskClient, **options: Any) -> str:
    """A form token of this client's form session."""
    html = client.get("/nowhere", **options).text
    found = re.search(r'name="csrf_token" value="([^"]+)"', html)
    assert found is not None
    return found[1]


def post(
    client: FlaskClient, path: str, data: dict[str, str] | None = None, **options: Any
) -> TestResponse:
    """Send a form with its token."""
    base = {"base_url": options["base_url"]} if "base_url" in options else {}
    data = {"csrf_token": token(client, **base)} | (data or {})
    return client.post(path, data=data, **options)


def path_of(kind: str, row_id: UUID) -> str:
    """The page of a row: ``kind`` is dlv, ep or evt."""
    folder = {"dlv": "deliveries", "ep": "endpoints", "evt": "events"}[kind]
    return f"/{folder}/{ids.encode(kind, row_id)}"


def pages(rows: dict[str, UUID]) -> list[str]:
    """Every page there is, with a row in every state."""
    states = ("delivered", "dead", "cancelled", "scheduled", "in_flight", "held", "pending")
    endpoints = [path_of("ep", rows[name]) for name in ("acme", "bolt", "crm", "shop")]
    return [
        "/",
        "/deliveries",
        "/endpoints",
        "/endpoints/new",
        "/send",
        path_of("evt", rows["event"]),
        *(path_of("dlv", rows[state]) for state in states),
        *endpoints,
        *(f"{endpoint}/{form}" for endpoint in endpoints for form in ("edit", "delete", "resume")),
    ]
