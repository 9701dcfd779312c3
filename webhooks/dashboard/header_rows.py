"""The endpoint form's custom headers: one row each, a name and a value.

A secret value is never put into a page, neither a stored one nor one that was just typed. A
stored one leaves a mark in its row instead, and an empty value in such a row keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from flask import current_app

from webhooks import ca_certificates, endpoint_headers
from webhooks.ca_certificates import Certificate
from webhooks.custom_headers import MOST_HEADERS, field, is_secret
from webhooks.dashboard.site import blueprint
from webhooks.endpoints import EndpointError
from webhooks.models import Endpoint, db

EMPTY_ROWS = 3

Values = dict[str, str]


@dataclass(frozen=True, slots=True)
class Own:
    """Headers, secret values as None (all None: they cannot be read), and CA certificates."""

    headers: Mapping[str, str | None] | None
    certificates: Sequence[Certificate]


@dataclass(frozen=True, slots=True)
class HeaderRow:
    """A row of the form; ``kept``: its value is stored and secret, and stays if left empty."""

    number: int
    name: str
    value: str
    secret: bool
    kept: bool


def stored(endpoint: Endpoint) -> dict[str, str | None] | None:
    """An endpoint's, a secret value as None; None when they cannot be read any more."""
    return endpoint_headers.shown(endpoint, current_app.extensions["webhooks_keyring"])


def values_of(headers: Mapping[str, str | None]) -> Values:
    """Headers, as anybody may see them, as the form shows them."""
    values: Values = {}
    for n, (name, value) in enumerate(headers.items(), 1):
        values |= {f"header_name_{n}": name, f"header_value_{n}": value or ""}
        if value is None:
            values[f"header_kept_{n}"] = "1"
    return values


@blueprint.app_template_global("own")
def own(endpoint_id: UUID) -> Own:
    """What an endpoint has of its own, for its page."""
    endpoint = db.session.get_one(Endpoint, endpoint_id)
    return Own(stored(endpoint), ca_certificates.describe(endpoint.ca_pem or ""))


@blueprint.app_template_global("header_rows")
def rows(values: Mapping[str, str]) -> list[HeaderRow]:
    """The rows of what was typed, and a few empty ones."""
    typed = [row for row in _typed(values) if row.name]
    count = min(MOST_HEADERS, len(typed) + EMPTY_ROWS)
    empty = [HeaderRow(0, "", "", False, False)] * (count - len(typed))
    return [
        replace(row, number=n, value="" if row.secret else row.value)
        for n, row in enumerate((*typed, *empty), 1)
    ]


def fields(values: Mapping[str, str]) -> dict[str, dict[str, str | None]]:
    """``headers`` as endpoints.create takes them, None for a value to keep.

    Nothing where there are no rows: whoever sends the form without them means none of them.
    """
    if "header_name_1" not in values:
        return {}
    found: dict[str, str | None] = {}
    for row in _typed(values):
        if not row.name:
            if row.value:
                raise EndpointError("headers", "there is a value without a name; give both")
            continue
        if row.name in found:
            raise EndpointError(field(row.name), "it is there twice; give it once")
        found[row.name] = None if row.kept else row.value
    return {"headers": found}


def _typed(values: Mapping[str, str]) -> list[HeaderRow]:
    return [_row(values, n) for n in range(1, MOST_HEADERS + 1)]


def _row(values: Mapping[str, str], n: int) -> HeaderRow:
    name = values.get(f"header_name_{n}", "").strip()
    value = values.get(f"header_value_{n}", "").strip()
    kept = not value and f"header_kept_{n}" in values
    return HeaderRow(n, name, value, kept or is_secret(name), kept)
