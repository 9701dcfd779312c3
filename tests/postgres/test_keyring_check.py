"""A keyring of another database is refused at start, not by every delivery."""

from __future__ import annotations

from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from tests.queue import make_endpoint, one
from webhooks import stored_secrets
from webhooks.keyring_check import check_keyring
from webhooks.secrets import Keyring, KeyringError, Place


def add_secret(connection: psycopg.Connection, keyring: Keyring) -> UUID:
    """An endpoint with one signing secret under the keyring's current key; its id."""
    endpoint_id = make_endpoint(connection)
    tenant = one(connection, "SELECT tenant_id FROM webhooks.endpoints WHERE id = %s", endpoint_id)
    row_id = one(connection, "SELECT webhooks.uuid7()")
    sealed = keyring.encrypt(Place("signing_secrets", tenant, row_id, "ciphertext"), b"secret")
    connection.execute(
        "INSERT INTO webhooks.signing_secrets (id, tenant_id, endpoint_id, ciphertext) "
        "VALUES (%s, %s, %s, %s)",
        [row_id, tenant, endpoint_id, sealed],
    )
    return endpoint_id


def add_headers(connection: psycopg.Connection, keyring: Keyring, endpoint_id: UUID) -> None:
    """Custom headers of the endpoint under the keyring's current key."""
    tenant = one(connection, "SELECT tenant_id FROM webhooks.endpoints WHERE id = %s", endpoint_id)
    sealed = keyring.encrypt(Place("endpoints", tenant, endpoint_id, "headers"), b'[["A", "b"]]')
    connection.execute(
        "UPDATE webhooks.endpoints SET headers = %s WHERE id = %s", [sealed, endpoint_id]
    )


def test_a_keyring_that_has_every_key_fits(
    connection: psycopg.Connection, database_url: str
) -> None:
    """Secrets of an older key are fine while the keyring keeps it (W183)."""
    old, new = Keyring.generate("old"), Keyring.generate("new")
    add_secret(connection, Keyring.parse(old))
    add_secret(connection, Keyring.parse(new))

    check_keyring(database_url, Keyring.parse(f"{new},{old}"))


@pytest.mark.parametrize("key_id", ["other", "same"])
def test_a_keyring_that_lacks_a_key_is_refused_by_name(
    connection: psycopg.Connection, database_url: str, key_id: str
) -> None:
    """Another keyring is refused, also when its key has the same id (W183)."""
    add_secret(connection, Keyring.parse(Keyring.generate("same")))

    with pytest.raises(KeyringError, match="'same'"):
        check_keyring(database_url, Keyring.parse(Keyring.generate(key_id)))


def test_every_key_that_is_missing_is_named(
    connection: psycopg.Connection, database_url: str
) -> None:
    """Signing secrets and custom headers are looked at, and all keys told at once."""
    known = Keyring.parse(Keyring.generate("known"))
    endpoint_id = add_secret(connection, Keyring.parse(Keyring.generate("a")))
    add_headers(connection, Keyring.parse(Keyring.generate("b")), endpoint_id)
    add_secret(connection, known)

    with pytest.raises(KeyringError, match="keys 'a' and 'b'"):
        check_keyring(database_url, known)


@pytest.mark.parametrize("ending", ["deleted", "ended"])
def test_a_lost_key_that_nothing_needs_does_not_stop_the_start(
    connection: psycopg.Connection, database_url: str, ending: str
) -> None:
    """Secrets that sign no more, and those of deleted endpoints, may have had any key."""
    lost = Keyring.parse(Keyring.generate("lost"))
    endpoint_id = add_secret(connection, lost)
    if ending == "deleted":
        add_headers(connection, lost, endpoint_id)
        connection.execute("UPDATE webhooks.endpoints SET deleted_at = now()")
    else:
        connection.execute("UPDATE webhooks.signing_secrets SET valid_until = now()")

    check_keyring(database_url, Keyring.parse(Keyring.generate()))


@pytest.mark.parametrize("damaged", ["garbage", "v1:only:%%%:%%%"])
def test_a_damaged_secret_does_not_stop_the_start(
    connection: psycopg.Connection, database_url: str, damaged: str
) -> None:
    """The newest of many is unreadable: its own deliveries fail, everybody else's go on (W118)."""
    keyring = Keyring.parse(Keyring.generate("only"))
    for _ in range(2):
        add_secret(connection, keyring)
    connection.execute(
        "UPDATE webhooks.signing_secrets SET ciphertext = %s "
        "WHERE id = (SELECT max(id::text)::uuid FROM webhooks.signing_secrets)",
        [damaged],
    )

    check_keyring(database_url, keyring)


def test_a_database_that_is_away_does_not_stop_the_start() -> None:
    """The processes wait for it, as they do later."""
    check_keyring("postgresql://nobody@127.0.0.1:1/none", Keyring.parse(Keyring.generate()))


@pytest.mark.parametrize("column", stored_secrets.COLUMNS, ids=str)
def test_the_keys_in_use_are_found_by_an_index(
    connection: psycopg.Connection, column: stored_secrets.Column
) -> None:
    """One probe a key, however many secrets there are: a start does not read the table."""
    with connection.transaction():
        for other in ("seqscan", "bitmapscan", "sort"):  # which an empty table is cheaper with
            connection.execute(f"SET LOCAL enable_{other} = off")
        plan = connection.execute(
            sql.SQL("EXPLAIN {}").format(column.compose(stored_secrets.KEY_IDS))
        ).fetchall()

    text = "\n".join(row[0] for row in plan)
    assert "_key_id on " in text
    assert "Seq Scan" not in text
    assert "Sort" not in text
