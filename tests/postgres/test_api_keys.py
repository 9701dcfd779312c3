"""API keys by the API: what each may do, until when, and who may make which."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from flask import Flask
from hypothesis import given
from hypothesis import strategies as st

from tests.api import Api
from tests.queue import one
from webhooks import keys, scopes
from webhooks.scopes import Scope
from webhooks.verified_keys import VerifiedKeys


@pytest.fixture(autouse=True)
def _ask_anew(app: Flask) -> None:
    """Each request asks the database for its key."""
    clock = iter(range(0, 10**9, 100))
    app.extensions["webhooks_verified_keys"] = VerifiedKeys(lambda: float(next(clock)))


@pytest.fixture
def admin(app: Flask) -> Api:
    return Api(app)


def made(api: Api, **fields: Any) -> Any:
    answer = api.post("/api-keys", {"name": "n", "scopes": ["events:write"], **fields})
    assert answer.status_code == 201, answer.json
    return answer.json


def using(app: Flask, key: str) -> Api:
    api = Api(app)
    api.key = key
    return api


@given(st.sets(st.sampled_from(list(Scope))))
def test_scopes_include_only_what_they_say(given: set[Scope]) -> None:
    """Writing includes reading of the same, admin all, and nothing includes a secret but admin."""
    may = scopes.granted(given)

    assert given <= may
    if Scope.ADMIN in given:
        assert may == set(Scope)
    else:
        assert may - given <= {Scope.ENDPOINTS_READ, Scope.DELIVERIES_READ}
        assert (Scope.SECRETS_READ in may) == (Scope.SECRETS_READ in given)


def test_a_key_is_shown_once_and_works(app: Flask, admin: Api) -> None:
    """The answer that makes it has its text; no other has, and it can do what it says."""
    key = made(admin, scopes=["events:write"], expires_in_s=3600)
    emitter = using(app, key["key"])

    assert emitter.post("/events", {"type": "a", "payload": 1}).status_code == 202
    refused = emitter.get("/endpoints")
    assert refused.status_code == 403
    assert refused.json["errors"] == [
        {"field": "scope",
         "message": "this key lacks endpoints:read; use one that has it, or admin"}
    ]  # fmt: skip
    shown = admin.get(f"/api-keys/{key['id']}").json
    assert shown == {name: value for name, value in key.items() if name != "key"} | {
        "last_used_at": shown["last_used_at"]
    }
    assert shown["last_used_at"] is not None
    assert shown["scopes"] == ["events:write"]
    assert shown["tenant"] == "default"
    assert shown["begins"] + "…" + shown["last_four"] == f"{key['key'][:18]}…{key['key'][-4:]}"
    assert key["key"] not in admin.get("/api-keys").text


def test_a_key_ends_when_it_expires_or_is_revoked(
    app: Flask, admin: Api, connection: psycopg.Connection
) -> None:
    """Either looks like a key that never was."""
    for how in ("expires_at = now()", None):
        key = made(admin)
        if how:
            connection.execute(f"UPDATE webhooks.api_keys SET {how} WHERE public_id = %s",
                               [key["begins"][9:17]])  # fmt: skip
        else:
            assert admin.delete(f"/api-keys/{key['id']}").status_code == 204
            assert admin.delete(f"/api-keys/{key['id']}").status_code == 204
        answer = using(app, key["key"]).post("/events", {"type": "a", "payload": 1})
        assert (answer.status_code, answer.json["type"]) == (
            401,
            "urn:webhooks:problem:unauthorized",
        )


def test_a_rotation_overlaps(app: Flask, admin: Api, connection: psycopg.Connection) -> None:
    """Both work until the old one ends; the new one may do the same."""
    old = made(admin, scopes=["events:write", "endpoints:read"])
    new = admin.post(f"/api-keys/{old['id']}/rotate", {"overlap_s": 600}).json

    assert new["scopes"] == ["endpoints:read", "events:write"]
    for key in (old, new):
        assert using(app, key["key"]).get("/endpoints").status_code == 200
    left = one(connection, "SELECT date_part('epoch', expires_at - now()) FROM webhooks.api_keys "
               "WHERE public_id = %s", old["begins"][9:17])  # fmt: skip
    assert 590 < left <= 600
    now = admin.post(f"/api-keys/{new['id']}/rotate", {"overlap_s": 0}).json
    assert using(app, new["key"]).get("/endpoints").status_code == 401
    assert using(app, now["key"]).get("/endpoints").status_code == 200
    again = admin.post(f"/api-keys/{new['id']}/rotate", {})
    assert (again.status_code, again.json["errors"][0]["field"]) == (422, "key")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"scopes": []}, "scopes"),
        ({"scopes": ["events:read"]}, "scopes[0]"),
        ({"scopes": ["admin", "\u0000"]}, "scopes[0]"),
        ({"name": ""}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"expires_in_s": 59}, "expires_in_s"),
        ({"expires_in_s": 1e300}, "expires_in_s"),
        ({"tenant": "nobody"}, "tenant"),
        ({"tenant": "default", "all_tenants": True}, "tenant"),
        ({"scope": "admin"}, "scope"),
    ],
)
def test_a_wrong_key_is_refused_by_its_field(admin: Api, fields: Any, field: str) -> None:
    """With the remedy, and nothing is made."""
    answer = admin.post("/api-keys", {"name": "n", "scopes": ["admin"], **fields})

    assert (answer.status_code, answer.json["errors"][0]["field"]) == (422, field)
    assert len(admin.get("/api-keys").json["data"]) == 1


def test_a_tenants_key_makes_and_sees_its_tenants_keys_alone(app: Flask, admin: Api) -> None:
    """Another tenant's key, and one of all tenants, is not there for it."""
    acme = Api(app, "acme")
    own, foreign = made(acme), made(admin, tenant="default")

    assert own["tenant"] == "acme"
    assert {key["tenant"] for key in acme.get("/api-keys").json["data"]} == {"acme"}
    for body in ({"all_tenants": True}, {"tenant": "default"}):
        answer = acme.post("/api-keys", {"name": "n", "scopes": ["admin"], **body})
        assert answer.status_code == 403
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/rotate")):
        answer = acme.call(method, f"/api-keys/{foreign['id']}{path}", {} if path else None)
        assert answer.status_code == 404
    assert (
        using(app, foreign["key"]).post("/events", {"type": "a", "payload": 1}).status_code == 202
    )


