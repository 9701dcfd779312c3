"""The endpoint's form and page: custom headers, signing schemes, an own CA."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import psycopg
import pytest
import trustme
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from tests.pages import path_of, post, signed_in
from tests.queue import one
from webhooks.secrets import Keyring, Place

CANARY = "canary-9c4f"
URL = "http://127.0.0.1:9000/hooks"
ENDPOINT = {"url": URL, "event_types": "*"}
HEADERS = {
    "header_name_1": "X-Tenant", "header_value_1": "a: b",
    "header_name_2": "Authorization", "header_value_2": f"Bearer {CANARY}",
}  # fmt: skip
STORED = [["X-Tenant", "a: b"], ["Authorization", f"Bearer {CANARY}"]]


class Form(HTMLParser):
    """What a browser would send of the form in the page's middle, untouched."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.values: dict[str, str] = {}
        self._area = ""
        self._inside = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        kind = found.get("type", "text")
        if tag == "form":
            self._inside = "form-card" in found.get("class", "")
        elif not self._inside:
            return
        elif tag == "textarea":
            self._area = found["name"]
            self.values[self._area] = ""
        elif tag == "input" and (kind not in ("radio", "checkbox") or "checked" in found):
            self.values[found["name"]] = found.get("value", "on")

    def handle_endtag(self, tag: str) -> None:
        self._area = "" if tag == "textarea" else self._area

    def handle_data(self, data: str) -> None:
        if self._area:
            self.values[self._area] += data


@pytest.fixture
def owner(app: Flask) -> FlaskClient:
    return signed_in(app)


@pytest.fixture
def path(owner: FlaskClient, connection: psycopg.Connection) -> str:
    """The page of an endpoint that has the headers STORED."""
    assert post(owner, "/endpoints", ENDPOINT | HEADERS).status_code == 201
    return path_of("ep", one(connection, "SELECT id FROM webhooks.endpoints"))


def stored(app: Flask, connection: psycopg.Connection) -> list[list[str]]:
    ((tenant_id, row_id, ciphertext),) = connection.execute(
        "SELECT tenant_id, id, headers FROM webhooks.endpoints"
    ).fetchall()
    if ciphertext is None:
        return []
    place = Place("endpoints", tenant_id, row_id, "headers")
    plain = app.extensions["webhooks_keyring"].decrypt(place, ciphertext)
    found: list[list[str]] = json.loads(plain)
    return found


def error_at(answer: TestResponse, field: str) -> str:
    """The text beside a field; everything else of the form is as it was typed."""
    assert answer.status_code == 422
    found = re.search(rf'id="{field}-error">.*?<span>(.*?)</span>', answer.text, re.DOTALL)
    assert found is not None
    return found[1]


def test_a_secret_value_is_never_in_a_page(
    app: Flask, owner: FlaskClient, connection: psycopg.Connection, path: str
) -> None:
    """Its name is, with the word; the others are shown whole (W152, W174)."""
    page, edit = owner.get(path).text, owner.get(f"{path}/edit").text

    assert stored(app, connection) == STORED
    assert CANARY not in page + edit
    assert re.search(r'Authorization: </code><span class="muted">secret', page)
    assert "X-Tenant: a: b" in page
    form = Form(edit).values
    assert (form["header_name_1"], form["header_value_1"]) == ("X-Tenant", "a: b")
    assert (form["header_name_2"], form["header_value_2"]) == ("Authorization", "")
    assert re.search(r'name="header_value_2" type="password"', edit)


def test_an_untouched_form_changes_nothing(
    owner: FlaskClient, connection: psycopg.Connection, path: str
) -> None:
    """Saved as it came: no mask is stored, no scheme lost, no entry in the audit log (W174)."""
    row = "SELECT e::text FROM webhooks.endpoints e"
    before = one(connection, row)

    assert post(owner, path, Form(owner.get(f"{path}/edit").text).values).status_code == 303

    assert one(connection, row) == before
    entries = connection.execute("SELECT action FROM webhooks.audit_log WHERE action ~ 'endpoint'")
    assert entries.fetchall() == [("endpoint.create",)]


