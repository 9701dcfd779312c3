"""The dashboard's forms: endpoints and events."""

from __future__ import annotations

import re
from datetime import UTC

import psycopg
import pytest
from flask import Flask
from flask.testing import FlaskClient
from markupsafe import escape
from werkzeug.test import TestResponse

from tests.pages import HOSTILE, path_of, post, signed_in
from tests.queue import emit, one, statuses
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
        ("max_in_flight", "9" * 5000),
        ("rate_per_second", "fast"),
        ("rate_per_second", "0"),
        ("rate_per_second", "1e999"),
        ("rate_burst", "5"),
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


@pytest.mark.parametrize(
    ("retry", "field", "value"),
    [
        ("exponential", "retry_base_s", "-1"),
        ("exponential", "retry_base_s", "nan"),
        ("exponential", "retry_factor", "inf"),
        ("exponential", "retry_cap_s", "soon"),
        ("exponential", "retry_attempts", "1.5"),
        ("exponential", "retry_attempts", "9" * 5000),
        ("list", "retry_delays", "5 apples"),
        ("list", "retry_delays", "-5"),
        ("list", "retry_delays", "8d"),
        ("list", "retry_delays", "9" * 5000),
        ("list", "retry_delays", "1 " * 100),
        ("list", "retry_delays", HOSTILE),
    ],
)
@pytest.mark.parametrize("button", ["save", "preview"])
def test_a_wrong_retry_policy_is_named_and_kept_as_typed(
    owner: FlaskClient,
    connection: psycopg.Connection,
    retry: str,
    field: str,
    value: str,
    button: str,
) -> None:
    """Beside its field when saving, in the preview in any case; never an error page (W084)."""
    more = {"preview": "1"} if button == "preview" else {}
    answer = register(owner, retry=retry, description="what I typed", **{field: value}, **more)

    assert answer.status_code == (200 if more else 422)
    assert (f'id="{field}-error"' in answer.text) is (not more)
    assert re.search(rf'name="retry" value="{retry}" checked', answer.text)
    preview = answer.text.partition('id="preview"')[2].partition("</div>")[0]
    assert 'class="error"' in preview
    assert "what I typed" in answer.text
    assert escape(value) in answer.text
    assert one(connection, "SELECT count(*) FROM webhooks.endpoints") == 0


def test_the_preview_shows_the_ladder_and_saves_nothing(
    owner: FlaskClient, connection: psycopg.Connection
) -> None:
    """For a new endpoint and for one that is there; by whose policy, too."""
    typed = {"retry": "list", "retry_delays": "30s, 5m 2h;1d", "preview": "1"}

    answer = register(owner, **typed)

    assert answer.status_code == 200
    assert "After 30 s, 5 min, 2 h, 24 h: 5 attempts over about 26 hours." in answer.text
    assert "The policy of this endpoint." in answer.text
    register(owner)
    path = path_of("ep", one(connection, "SELECT id FROM webhooks.endpoints"))
    answer = post(owner, path, ENDPOINT | typed)
    assert "5 attempts over about 26 hours" in answer.text
    assert one(connection, "SELECT retry_policy FROM webhooks.endpoints") is None
    connection.execute("UPDATE webhooks.tenants SET retry_policy = '{\"delays_s\": [7]}'")
    for html in (owner.get("/endpoints/new").text, owner.get(f"{path}/edit").text):
        assert "After 7 s: 2 attempts over about 7 seconds." in html
        assert "By the policy of its tenant." in html


def test_limits_and_retries_are_saved_and_shown(
    owner: FlaskClient, connection: psycopg.Connection
) -> None:
    """As they were typed; an empty rate is none, the usual choice takes the policy back."""
    register(
        owner, rate_per_second="2.5", retry="exponential", retry_base_s="0.5", retry_factor="2",
        retry_cap_s="60", retry_attempts="4",
    )  # fmt: skip
    columns = "SELECT retry_policy, rate_limit, rate_burst FROM webhooks.endpoints"
    policy = {"base_s": 0.5, "factor": 2, "cap_s": 60, "attempts": 4}
    assert connection.execute(columns).fetchone() == (policy, 2.5, 3)
    path = path_of("ep", one(connection, "SELECT id FROM webhooks.endpoints"))
    html = owner.get(path).text
    assert "2.5 attempts a second, up to 3 at once" in html
    assert "After 0.5 s, 1 s, 2 s: 4 attempts" in html

    post(owner, path, ENDPOINT | {"retry": "list", "retry_delays": "1, 2m"})
    assert connection.execute(columns).fetchone() == ({"delays_s": [1, 120]}, None, None)
    assert re.search(r'name="retry_delays"[^>]*value="1, 120"', owner.get(f"{path}/edit").text)
    post(owner, path, ENDPOINT | {"retry": "default"})

    assert connection.execute(columns).fetchone() == (None, None, None)


