"""Where secrets are stored, and with which keys: the one list that all who ask go by.

Each of its statements is written for an index on (KEY_ID_OF, id); without one it reads the table.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, LiteralString, NamedTuple
from uuid import UUID

import psycopg
from psycopg import sql

from webhooks.db import transaction
from webhooks.secrets import KEY_ID, Place

# Counting reads whole tables.
COUNT_TIMEOUT = "statement_timeout = '60s'"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of ciphertexts, or NULL, in a table that has ``id`` and ``tenant_id``.

    ``live``: the condition of rows that are still in use. ``what`` they are, for people.
    """

    table: LiteralString
    name: LiteralString
    live: LiteralString
    what: str

    def place(self, tenant_id: UUID, row_id: UUID) -> Place:
        return Place(self.table, tenant_id, row_id, self.name)

    def compose(self, statement: LiteralString) -> sql.Composed:
        """The statement with {table}, {column}, {key_id} and {live} filled in."""
        column = sql.Identifier(self.name)
        return sql.SQL(statement).format(
            table=sql.Identifier("webhooks", self.table),
            column=column,
            key_id=sql.SQL(KEY_ID_OF).format(column=column),
            live=sql.SQL(self.live),
        )


COLUMNS = (
    Column(
        "signing_secrets",
        "ciphertext",
        "valid_until > now() AND EXISTS (SELECT FROM webhooks.endpoints e "
        "WHERE e.id = endpoint_id AND e.deleted_at IS NULL)",
        "signing secrets",
    ),
    Column("endpoints", "headers", "deleted_at IS NULL", "custom headers"),
)

# NULL for what is no ciphertext of ours: nothing of it is ever shown. The regular expression
# that says what a key id is would take thirty times as long; ``key_ids`` and ``count`` ask it.
KEY_ID_OF = "CASE WHEN starts_with({column}, 'v1:') THEN left(split_part({column}, ':', 2), 32) END"

# A loose index scan: one probe a key, however many rows each has encrypted.
KEY_IDS = """
WITH RECURSIVE found (key_id) AS (
    (SELECT {key_id} FROM {table} WHERE {column} IS NOT NULL AND {key_id} > ''
     ORDER BY {key_id} LIMIT 1)
    UNION ALL
    SELECT (SELECT {key_id} FROM {table} WHERE {column} IS NOT NULL AND {key_id} > found.key_id
            ORDER BY {key_id} LIMIT 1)
    FROM found WHERE found.key_id IS NOT NULL
)
SELECT key_id FROM found WHERE key_id IS NOT NULL
"""
NEWEST = """
SELECT id, tenant_id, {column} FROM {table}
WHERE {column} IS NOT NULL AND {key_id} = %(key_id)s AND {live}
ORDER BY id DESC LIMIT %(most)s
"""
PAGE = """
SELECT id, tenant_id, {column} FROM {table}
WHERE {column} IS NOT NULL AND {key_id} = %(key_id)s AND id > %(after)s
ORDER BY id LIMIT %(most)s
"""
COUNT = """
SELECT coalesce({key_id}, ''), count(*) FROM {table} WHERE {column} IS NOT NULL GROUP BY 1
"""


class Stored(NamedTuple):
    """One secret as it is stored."""

    row_id: UUID
    tenant_id: UUID
    ciphertext: str


def key_ids(connection: psycopg.Connection, column: Column) -> list[str]:
    """The ids of the keys that encrypted what is in the column."""
    found = connection.execute(column.compose(KEY_IDS)).fetchall()
    return [key_id for (key_id,) in found if KEY_ID.fullmatch(key_id)]


def newest(connection: psycopg.Connection, column: Column, key_id: str, most: int) -> list[Stored]:
    """The newest of a key that are still in use."""
    return _rows(connection, column.compose(NEWEST), {"key_id": key_id, "most": most})


def page(
    connection: psycopg.Connection, column: Column, key_id: str, after: UUID, most: int
) -> list[Stored]:
    """The next ones of a key in the order of ids, in use or not."""
    return _rows(connection, column.compose(PAGE), {"key_id": key_id, "after": after, "most": most})


def count(connection: psycopg.Connection) -> dict[Column, Counter[str]]:
    """How many secrets each key has encrypted, "": damaged ones. It reads all of them."""
    with transaction(connection, COUNT_TIMEOUT):
        return {column: _count(connection, column) for column in COLUMNS}


def _count(connection: psycopg.Connection, column: Column) -> Counter[str]:
    counts: Counter[str] = Counter()
    for key_id, rows in connection.execute(column.compose(COUNT)):
        counts[key_id if KEY_ID.fullmatch(key_id) else ""] += rows
    return counts


def _rows(connection: psycopg.Connection, query: sql.Composed, values: Any) -> list[Stored]:
    return [Stored(*row) for row in connection.execute(query, values)]
