"""The dashboard's forms: endpoints and events."""

from __future__ import annotations

import re

import psycopg
import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from tests.pages import HOSTILE, path_of, post, signed_in
from tests.queue import one
from webhooks import ids


@pytest.fixture
def owner(app: Flask) -> FlaskClient:
    return signed_in(app)


ENDPOINT = {"url": "http://127.0.0.1:9000/hooks", "event_types": "invoice.*\nuser.created, x"}


def register(client: FlaskClient, **more: str) -> TestResponse:
    return post(client, "/endpoints", ENDPOINT | more)


def test_the_secret_is_shown_once(owner: FlaskClient, connection: psycopg.Connection) -> None:
    """In the answer to the form: not in an address, a cookie, or any later page."""
    answer = register(owner, description="Mine")

    found = re.search(r"whsec_[A-Za-z0-9+/=]+", answer.text)
    assert answer.status_code == 201
    assert found is not None
    assert "no-store" in answer.headers["Cache-Control"]
    assert found[0] not in str(answer.headers)
    path = path_of("ep", one(connection, "SELECT id FROM webhooks.endpoints"))
    for page in (path, f"{path}/edit", "/endpoints"):
        assert found[0] not in owner.get(page).text
    assert [row[0] for row in connection.execute(
        "SELECT pattern FROM webhooks.subscriptions ORDER BY 1"
    )] == ["invoice.*", "user.created", "x"]  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("url", ""),
        ("url", "javascript:alert(1)"),
        ("url", HOSTILE),
        ("event_types", ""),
        ("event_types", "a..b"),
        ("description", "x" * 501),
        ("timeout_s", "soon"),
        ("timeout_s", "61"),
        ("timeout_s", "nan"),
        ("max_in_flight", "0"),
        ("max_in_flight", "1.5"),
        ("tenant", "nobody"),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_lost(
    owner: FlaskClient, connection: psycopg.Connection, field: str, value: str
) -> None:
    """422, the error beside its field, everything typed still there, nothing stored."""
    connection.execute("INSERT INTO webhooks.tenants (key, name) VALUES ('acme', 'Acme')")
    answer = register(owner, **{"description": "what I typed", field: value})

    assert answer.status_code == 422
    assert f'id="{field}-error"' in answer.text
    assert re.search(rf'id="{field}"[^>]*aria-invalid="true"', answer.text)
    if field != "description":
        assert "what I typed" in answer.text
    assert one(connection, "SELECT count(*) FROM webhooks.endpoints") == 0


def test_an_endpoint_is_changed_paused_resumed_and_deleted(
    owner: FlaskClient, connection: psycopg.Connection
) -> None:
    """Each by a form, each followed by a page that says so."""
    register(owner)
    row_id = one(connection, "SELECT id FROM webhooks.endpoints")
    path = path_of("ep", row_id)
    assert 'value="20"' in owner.get(f"{path}/edit").text

    answer = post(owner, path, ENDPOINT | {"description": "New", "timeout_s": "7.5"})
    assert answer.location == path
    html = owner.get(path).text
    assert "Saved." in html
    assert "7.5 s an attempt" in html
    post(owner, f"{path}/pause")
    html = owner.get(path).text
    assert "Paused by owner" in html
    assert "Resume" in html
    assert one(connection, "SELECT open_at = 'infinity' FROM webhooks.lanes")
    post(owner, f"{path}/resume")
    assert one(connection, "SELECT status FROM webhooks.endpoints") == "active"
    connection.execute("SELECT webhooks.emit('default', 'x', '{}')")
    assert "1 waiting delivery" in owner.get(f"{path}/delete").text
    assert post(owner, f"{path}/delete").location == "/endpoints"
    assert owner.get(path).status_code == 404
    assert one(connection, "SELECT status FROM webhooks.deliveries") == "cancelled"


def test_the_tenant_is_asked_for_only_when_there_are_several(
    owner: FlaskClient, connection: psycopg.Connection
) -> None:
    """Who has one tenant never meets the word in a form."""
    assert 'name="tenant"' not in owner.get("/endpoints/new").text
    connection.execute("INSERT INTO webhooks.tenants (key, name) VALUES ('acme', 'Acme')")
    assert 'name="tenant"' in owner.get("/endpoints/new").text

    register(owner, tenant="acme")

    assert one(
        connection,
        "SELECT t.key FROM webhooks.endpoints JOIN webhooks.tenants t ON t.id = tenant_id",
    ) == "acme"  # fmt: skip


def test_a_payload_is_stored_as_it_was_typed(
    owner: FlaskClient, connection: psycopg.Connection
) -> None:
    """Key order, number spelling and spacing; line ends as typed, not as browsers send them."""
    register(owner, event_types="*")
    typed = '{"b": 1.10,\r\n "a":50755254975729665, "s": "ü\\u2028"}'

    answer = post(owner, "/send", {"type": "invoice.paid", "payload": typed})

    event_id = one(connection, "SELECT id FROM webhooks.events")
    assert answer.location == path_of("evt", event_id)
    stored = one(connection, "SELECT payload FROM webhooks.events")
    assert stored == typed.replace("\r\n", "\n").encode()
    html = owner.get(answer.location).text
    assert "Accepted. 1 endpoint gets it." in html
    assert ids.encode("evt", event_id) in html
    assert "/deliveries/dlv_" in html
    download = owner.get(answer.location + "/payload")
    assert download.data == stored
    assert download.headers["Content-Disposition"].startswith("attachment")


@pytest.mark.parametrize(
    ("field", "value", "status"),
    [
        ("type", "", 422),
        ("type", "a b", 422),
        ("type", HOSTILE, 422),
        ("payload", "", 422),
        ("payload", '{"a": NaN}', 422),
        ("payload", "{'a': 1}", 422),
        ("payload", '{"a": 1} x', 422),
        ("payload", "[" * 100_000, 422),
        ("payload", '"' + "x" * 262_143 + '"', 422),
        ("idempotency_key", "x" * 256, 422),
        ("tenant", "nobody", 422),
    ],
)
def test_a_wrong_event_names_its_field_and_stores_nothing(
    owner: FlaskClient, connection: psycopg.Connection, field: str, value: str, status: int
) -> None:
    """What was typed stays; the error stands beside its field."""
    connection.execute("INSERT INTO webhooks.tenants (key, name) VALUES ('acme', 'Acme')")
    data = {"type": "invoice.paid", "payload": '{"kept": true}', field: value}

    answer = post(owner, "/send", data)

    assert answer.status_code == status
    assert f'id="{field}-error"' in answer.text
    if field != "payload":
        assert "kept" in answer.text
    assert "<script>alert" not in answer.text
    assert one(connection, "SELECT count(*) FROM webhooks.events") == 0


@pytest.mark.parametrize("payload", ["", " \r\n\t"])
def test_an_empty_payload_is_called_empty(owner: FlaskClient, payload: str) -> None:
    """Not in a parser's words."""
    answer = post(owner, "/send", {"type": "invoice.paid", "payload": payload})

    assert answer.status_code == 422
    assert "the payload is empty; give JSON" in answer.text


def test_an_idempotency_key_is_kept_to(owner: FlaskClient) -> None:
    """The same event again is the first one; another one under the same key is refused."""
    data = {"type": "a", "payload": "{}", "idempotency_key": "k"}
    first = post(owner, "/send", data)

    assert post(owner, "/send", data).location == first.location
    answer = post(owner, "/send", data | {"payload": "[]"})

    assert answer.status_code == 409
    assert 'id="idempotency_key-error"' in answer.text