@pytest.mark.parametrize(
    "policy",
    ['{"attempts": 3}', '{"base_s": 12345.678, "factor": 1.1}', '{"delays_s": [0.25, 1e5]}',
     '{"delays_s": []}', "null"],
)  # fmt: skip
def test_saving_the_form_as_it_came_changes_nothing(
    owner: FlaskClient, connection: psycopg.Connection, policy: str
) -> None:
    """No field is rounded, and no policy is spelled out that was not (W174)."""
    register(owner, rate_per_second="0.3", rate_burst="7")
    connection.execute("UPDATE webhooks.endpoints SET retry_policy = NULLIF(%s, 'null')::jsonb",
                       [policy])  # fmt: skip
    path = path_of("ep", one(connection, "SELECT id FROM webhooks.endpoints"))
    page = owner.get(f"{path}/edit").text
    fields = dict(re.findall(r'<input id="\w+" name="(\w+)"[^>]*value="([^"]*)"', page))
    fields["event_types"] = re.findall(r"<textarea[^>]*>([^<]*)<", page)[0]
    fields["retry"] = re.findall(r'name="retry" value="(\w+)" checked', page)[0]

    assert post(owner, path, fields).status_code == 303

    assert one(connection, "SELECT count(*) FROM webhooks.audit_log WHERE action = %s",
               "endpoint.update") == 0  # fmt: skip


@pytest.mark.parametrize(
    ("release", "since", "left", "says"),
    [
        ("all", "", {"pending": 2}, "on their way"),
        ("since", "2020-01-01T00:00", {"pending": 2}, "0 older ones are cancelled"),
        ("since", "2020-01-01T00:00:05.5+09:00", {"pending": 2}, "0 older ones are cancelled"),
        ("none", "", {"cancelled": 2}, "2 deliveries that were held are cancelled"),
    ],
)
def test_resuming_asks_what_is_released(
    owner: FlaskClient,
    connection: psycopg.Connection,
    release: str,
    since: str,
    left: dict[str, int],
    says: str,
) -> None:
    """The page tells how many wait and proposes when it was closed; times are UTC."""
    register(owner, event_types="*")
    path = path_of("ep", one(connection, "SELECT id FROM webhooks.endpoints"))
    post(owner, f"{path}/pause")
    emit(connection, 2)
    html = owner.get(f"{path}/resume").text
    assert "2 deliveries are waiting for it." in html
    closed = one(connection, "SELECT status_changed_at FROM webhooks.endpoints")
    assert f'value="{closed.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"' in html

    answer = post(owner, f"{path}/resume", {"release": release, "since": since})

    assert answer.location == path
    assert says in owner.get(path).text
    assert statuses(connection) == left


def test_a_release_that_takes_too_long_is_pressed_again(
    owner: FlaskClient, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page says how far it is and keeps the choice; pressed again, it goes on."""
    register(owner, event_types="*")
    path = path_of("ep", one(connection, "SELECT id FROM webhooks.endpoints"))
    post(owner, f"{path}/pause")
    emit(connection, 2)
    monkeypatch.setattr("webhooks.release.LONGEST_S", 0)

    answer = post(owner, f"{path}/resume", {"release": "none"})

    monkeypatch.undo()
    assert answer.status_code == 409
    assert "there are more, and the endpoint is not resumed yet" in answer.text
    assert 'value="none" checked' in answer.text
    assert one(connection, "SELECT status FROM webhooks.endpoints") == "paused"
    assert post(owner, f"{path}/resume", {"release": "none"}).location == path
    assert statuses(connection) == {"cancelled": 2}


@pytest.mark.parametrize(
    "since", ["", "yesterday", "2999-01-01T00:00", "2026-02-30T00:00", HOSTILE]
)
def test_a_wrong_time_is_named_and_the_endpoint_stays_paused(
    owner: FlaskClient, connection: psycopg.Connection, since: str
) -> None:
    """422, the choice and what was typed still there, nothing cancelled."""
    register(owner, event_types="*")
    path = path_of("ep", one(connection, "SELECT id FROM webhooks.endpoints"))
    post(owner, f"{path}/pause")
    emit(connection)

    answer = post(owner, f"{path}/resume", {"release": "since", "since": since})

    assert answer.status_code == 422
    assert 'id="since-error"' in answer.text
    assert 'value="since" checked' in answer.text
    assert f'value="{escape(since)}"' in answer.text
    assert statuses(connection) == {"pending": 1}
    assert post(owner, f"{path}/resume", {"release": "some"}).status_code == 422
    assert one(connection, "SELECT status FROM webhooks.endpoints") == "paused"


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
