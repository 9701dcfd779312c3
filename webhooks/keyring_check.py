"""Does the keyring fit the database? Asked at start, before a delivery would find out."""

from __future__ import annotations

import logging

import psycopg

from webhooks.db import connect, transaction
from webhooks.secrets import Keyring, KeyringError, Place, SecretError

log = logging.getLogger(__name__)

# One secret for each key that has ever encrypted one.
NEWEST_OF_EACH_KEY = """
SELECT DISTINCT ON (split_part(ciphertext, ':', 2)) tenant_id, id, ciphertext
FROM webhooks.signing_secrets
WHERE valid_until > now()
ORDER BY split_part(ciphertext, ':', 2), id DESC
"""


def check_keyring(database_url: str, keyring: Keyring) -> None:
    """Raise KeyringError when a stored secret cannot be decrypted, naming its key.

    A database that is away, or not migrated yet, is no reason to refuse a start.
    """
    try:
        with connect(database_url, "keyring check") as connection, transaction(connection):
            stored = connection.execute(NEWEST_OF_EACH_KEY).fetchall()
    except (psycopg.OperationalError, psycopg.errors.UndefinedTable) as error:
        log.warning("the keyring could not be checked: %s", " ".join(str(error).split()))
        return
    for tenant_id, row_id, ciphertext in stored:
        try:
            keyring.decrypt(Place("signing_secrets", tenant_id, row_id, "ciphertext"), ciphertext)
        except SecretError as error:
            key_id = ciphertext.split(":")[1][:32] if ":" in ciphertext else "?"
            raise KeyringError(
                f"WEBHOOKS_KEYRING does not fit this database: signing secrets were encrypted "
                f"with the key {key_id!r} of another keyring; put that key back into it"
            ) from error
