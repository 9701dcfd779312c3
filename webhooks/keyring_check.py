"""Does the keyring fit the database? Asked at start, before a delivery would find out."""

from __future__ import annotations

import logging
from pathlib import Path

import psycopg

from webhooks import datadir, stored_secrets
from webhooks.db import connect, transaction
from webhooks.secrets import Keyring, KeyringError, SecretError, UnknownKeyError
from webhooks.settings import Settings
from webhooks.stored_secrets import COLUMNS, Column

# Of each key: a single row may be damaged, and that is its endpoint's misfortune, not a
# reason to stop everybody.
SAMPLE = 20

log = logging.getLogger(__name__)


def find_keyring(settings: Settings) -> Keyring:
    """The one that is set, else the one that `up` keeps in the data directory; KeyringError."""
    kept = datadir.read_keyring(Path(settings.data_dir)) if settings.data_dir else None
    return Keyring.parse(settings.keyring or kept or "")


def check_keyring(database_url: str, keyring: Keyring) -> None:
    """Raise KeyringError when no secret of a key can be decrypted, naming the keys.

    A database that is away, or not migrated yet, is no reason to refuse a start.
    """
    try:
        with connect(database_url, "keyring check") as connection, transaction(connection):
            lacking = {
                key_id for column in COLUMNS for key_id in _lacking(connection, column, keyring)
            }
    except (psycopg.OperationalError, psycopg.errors.UndefinedTable) as error:
        log.warning("the keyring could not be checked: %s", " ".join(str(error).split()))
        return
    if lacking:
        raise KeyringError(
            "WEBHOOKS_KEYRING does not fit this database: secrets were encrypted with the "
            f"{_named(lacking)} of another keyring; put {'it' if len(lacking) == 1 else 'them'} "
            "back into it"
        )


def _lacking(connection: psycopg.Connection, column: Column, keyring: Keyring) -> set[str]:
    """The keys of the column's secrets that the keyring has not, or has otherwise."""
    lacking = set()
    for key_id in stored_secrets.key_ids(connection, column):
        sample = stored_secrets.newest(connection, column, key_id, SAMPLE)
        if sample and not any(_decrypts(keyring, column, each) for each in sample):
            lacking.add(key_id)
    return lacking


def _decrypts(keyring: Keyring, column: Column, stored: stored_secrets.Stored) -> bool:
    try:
        keyring.decrypt(column.place(stored.tenant_id, stored.row_id), stored.ciphertext)
    except UnknownKeyError:
        return False
    except SecretError as error:
        log.warning("one of the %s cannot be decrypted: %s", column.what, error)
        return False
    return True


def _named(key_ids: set[str]) -> str:
    names = " and ".join(repr(key_id) for key_id in sorted(key_ids))
    return f"key {names}" if len(key_ids) == 1 else f"keys {names}"
