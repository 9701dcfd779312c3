"""Re-encryption: every stored secret under the keyring's current key, while all else runs.

What is done and what is left stands in the rows themselves, so a run that was killed is taken
up by the next one, and two at once do no harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

import psycopg

from webhooks import stored_secrets
from webhooks.db import retry_tx, transaction
from webhooks.secrets import Keyring, SecretError
from webhooks.stored_secrets import COLUMNS, Column, Stored

BATCH = 200

# In id order, against deadlocks; and only what is still as it was read, for somebody may have
# given the row another secret meanwhile.
WRITE = """
WITH held AS (
    SELECT id, {column} FROM {table}
    WHERE id = ANY (%(ids)s::uuid[]) ORDER BY id FOR NO KEY UPDATE
)
UPDATE {table} t SET {column} = n.renewed
FROM held, unnest(%(ids)s::uuid[], %(read)s::text[], %(renewed)s::text[]) AS n (id, read, renewed)
WHERE t.id = n.id AND held.id = n.id AND held.{column} = n.read
"""


@dataclass(frozen=True, slots=True)
class Batch:
    """What came of some secrets of a column: how many are renewed, which rows cannot be read."""

    column: Column
    renewed: int
    damaged: frozenset[UUID]


def reencrypt(
    connection: psycopg.Connection, keyring: Keyring, *, dry_run: bool = False
) -> Iterator[Batch]:
    """Encrypt with the current key what older keys encrypted, in short transactions.

    A dry run decrypts and encrypts all of it and writes nothing. Secrets of keys that the
    keyring lacks are left alone. Raises psycopg.OperationalError when the connection is lost.
    """
    for column in COLUMNS:
        with transaction(connection):
            older = set(stored_secrets.key_ids(connection, column)) - {keyring.current}
        for key_id in sorted(older & set(keyring.key_ids)):
            for page in _pages(connection, column, key_id):
                renewed = _renew(keyring, column, page)
                written = len(renewed) if dry_run else _write(connection, column, renewed)
                damaged = {each.row_id for each in page} - {each[0] for each in renewed}
                yield Batch(column, written, frozenset(damaged))


def _pages(
    connection: psycopg.Connection, column: Column, key_id: str
) -> Iterator[Sequence[Stored]]:
    after = UUID(int=0)

    def read() -> Sequence[Stored]:
        with transaction(connection):
            return stored_secrets.page(connection, column, key_id, after, BATCH)

    while page := retry_tx(read):
        yield page
        after = page[-1].row_id


def _renew(keyring: Keyring, column: Column, page: Sequence[Stored]) -> list[tuple[UUID, str, str]]:
    """Row id, ciphertext as read, new ciphertext; without the damaged ones."""
    renewed = []
    for row_id, tenant_id, ciphertext in page:
        place = column.place(tenant_id, row_id)
        try:
            secret = keyring.decrypt(place, ciphertext)
        except SecretError:
            continue
        renewed.append((row_id, ciphertext, keyring.encrypt(place, secret)))
    return renewed


def _write(
    connection: psycopg.Connection, column: Column, renewed: Sequence[tuple[UUID, str, str]]
) -> int:
    """Write what nobody has changed meanwhile; answers how many."""
    ids, read, new = zip(*renewed, strict=True) if renewed else ((), (), ())
    values = {"ids": list(ids), "read": list(read), "renewed": list(new)}

    def work() -> int:
        with transaction(connection):
            return connection.execute(column.compose(WRITE), values).rowcount

    return retry_tx(work)
