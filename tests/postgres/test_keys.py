"""API keys and tenants in the database."""

from __future__ import annotations

import hashlib

import psycopg
import pytest
from flask import Flask

from tests.queue import one
from webhooks import key_format, keys, tenants


def test_the_database_never_holds_the_key(app: Flask, connection: psycopg.Connection) -> None:
    """What is stored is the SHA-256 of the whole key, its public id and its last four."""
    with app.app_context():
        _, text = keys.create("ci", None)

    row = connection.execute(
        "SELECT public_id, key_hash, last_four, api_keys::text FROM webhooks.api_keys"
    ).fetchone()

    assert row is not None
    assert row[:3] == (text[9:17], hashlib.sha256(text.encode()).digest(), text[-4:])
    assert text[18:61] not in row[3]


def test_a_key_of_a_tenant_acts_for_it_alone(app: Flask) -> None:
    """The credential carries the tenant, so that no query takes it from elsewhere."""
    with app.app_context():
        tenant = tenants.create("acme", "Acme")
        key, text = keys.create("ci", tenant)
        found = keys.authenticate(text)

        assert found is not None
        assert (found.key_id, found.tenant_id, found.tenant_key) == (key.id, tenant.id, "acme")
        assert found.only_tenant == tenant.id


def test_a_key_of_all_tenants_acts_for_the_default_one(app: Flask) -> None:
    """A single-tenant user never has to name a tenant."""
    with app.app_context():
        _, text = keys.create("ci", None)
        found = keys.authenticate(text)

    assert found is not None
    assert (found.tenant_key, found.all_tenants, found.only_tenant) == ("default", True, None)


def test_other_keys_are_refused(app: Flask) -> None:
    """Unknown, revoked and malformed ones: all None."""
    with app.app_context():
        key, text = keys.create("ci", None)
        _, stranger = keys.generate()
        keys.revoke(key)

        assert keys.authenticate(stranger) is None
        assert keys.authenticate(text) is None
        assert keys.authenticate("") is None


def test_a_forged_secret_is_refused(app: Flask) -> None:
    """The public id of a live key opens nothing without its secret."""
    with app.app_context():
        key, text = keys.create("ci", None)
        body = text[:18] + "A" * 43
        forged = body + key_format.checksum(body)

        assert keys.public_id_of(forged) == key.public_id
        assert keys.authenticate(forged) is None
        assert keys.authenticate(text) is not None


def test_last_use_is_noted_at_most_once_a_minute(
    app: Flask, connection: psycopg.Connection
) -> None:
    """Using a key a thousand times a second writes its row once."""
    last_used = "SELECT last_used_at FROM webhooks.api_keys"
    with app.app_context():
        _, text = keys.create("ci", None)
        assert one(connection, last_used) is None
        keys.authenticate(text)
        first = one(connection, last_used)
        keys.authenticate(text)
        again = one(connection, last_used)
        connection.execute("UPDATE webhooks.api_keys SET last_used_at = now() - interval '61 s'")
        keys.authenticate(text)

    assert first is not None
    assert again == first
    assert one(connection, last_used) > first


def test_a_locked_key_row_does_not_hold_requests_up(
    app: Flask, connection: psycopg.Connection
) -> None:
    """Noting the use is skipped while another transaction holds the row."""
    with app.app_context():
        _, text = keys.create("ci", None)
        connection.execute("BEGIN")
        connection.execute("SELECT 1 FROM webhooks.api_keys FOR UPDATE")

        found = keys.authenticate(text)

    connection.execute("ROLLBACK")
    assert found is not None
    assert one(connection, "SELECT last_used_at FROM webhooks.api_keys") is None


def test_a_key_is_found_by_either_of_its_ids(app: Flask) -> None:
    """The command line takes the public id or the key_… id; anything else is None."""
    with app.app_context():
        key, _ = keys.create("ci", None)

        assert keys.find(key.public_id) == key
        assert keys.find(keys.ids.encode("key", key.id)) == key
        assert keys.find("key_x") is None
        assert keys.find("a\0b") is None
        assert list(keys.all_keys()) == [key]


def test_making_and_revoking_are_in_the_audit_log(
    app: Flask, connection: psycopg.Connection
) -> None:
    """Who made and who revoked a key can be told later."""
    with app.app_context():
        key, _ = keys.create("ci", None, actor="ada")
        keys.revoke(key, actor="bob")
        keys.revoke(key, actor="eve")

    found = connection.execute(
        "SELECT actor, action FROM webhooks.audit_log ORDER BY id"
    ).fetchall()
    assert found == [("ada", "key.create"), ("bob", "key.revoke")]


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "a\0b", "x" * 101])
def test_a_bad_key_name_is_refused(app: Flask, name: str) -> None:
    """The message names the field; nothing is stored."""
    with app.app_context():
        with pytest.raises(keys.ApiKeyError, match=r"^name: "):
            keys.create(name, None)
        assert list(keys.all_keys()) == []


def test_tenants_are_made_and_found(app: Flask) -> None:
    """A tenant is named by its key."""
    with app.app_context():
        made = tenants.create("acme-1", "Acme Ltd")

        assert tenants.find("acme-1") == made
        assert [tenant.key for tenant in tenants.all_tenants()] == ["acme-1", "default"]
        assert tenants.find("nobody") is None
        assert tenants.find("a\0b") is None


@pytest.mark.parametrize(
    ("key", "name", "field"),
    [
        ("default", "Again", "key"),
        ("", "x", "key"),
        ("Acme", "x", "key"),
        ("-a", "x", "key"),
        ("a" * 64, "x", "key"),
        ("a\n", "x", "key"),
        ("acme", "", "name"),
        ("acme", "a\0b", "name"),
        ("acme", "x" * 201, "name"),
    ],
)
def test_a_bad_tenant_is_refused(app: Flask, key: str, name: str, field: str) -> None:
    """The error names the field, and the session can be used afterwards."""
    with app.app_context():
        with pytest.raises(tenants.TenantError) as raised:
            tenants.create(key, name)

        assert raised.value.field == field
        assert [tenant.key for tenant in tenants.all_tenants()] == ["default"]
