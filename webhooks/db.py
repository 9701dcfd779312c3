"""Connections to PostgreSQL, and transactions that end in bounded time.

Every timeout is set inside the transaction and only transaction-level locks are
used, so a pooler in transaction mode (PgBouncer) works; for the same reason no
statement is prepared on the server.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.abc import Buffer, Query
from psycopg.types.datetime import TimestamptzLoader

T = TypeVar("T")

OLDEST_SERVER = 150000
CONNECT_TIMEOUT_S = 5

# libpq's: a server that vanishes is noticed within 20 to 25 s. Keepalive alone does not
# run while data that was sent is unacknowledged.
TCP: dict[str, Any] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}

BEGIN = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; "
    "SET LOCAL statement_timeout = '5s'; "
    "SET LOCAL lock_timeout = '1s'; "
    "SET LOCAL idle_in_transaction_session_timeout = '15s'"
)

# Pins a transaction's plans to the queue's indexes: statistics taken while the table was
# nearly empty would make it scan the whole of a million rows.
INDEXES_ONLY = ("enable_seqscan = off", "enable_bitmapscan = off")

# What a transaction may meet through no fault of its own. 40001 comes up even under
# READ COMMITTED when a row was moved to another partition by a concurrent update.
TRANSIENT = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.LockNotAvailable,
    errors.QueryCanceled,
)


FOREVER = datetime.max.replace(tzinfo=UTC)
EVER_SINCE = datetime.min.replace(tzinfo=UTC)


class _InfinityLoader(TimestamptzLoader):
    """Reads PostgreSQL's infinities, which a datetime lacks, as its own two ends."""

    def load(self, data: Buffer) -> datetime:
        text = bytes(data)
        if text == b"infinity":
            return FOREVER
        if text == b"-infinity":
            return EVER_SINCE
        return super().load(data)


psycopg.adapters.register_loader("timestamptz", _InfinityLoader)


class DatabaseTooOld(RuntimeError):
    """The server is older than PostgreSQL 15."""


def connect(url: str, name: str) -> psycopg.Connection:
    """Open a connection in autocommit mode; transactions are explicit (see transaction).

    ``name`` is what pg_stat_activity shows. Raises psycopg.OperationalError when the
    server is away, DatabaseTooOld when it is older than 15.
    """
    connection = psycopg.connect(
        url,
        autocommit=True,
        prepare_threshold=None,
        connect_timeout=CONNECT_TIMEOUT_S,
        application_name=f"webhooks {name}",
        **TCP,
    )
    check_server(connection)
    return connection


def check_server(connection: psycopg.Connection) -> None:
    """Refuse a server older than PostgreSQL 15 with DatabaseTooOld."""
    version = connection.info.server_version
    if version < OLDEST_SERVER:
        connection.close()
        raise DatabaseTooOld(f"PostgreSQL {version // 10000} is too old; use version 15 or newer")


@contextmanager
def transaction(connection: psycopg.Connection, *extra: str) -> Iterator[psycopg.Connection]:
    """One transaction with the timeouts of BEGIN and ``extra`` settings.

    ``extra`` are names and values such as ``"synchronous_commit = off"``.
    """
    begin: Query = "; ".join([BEGIN, *(f"SET LOCAL {setting}" for setting in extra)]).encode()
    connection.execute(begin)
    try:
        yield connection
    except BaseException:
        if not connection.closed:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def retry_tx(work: Callable[[], T], *, tries: int = 8) -> T:
    """Run a transaction again after a transient failure, with jittered waits.

    A lost connection is not retried here: whoever holds the connection opens
    another one first.
    """
    for attempt in range(1, tries + 1):
        try:
            return work()
        except TRANSIENT:
            if attempt == tries:
                raise
            time.sleep(random.uniform(0, 0.01 * 2**attempt))  # noqa: S311 - jitter, not a secret
    raise AssertionError("unreachable")


def sqlalchemy_url(url: str) -> str:
    """The same address for SQLAlchemy: the driver named, and several hosts in its own way."""
    scheme, _, rest = url.partition("://")
    if scheme not in ("postgres", "postgresql", "postgresql+psycopg") or not rest:
        raise ValueError("DATABASE_URL: give postgresql://user@host:port/database")
    place, slash, path = rest.partition("/")
    user, at, hosts = place.rpartition("@")
    if "," in hosts:
        several = "&".join(f"host={host}" for host in hosts.split(","))
        return f"postgresql+psycopg://{user}{at}{slash}{path}{'&' if '?' in path else '?'}{several}"
    return f"postgresql+psycopg://{rest}"
