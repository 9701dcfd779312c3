"""Does the keyring fit the database? Asked at start, before a delivery would find out."""

from __future__ import annotations

import logging

import psycopg

from webhooks.db import connect, transaction
from webhooks.secrets import VERSION, Keyring, KeyringError, Place, SecretError

log = logging.getLogger(__name__)

# Some secrets of each key that has ever encrypted one: a single row may be damaged, and that
# is its endpoint's misfortune, not a reason to stop everybody.
NEWEST_OF_EACH_KEY = """
SELECT tenant_id, id, ciphertext, key_id
FROM (SELECT tenant_id, id, ciphertext, key_id,
             row_number() OVER (PARTITION BY key_id ORDER BY id DESC) AS n
      FROM webhooks.signing_secrets, split_part(ciphertext, ':', 2) AS key_id
      WHERE valid_until > now() AND ciphertext LIKE %s) AS numbered
WHERE n <= 20
"""


def check_keyring(database_url: str, keyring: Keyring) -> None:
    """Raise KeyringError when no secret of a key can be decrypted, naming the key.

    A database that is away, or not migrated yet, is no reason to refuse a start.
    """
    try:
        with connect(database_url, "keyring check") as connection, transaction(connection):
            stored = connection.execute(NEWEST_OF_EACH_KEY, [f"{VERSION}:%"]).fetchall()
    except (psycopg.OperationalError, psycopg.errors.UndefinedTable) as error:
        log.warning("the keyring could not be checked: %s", " ".join(str(error).split()))
        return
    lacking = {key_id for *_, key_id in stored}
    for tenant_id, row_id, ciphertext, key_id in stored:
        try:
            keyring.decrypt(Place("signing_secrets", tenant_id, row_id, "ciphertext"), ciphertext)
            lacking.discard(key_id)
        except SecretError as error:
            log.warning("a signing secret cannot be decrypted: %s", error)
    if lacking:
        raise KeyringError(
            f"WEBHOOKS_KEYRING does not fit this database: signing secrets were encrypted "
            f"with the key {min(lacking)[:32]!r} of another keyring; put that key back into it"
        )
