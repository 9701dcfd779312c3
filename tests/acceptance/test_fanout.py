"""A large fan-out while the workers that expand and deliver it are killed."""

from __future__ import annotations

import os
import signal
from collections import Counter
from uuid import UUID

import psycopg
import pytest

from tests.queue import make_endpoints, one
from tests.recorder import Recorder
from tests.stack import Stack, eventually
from tests.support import KEYRING
from webhooks.secrets import Keyring, Place

pytestmark = pytest.mark.acceptance

ENDPOINTS = 3_000
SECRET = b"whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
# What one worker may have been sending when it was killed.
IN_FLIGHT = 100
ENV = {
    "WEBHOOKS_LEASE_S": "4",
    "WEBHOOKS_HEARTBEAT_S": "1",
    "WEBHOOKS_MAX_IN_FLIGHT": str(IN_FLIGHT),
}

SECRETS = """
SELECT webhooks.uuid7(), tenant_id, id FROM webhooks.endpoints
"""


def make_targets(connection: psycopg.Connection, url: str) -> None:
    """One for each path under the URL, all at once: by the API it would take a minute."""
    keyring = Keyring.parse(KEYRING)
    make_endpoints(connection, ENDPOINTS, url=url)
    rows: list[tuple[UUID, UUID, UUID]] = connection.execute(SECRETS).fetchall()
    with connection.cursor() as cursor, cursor.copy(
        "COPY webhooks.signing_secrets (id, tenant_id, endpoint_id, ciphertext) FROM STDIN"
    ) as copy:  # fmt: skip
        for secret_id, tenant_id, endpoint_id in rows:
            place = Place("signing_secrets", tenant_id, secret_id, "ciphertext")
            copy.write_row((secret_id, tenant_id, endpoint_id, keyring.encrypt(place, SECRET)))


def blocked(connection: psycopg.Connection) -> bool:
    """Whether a worker waits for the lock that stops it in the middle of a chunk."""
    waiting: bool = one(
        connection,
        "SELECT EXISTS (SELECT FROM pg_locks "
        "WHERE relation = 'webhooks.fanouts'::regclass AND NOT granted)",
    )
    return waiting


def test_killed_workers_lose_and_repeat_no_part_of_a_fan_out(database_url: str) -> None:
    """kill -9 in the middle of chunks, three times: each endpoint has one delivery and gets it."""
    with Stack(database_url, ENV) as stack, Recorder() as receiver, stack.connect() as connection:
        make_targets(connection, receiver.url)
        stack.start_web()

        answer = stack.post("/events", {"type": "a", "payload": 1})
        assert answer.json()["deliveries"] == ENDPOINTS

        worker = None
        for _ in range(3):
            connection.execute("BEGIN")
            connection.execute("LOCK TABLE webhooks.fanouts IN SHARE MODE")
            worker = worker or stack.start_worker()
            eventually(lambda: blocked(connection), 20, "a worker is within a chunk")
            os.kill(worker.children()[0], signal.SIGKILL)
            connection.execute("COMMIT")
        eventually(lambda: stack.statuses() == {"delivered": ENDPOINTS}, 60)

        assert one(connection, "SELECT count(*) FROM webhooks.fanouts") == 0
        each = "SELECT count(DISTINCT endpoint_id) FROM webhooks.deliveries"
        assert one(connection, each) == ENDPOINTS

    paths = Counter(request.path for request in receiver.requests)
    assert paths.keys() == {f"/hook/{n}" for n in range(1, ENDPOINTS + 1)}
    assert paths.total() - ENDPOINTS <= 3 * IN_FLIGHT
    assert set(receiver.counts()) == {answer.json()["id"]}