def test_rows_are_changed_added_and_removed(
    app: Flask, owner: FlaskClient, connection: psycopg.Connection, path: str
) -> None:
    """An emptied row is a header less; an empty row is none; blanks around are not part of it."""
    form = Form(owner.get(f"{path}/edit").text).values
    changed = {
        "header_name_1": "", "header_value_1": "",
        "header_name_3": " X-New ", "header_value_3": " n ",
    }  # fmt: skip
    assert post(owner, path, form | changed).status_code == 303

    assert stored(app, connection) == [STORED[1], ["X-New", "n"]]
    form = Form(owner.get(f"{path}/edit").text).values
    gone = {"header_name_1": "", "header_name_2": "", "header_value_2": ""}
    assert post(owner, path, form | gone).status_code == 303
    assert stored(app, connection) == []


WRONG = [
    ({"header_name_1": "Host"}, "Host: the name is reserved"),
    ({"header_name_1": "", "header_value_1": "v"}, "a value without a name"),
    ({"header_name_3": "X-Tenant", "header_value_3": "c"}, "X-Tenant: it is there twice"),
    ({"header_name_3": "x-tenant", "header_value_3": "c"}, "x-tenant: it is there twice"),
    ({"header_name_3": "X-Token", "header_value_3": ""}, "X-Token: its value is empty"),
    ({"header_name_2": "X-Other-Key"}, "X-Other-Key: no secret value is stored"),
    ({"header_value_1": "a\r\nX-B: c"}, "X-Tenant: its value has a line break"),
]


def test_a_wrong_header_is_told_beside_the_rows(
    app: Flask, owner: FlaskClient, connection: psycopg.Connection, path: str
) -> None:
    """422, nothing is stored, and what was typed is still there, but for secrets."""
    form = Form(owner.get(f"{path}/edit").text).values
    for wrong, reason in WRONG:
        typed = form | {"header_name_5": "X-Api-Key", "header_value_5": CANARY} | wrong
        answer = post(owner, path, typed | {"description": "what I typed"})

        assert reason in error_at(answer, "headers")
        assert "what I typed" in answer.text
        assert "X-Api-Key" in answer.text
        assert CANARY not in answer.text
    assert stored(app, connection) == STORED


def test_a_secret_that_was_typed_has_to_be_typed_again(
    app: Flask, owner: FlaskClient, connection: psycopg.Connection, path: str
) -> None:
    """After an error, or a preview, an empty value does not mean the one stored before."""
    form = Form(owner.get(f"{path}/edit").text).values
    for more in ({"timeout_s": "soon"}, {"preview": "1"}):
        answer = post(owner, path, form | {"header_value_2": "Bearer new"} | more)
        assert "Bearer new" not in answer.text
        again = post(owner, path, Form(answer.text).values | {"timeout_s": "5"})

        assert "Authorization: its value is empty" in error_at(again, "headers")
    assert stored(app, connection) == STORED


def test_another_origin_asks_for_the_secrets_anew(
    app: Flask, owner: FlaskClient, connection: psycopg.Connection, path: str
) -> None:
    """The form cannot be used to have them sent elsewhere (CVE-2022-4342, CVE-2023-2620)."""
    form = Form(owner.get(f"{path}/edit").text).values | {"url": "http://127.0.0.2:9000/hooks"}

    answer = post(owner, path, form)

    assert "Authorization: what is stored was given for" in error_at(answer, "headers")
    assert one(connection, "SELECT url FROM webhooks.endpoints") == URL
    assert post(owner, path, form | {"header_value_2": "Bearer new"}).status_code == 303
    assert stored(app, connection) == [STORED[0], ["Authorization", "Bearer new"]]