def test_nobody_locks_himself_out(app: Flask, admin: Api) -> None:
    """The last key that may manage all is not revoked by the API; a second one may be."""
    (only,) = admin.get("/api-keys").json["data"]
    answer = admin.delete(f"/api-keys/{only['id']}")
    assert answer.status_code == 409
    assert "create another first" in answer.json["detail"]

    other = made(admin, scopes=["admin"], all_tenants=True)
    assert admin.delete(f"/api-keys/{only['id']}").status_code == 204
    assert using(app, other["key"]).get("/api-keys").status_code == 200


def test_only_secrets_read_reveals_a_secret(app: Flask, connection: psycopg.Connection) -> None:
    """The text, as the endpoint's making showed it; it is on record who saw it (W152)."""
    admin, writer = Api(app, "acme"), Api(app, "acme", ["endpoints:write"])
    reader = Api(app, "acme", ["secrets:read"])
    endpoint = writer.post(
        "/endpoints", {"url": "http://127.0.0.1:8080/", "event_types": ["*"]}
    ).json
    (secret,) = writer.get(f"/endpoints/{endpoint['id']}/secrets").json["data"]
    path = f"/endpoints/{endpoint['id']}/secrets/{secret['id']}/reveal"

    assert writer.post(path).status_code == 403
    assert Api(app, "other").post(path).status_code == 404
    for api in (reader, admin):
        assert api.post(path).json == {"id": secret["id"], "secret": endpoint["secret"]}
    logged = connection.execute(
        "SELECT actor, detail::text FROM webhooks.audit_log WHERE action = 'secret.reveal'"
    ).fetchall()
    assert len(logged) == 2
    assert all(endpoint["secret"] not in detail for _, detail in logged)
    unknown = path.replace(secret["id"], "sec_" + "0" * 26)
    assert reader.post(unknown).status_code == 404
    assert reader.post(path.replace(secret["id"], "sec_1")).status_code == 404


def test_a_lost_keyring_is_said_when_a_secret_is_asked_for(app: Flask) -> None:
    """A clear conflict that names the key, not a crash (W183)."""
    api = Api(app)
    endpoint = api.endpoint()
    (secret,) = api.get(f"/endpoints/{endpoint}/secrets").json["data"]
    keyring = app.extensions["webhooks_keyring"]
    app.extensions["webhooks_keyring"] = type(keyring).parse("other:" + "A" * 43 + "=")

    answer = api.post(f"/endpoints/{endpoint}/secrets/{secret['id']}/reveal")

    assert answer.status_code == 409
    assert "cannot be decrypted" in answer.json["detail"]


def test_a_route_that_does_not_say_what_it_needs_stops_the_start(app: Flask) -> None:
    """Nobody could say who may call it."""
    from webhooks.api.authentication import check_views

    app.view_functions["api.events.forgotten"] = lambda: "open to all"

    with pytest.raises(RuntimeError, match=r"api\.events\.forgotten lacks @operation"):
        check_views(app, "api")


def test_keys_of_before_may_do_all(app: Flask, connection: psycopg.Connection) -> None:
    """A key that was made without scopes keeps what it could do."""
    api = Api(app)
    connection.execute("UPDATE webhooks.api_keys SET scopes = DEFAULT")

    assert api.get("/api-keys").status_code == 200
    with app.app_context():
        found = keys.authenticate(api.key)
    assert found is not None
    assert found.scopes == set(Scope)
