"""Endpoints for tests, made as the product makes them, inside the app's context."""

from __future__ import annotations

from typing import Any

import psycopg
from flask import Flask

from tests.api import URL
from webhooks import endpoints, tenants
from webhooks.models import Endpoint, Tenant


def create(app: Flask, tenant: str = "default", **fields: Any) -> tuple[Endpoint, str]:
    """An endpoint for everything, unless told otherwise, and its secret."""
    found = tenants.find(tenant)
    assert isinstance(found, Tenant)
    values: dict[str, Any] = {"url": URL, "event_types": ["*"], **fields}
    return endpoints.create(
        found,
        app.extensions["webhooks_settings"],
        app.extensions["webhooks_keyring"],
        actor="ada",
        **values,
    )


def lane(connection: psycopg.Connection) -> dict[str, Any]:
    """The only lane's columns, and whether it is open."""
    with connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        row = cursor.execute("SELECT *, open_at <= now() AS open FROM webhooks.lanes").fetchone()
    assert row is not None
    return row
