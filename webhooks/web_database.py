"""How the web process reaches the database: bounded transactions, checked connections.

The timeouts are set inside each transaction, never on the session, so that a pooler
in transaction mode (PgBouncer) works.
"""

from __future__ import annotations

import select
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, Engine, event, exc
from sqlalchemy.orm import Session, SessionTransaction

from webhooks.db import CONNECT_TIMEOUT_S, TCP
from webhooks.models import db

ENGINE_OPTIONS: dict[str, Any] = {
    "isolation_level": "READ COMMITTED",
    "pool_size": 10,
    # A thread may hold two connections; a bound could make threads wait for each other.
    "max_overflow": -1,
    "connect_args": {
        "prepare_threshold": None,
        "connect_timeout": CONNECT_TIMEOUT_S,
        "application_name": "webhooks web",
        **TCP,
    },
}

LIMITS = (
    "SET LOCAL statement_timeout = '5s'; "
    "SET LOCAL lock_timeout = '1s'; "
    "SET LOCAL idle_in_transaction_session_timeout = '15s'"
)


def check_pooled(engine: Engine) -> None:
    """Never hand out a connection that the server has closed.

    A ping at every checkout costs a round trip, a quarter of what emit costs. The server
    speaks to an idle connection only to end it, so only one with something to read is pinged.
    """

    @event.listens_for(engine, "checkout")
    def _check(connection: psycopg.Connection, *_: object) -> None:
        try:
            if _has_something_to_read(connection):
                engine.dialect.do_ping(cast(Any, connection))
        except (psycopg.Error, OSError) as error:
            raise exc.InvalidatePoolError("the server closed the connection") from error


def _has_something_to_read(connection: psycopg.Connection) -> bool:
    poll = select.poll()  # select() itself refuses file descriptors past 1024
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


@contextmanager
def psycopg_connection() -> Iterator[psycopg.Connection]:
    """An autocommit psycopg connection out of the app's pool.

    Raises sqlalchemy.exc.OperationalError when the database is away.
    """
    pooled = db.engine.raw_connection()
    connection = cast(psycopg.Connection, pooled.driver_connection)
    try:
        connection.autocommit = True
        yield connection
    finally:
        if connection.closed:
            pooled.invalidate()
        else:
            if connection.info.transaction_status != TransactionStatus.IDLE:
                connection.rollback()
            connection.autocommit = False
        pooled.close()


@event.listens_for(db.session, "after_begin")
def _limit(_: Session, __: SessionTransaction, connection: Connection) -> None:
    # On the session, not on the engine: a migration may take its time.
    connection.exec_driver_sql(LIMITS)
