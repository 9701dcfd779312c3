"""Idempotency-Key on every POST but emit, which has its own: done once, answered as often as asked.

A key belongs to the API key that sent it, for 24 hours. The first request reserves it, and its
answer is kept, encrypted, if it was a success; a failure changes nothing, and may be tried
again. Who asks meanwhile waits for that answer. A process that dies between its work and its
answer leaves a reservation behind: whether it was done nobody can tell, and we say so.

Source: draft-ietf-httpapi-idempotency-key-header-07.
"""

from __future__ import annotations

import hashlib
import logging
import time
from dataclasses import dataclass
from uuid import UUID

import msgspec
import psycopg
from flask import Response, current_app, g, request
from sqlalchemy.exc import SQLAlchemyError

from webhooks.api.authentication import credential
from webhooks.api.operations import Operation
from webhooks.api.problems import Problem
from webhooks.db import transaction
from webhooks.events import LONGEST_KEY, EventError, check_idempotency_key
from webhooks.secrets import Keyring, Place, SecretError
from webhooks.web_database import psycopg_connection

HEADER = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
MOST_BYTES = 2 * 1024 * 1024
WAIT_S = 10.0
LOOK_EVERY_S = 0.05
RETRY_AFTER_S = 5
KEPT_HEADERS = ("Content-Type", "Location", "ETag")

log = logging.getLogger(__name__)

# Long enough for any request: the statements of one end within seconds.
RESERVE = """
INSERT INTO webhooks.idempotency_keys AS k
    (shard, tenant_id, scope, key, body_hash, answer, expires_at, working_until)
VALUES (webhooks.shard_of(%(tenant)s), %(tenant)s, %(scope)s, %(key)s, %(hash)s, '',
        now() + interval '24 hours', now() + interval '60 seconds')
ON CONFLICT (shard, tenant_id, scope, key) DO UPDATE
SET body_hash = excluded.body_hash, answer = '', expires_at = excluded.expires_at,
    working_until = excluded.working_until
WHERE k.expires_at <= now()
"""
LOOK = """
SELECT body_hash, answer, working_until IS NOT NULL, working_until <= now()
FROM webhooks.idempotency_keys
WHERE shard = webhooks.shard_of(%(tenant)s) AND tenant_id = %(tenant)s
  AND scope = %(scope)s AND key = %(key)s
"""
KEEP = """
UPDATE webhooks.idempotency_keys SET answer = %(answer)s, working_until = NULL
WHERE shard = webhooks.shard_of(%(tenant)s) AND tenant_id = %(tenant)s
  AND scope = %(scope)s AND key = %(key)s
"""
FORGET = """
DELETE FROM webhooks.idempotency_keys
WHERE shard = webhooks.shard_of(%(tenant)s) AND tenant_id = %(tenant)s
  AND scope = %(scope)s AND key = %(key)s
"""


class Kept(msgspec.Struct, frozen=True):
    """An answer as it is stored, once encrypted."""

    status: int
    headers: dict[str, str]
    body: bytes


_kept = msgspec.json.Decoder(Kept)


@dataclass(frozen=True, slots=True)
class Reservation:
    """A key of this caller, and what was asked with it."""

    tenant_id: UUID
    scope: str
    key: str
    body_hash: bytes

    @property
    def values(self) -> dict[str, object]:
        return {
            "tenant": self.tenant_id, "scope": self.scope, "key": self.key,
            "hash": self.body_hash,
        }  # fmt: skip

    @property
    def place(self) -> Place:
        """What its answer's encryption is bound to."""
        row = hashlib.sha256(f"{self.scope}\0{self.key}".encode()).digest()[:16]
        return Place("idempotency_keys", self.tenant_id, UUID(bytes=row), "answer")


def begin() -> Response | None:
    """Before each request: the answer of the first one with this key, if there was one.

    Problem 409 for the same key with another request, for one that is still being worked on,
    and for one whose outcome nobody knows; 422 for a malformed key.
    """
    key = request.headers.get(HEADER)
    if key is None or request.method != "POST" or _keeps_own_keys():
        return None
    _check(key)
    wanted, deadline = _reservation(key), time.monotonic() + WAIT_S
    while not _reserve(wanted):
        answer = _look(wanted)
        if answer is not None:
            return answer
        if time.monotonic() >= deadline:
            raise _busy()
        time.sleep(LOOK_EVERY_S)
    g.reservation = wanted
    return None


def finish(response: Response) -> Response:
    """After each request: keep what was done, forget what was not."""
    reservation: Reservation | None = g.pop("reservation", None)
    if reservation is None:
        return response
    try:
        with psycopg_connection() as connection, transaction(connection):
            if response.status_code < 300:
                answer = _keyring().encrypt(reservation.place, msgspec.json.encode(_seal(response)))
                connection.execute(KEEP, reservation.values | {"answer": answer})
            else:
                connection.execute(FORGET, reservation.values)
    except (psycopg.Error, SQLAlchemyError) as error:
        log.warning("request %s: its idempotency key stays open: %s", g.request_id, error)
    return response


def _keeps_own_keys() -> bool:
    view = current_app.view_functions.get(request.endpoint or "")
    described: Operation | None = getattr(view, "operation", None)
    return described is not None and described.own_keys


def _reserve(wanted: Reservation) -> bool:
    with psycopg_connection() as connection, transaction(connection):
        return connection.execute(RESERVE, wanted.values).rowcount == 1


def _check(key: str) -> None:
    try:
        check_idempotency_key(key)
    except EventError as error:
        why = f"{key[:80]!r} is not 1 to {LONGEST_KEY} printable characters"
        raise Problem.of_field(422, HEADER, why) from error


def _reservation(key: str) -> Reservation:
    request.max_content_length = MOST_BYTES
    asked = hashlib.sha256(f"{request.method} {request.full_path}\0".encode())
    asked.update(request.get_data(cache=True))
    who = credential()
    return Reservation(who.tenant_id, f"api {who.public_id}", key, asked.digest())


def _look(wanted: Reservation) -> Response | None:
    """The first request's answer; None while it is being worked on, or if it has failed."""
    with psycopg_connection() as connection, transaction(connection):
        row = connection.execute(LOOK, wanted.values).fetchone()
    if row is None:
        return None
    body_hash, answer, working, overdue = row
    if body_hash != wanted.body_hash:
        raise Problem.of_field(409, HEADER, "it was used with another request; use a new one")
    if overdue:
        raise Problem(
            409, "the first request with this idempotency key broke off, and may have been done: "
            "look whether it was, and use a new key if not",
        )  # fmt: skip
    return None if working else _replay(wanted, answer)


def _busy() -> Problem:
    return Problem(
        409, "the first request with this idempotency key is still being worked on",
        headers={"Retry-After": str(RETRY_AFTER_S)},
    )  # fmt: skip


def _replay(wanted: Reservation, answer: str) -> Response:
    try:
        kept = _kept.decode(_keyring().decrypt(wanted.place, answer))
    except SecretError as error:
        raise Problem(
            409, f"it was done, but its answer cannot be read any more: {error}"
        ) from error
    response = Response(kept.body, kept.status, kept.headers)
    response.headers[REPLAYED] = "true"
    return response


def _seal(response: Response) -> Kept:
    headers = {name: response.headers[name] for name in KEPT_HEADERS if name in response.headers}
    return Kept(response.status_code, headers, response.get_data())


def _keyring() -> Keyring:
    found: Keyring = current_app.extensions["webhooks_keyring"]
    return found
