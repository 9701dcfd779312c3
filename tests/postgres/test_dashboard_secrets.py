"""The dashboard's pages of signing secrets."""

from __future__ import annotations

import base64
import re

import psycopg
import pytest
from flask import Flask
from flask.testing import FlaskClient

from tests.pages import path_of, post, signed_in
from tests.queue import one

ENDPOINT = {"url": "http://127.0.0.1:9000/hooks", "event_types": "*"}
OWN = "whsec_" + base64.b64encode(b"canary" * 5 + b"1").decode()
LIVE = "SELECT count(*) FROM webhooks.signing_secrets WHERE valid_until > now()"


@pytest.fixture
def owner(app: Flask) -> FlaskClient:
    return signed_in(app)


@pytest.fixture
def path(owner: FlaskClient, connection: psycopg.Connection) -> str:
    """The page of an endpoint with one secret."""
    assert post(owner, "/endpoints", ENDPOINT).status_code == 201
    return path_of("ep", one(connection, "SELECT id FROM webhooks.endpoints"))


def revocations(client: FlaskClient, path: str) -> list[str]:
    """The addresses of the pages that ask before a secret is revoked, newest first."""
    return re.findall(rf"{path}/secrets/sec_\w+/revoke", client.get(path).text)


def test_a_new_secret_is_shown_once(owner: FlaskClient, path: str) -> None:
    """In the answer to the form, never later; the older one says until when it signs."""
    answer = post(owner, f"{path}/secrets", {"kind": "hmac", "overlap_s": "3600"})

    found = re.search(r"whsec_[A-Za-z0-9+/=]+", answer.text)
    assert answer.status_code == 201
    assert found is not None
    assert "no-store" in answer.headers["Cache-Control"]
    page = owner.get(path).text
    assert found[0] not in page
    assert page.count("signs until") == 1


def test_of_a_key_pair_the_public_half_is_shown(owner: FlaskClient, path: str) -> None:
    """Here and on the endpoint's page; the private one never."""
    answer = post(owner, f"{path}/secrets", {"kind": "ed25519", "overlap_s": "86400"})

    found = re.search(r"whpk_[A-Za-z0-9+/=]+", answer.text)
    assert found is not None
    assert found[0] in owner.get(path).text
    assert "whsk_" not in answer.text


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"secret": OWN.replace("=", "")}, "padding"),
        ({"secret": OWN[:20]}, "bytes"),
        ({"kind": "rsa"}, "not one of"),
        ({"overlap_s": "soon"}, "choose one of the list"),
        ({"secret": "canary of our own text"}, "change the schemes first"),
    ],
)
def test_what_is_wrong_is_said_and_a_secret_does_not_come_back(
    owner: FlaskClient, path: str, connection: psycopg.Connection, form: dict[str, str], words: str
) -> None:
    """422 with the reason by its field; what was typed as a secret is not in the answer."""
    answer = post(owner, f"{path}/secrets", {"kind": "hmac", "overlap_s": "86400"} | form)

    assert answer.status_code == 422
    assert words in answer.text
    assert "canary" not in answer.text
    assert form.get("secret", "§") not in answer.text
    assert one(connection, LIVE) == 1


def test_a_revocation_asks_first(owner: FlaskClient, path: str) -> None:
    """The page says what it means; the form ends it at once."""
    post(owner, f"{path}/secrets", {"kind": "hmac", "overlap_s": "86400"})
    _, old = revocations(owner, path)
    assert "1 other secret stays" in owner.get(old).text

    post(owner, old, {})

    assert len(revocations(owner, path)) == 1
    assert owner.get(old).status_code == 404


def test_the_only_secret_stays(
    owner: FlaskClient, path: str, connection: psycopg.Connection
) -> None:
    """Its page says so, and the form answers why."""
    (only,) = revocations(owner, path)
    assert "It is the only one that does not end" in owner.get(only).text

    post(owner, only, {})

    assert "Not revoked: standard needs a secret" in owner.get(path).text
    assert one(connection, LIVE) == 1


@pytest.mark.parametrize("role", ["developer", "viewer"])
def test_who_may_not_see_secrets_makes_none(
    app: Flask, owner: FlaskClient, path: str, connection: psycopg.Connection, role: str
) -> None:
    """No link, no page, no form."""
    (only,) = revocations(owner, path)
    client = signed_in(app, role)

    assert revocations(client, path) == []
    assert f"{path}/secrets/new" not in client.get(path).text
    assert client.get(f"{path}/secrets/new").status_code == 403
    assert client.get(only).status_code == 403
    for address in (f"{path}/secrets", only):
        answer = post(client, address, {"kind": "hmac", "overlap_s": "86400"})
        assert answer.status_code == 403
    assert one(connection, LIVE) == 1