def test_a_form_of_before_leaves_alone_what_it_does_not_know(
    app: Flask, owner: FlaskClient, connection: psycopg.Connection, path: str
) -> None:
    """Without the rows, the boxes and the certificates none of them is taken away."""
    pem = trustme.CA().cert_pem.bytes().decode()
    connection.execute(
        "UPDATE webhooks.endpoints SET schemes = '{github,standard}', ca_pem = %s", [pem]
    )
    assert post(owner, path, ENDPOINT | {"description": "d"}).status_code == 303

    assert stored(app, connection) == STORED
    row = connection.execute("SELECT schemes, ca_pem, description FROM webhooks.endpoints")
    assert row.fetchone() == (["github", "standard"], pem, "d")


def test_schemes_are_ticked(owner: FlaskClient, connection: psycopg.Connection, path: str) -> None:
    """One at least, and only those that its secrets can sign; an order is not a change."""
    schemes = "SELECT schemes FROM webhooks.endpoints"
    connection.execute("UPDATE webhooks.endpoints SET schemes = '{github,standard}'")
    form = Form(owner.get(f"{path}/edit").text).values
    assert post(owner, path, form).status_code == 303
    assert one(connection, schemes) == ["github", "standard"]
    jwt = error_at(post(owner, path, form | {"scheme_jwt": "1"}), "schemes")
    assert "jwt needs a secret of the kind ed25519" in jwt
    del form["scheme_standard"]
    assert post(owner, path, form | {"scheme_stripe": "1"}).status_code == 303
    assert one(connection, schemes) == ["github", "stripe"]
    del form["scheme_github"]
    assert "at least one" in error_at(post(owner, path, form), "schemes")
    assert one(connection, schemes) == ["github", "stripe"]


def test_a_new_endpoint_that_shares_no_secret_says_so(owner: FlaskClient) -> None:
    """Signed with a key pair alone, there is nothing to be copied."""
    form = Form(owner.get("/endpoints/new").text).values | ENDPOINT
    assert form.pop("scheme_standard") == "1"
    answer = post(owner, "/endpoints", form | {"scheme_rfc9421": "1"})

    assert answer.status_code == 201
    assert "whsec_" not in answer.text
    assert "the receiver needs the public key" in answer.text


def test_an_own_ca_is_shown_and_kept(
    owner: FlaskClient, connection: psycopg.Connection, path: str
) -> None:
    """Subject, expiry and fingerprint on the page; one that has expired since hinders nobody."""
    pem = trustme.CA(organization_name="Ours & <b>").cert_pem.bytes().decode()
    form = Form(owner.get(f"{path}/edit").text).values
    wrong = post(owner, path, form | {"ca_pem": "nothing"})
    assert "BEGIN CERTIFICATE" in error_at(wrong, "ca_pem")
    crlf = pem.replace("\n", "\r\n")
    assert post(owner, path, form | {"ca_pem": crlf}).status_code == 303

    page = owner.get(path).text
    assert r"Ours &amp; \&lt;b\&gt;" in page
    assert re.search(r"SHA-256 [0-9a-f]{64}", page)
    form = Form(owner.get(f"{path}/edit").text).values
    assert form["ca_pem"] == pem
    connection.execute("UPDATE webhooks.endpoints SET ca_pem = 'expired'")
    form["ca_pem"] = "expired"
    assert post(owner, path, form | {"description": "d"}).status_code == 303
    assert post(owner, path, form | {"ca_pem": " "}).status_code == 303
    assert one(connection, "SELECT ca_pem FROM webhooks.endpoints") is None


def test_a_lost_keyring_is_said_and_takes_nothing_away(
    app: Flask, owner: FlaskClient, connection: psycopg.Connection, path: str
) -> None:
    """The page says which state it is; the form still saves the rest."""
    keyring = app.extensions["webhooks_keyring"]
    app.extensions["webhooks_keyring"] = Keyring.parse(Keyring.generate("another"))

    assert "They cannot be read any more" in owner.get(path).text
    form = Form(owner.get(f"{path}/edit").text).values
    assert post(owner, path, form | {"description": "d"}).status_code == 303
    app.extensions["webhooks_keyring"] = keyring
    assert stored(app, connection) == STORED
    assert one(connection, "SELECT description FROM webhooks.endpoints") == "d"
