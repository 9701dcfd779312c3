"""Whether the web process lives (/livez), and whether it can work (/healthz).

Who restarts processes asks /livez: a restart brings no database back. Who sends them
requests, or people out of bed, asks /healthz.
"""

from __future__ import annotations

import logging
import select
import threading
import time
from collections.abc import Callable

import psycopg
import sqlalchemy.exc
from flask import Flask, Response, current_app

from webhooks.web_database import psycopg_connection

# Anybody may ask: however often that is, the database is asked once in this time.
KEEP_S = 1.0
PATIENCE_S = 3.0
QUESTION = b"SELECT 1"

log = logging.getLogger(__name__)


class Verdict:
    """What ``ask`` answered last, for up to ``KEEP_S``; one asks, the others wait for it."""

    def __init__(self, ask: Callable[[], bool]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._good = False
        self._until = float("-inf")

    def __call__(self) -> bool:
        with self._lock:
            if time.monotonic() >= self._until:
                self._good = self._ask()
                self._until = time.monotonic() + KEEP_S
            return self._good


def init_health(app: Flask) -> None:
    """Add the two pages; they need no sign-in and say no more than they must."""
    app.extensions["webhooks_database_answers"] = Verdict(database_answers)
    app.add_url_rule("/livez", "livez", _livez)
    app.add_url_rule("/healthz", "healthz", _healthz)


def database_answers() -> bool:
    """Whether a request would get an answer of the database now, and within ``PATIENCE_S``."""
    try:
        with psycopg_connection() as connection:
            return _answers(connection)
    except (sqlalchemy.exc.SQLAlchemyError, psycopg.Error) as error:
        log.warning("the database does not answer: %s", " ".join(str(error).split()))
        return False


def _answers(connection: psycopg.Connection) -> bool:
    """psycopg itself would wait for as long as the other side's TCP answers."""
    link = connection.pgconn
    link.send_query(QUESTION)
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    due = time.monotonic() + PATIENCE_S
    while link.is_busy():
        if not poll.poll(max(0.0, due - time.monotonic()) * 1000):
            connection.close()  # its answer would be the next question's
            log.warning("the database does not answer within %g s", PATIENCE_S)
            return False
        link.consume_input()
    good = False
    while (result := link.get_result()) is not None:
        good = result.status == psycopg.pq.ExecStatus.TUPLES_OK
    return good


def _livez() -> Response:
    return _answer(good=True)


def _healthz() -> Response:
    return _answer(good=current_app.extensions["webhooks_database_answers"]())


def _answer(*, good: bool) -> Response:
    body = '{"status":"ok"}' if good else '{"status":"the database does not answer"}'
    return Response(body, 200 if good else 503, content_type="application/json")
