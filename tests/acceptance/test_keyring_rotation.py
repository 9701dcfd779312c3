"""The drill: from one keyring key to the next, with real processes, without one lost delivery."""

from __future__ import annotations

import signal
from uuid import UUID

import psycopg
import pytest

from tests.queue import one
from tests.recorder import Recorder, verify
from tests.stack import Stack, eventually
from webhooks import ids
from webhooks.reencryption import BATCH
from webhooks.secrets import Keyring, Place

pytestmark = pytest.mark.acceptance

OLD, NEW = Keyring.generate("old"), Keyring.generate("new")
MANY = 2 * BATCH + 50
RENEWED = "SELECT count(*) FROM webhooks.signing_secrets WHERE ciphertext LIKE 'v1:new:%%'"


def add_many(connection: psycopg.Connection, endpoint: str) -> UUID:
    """Secrets that ended, under the old key; answers the last one's id."""
    tenant = one(connection, "SELECT id FROM webhooks.tenants WHERE key = 'default'")
    last = UUID(int=0)
    for n in range(MANY):
        # After those of the endpoints, which are of version 7.
        last = UUID(int=(2**128 - 1 - MANY + n))
        place = Place("signing_secrets", tenant, last, "ciphertext")
        sealed = Keyring.parse(OLD).encrypt(place, b"whsec_ended")
        connection.execute(
            "INSERT INTO webhooks.signing_secrets "
            "(id, tenant_id, endpoint_id, ciphertext, valid_until) VALUES (%s, %s, %s, %s, now())",
            [last, tenant, ids.decode(ids.ENDPOINT, endpoint), sealed],
        )
    return last


def test_a_key_is_replaced_while_deliveries_go_on(database_url: str) -> None:
    """The new key alone is refused and costs no attempt; with the old one behind it all is
    sent; a rotation that is killed is taken up; then the old key may go (W183).
    """
    with Recorder() as receiver, Stack(database_url, {"WEBHOOKS_KEYRING": OLD}) as stack:
        stack.start_web()
        endpoint, secret = stack.register(receiver.url)
        stack.emit(1)

        stack.env["WEBHOOKS_KEYRING"] = NEW
        refused = stack.start("gunicorn", "--config", "python:webhooks.worker",
                              "webhooks.worker:application")  # fmt: skip
        assert refused.popen.wait(30) != 0
        assert "the key 'old' of another keyring; put it back" in refused.output()
        assert stack.statuses() == {"pending": 1}

        stack.env["WEBHOOKS_KEYRING"] = f"{NEW},{OLD}"
        worker = stack.start_worker()
        eventually(lambda: stack.statuses() == {"delivered": 1})
        with stack.connect() as connection:
            last = add_many(connection, endpoint)
            with connection.transaction():
                connection.execute(
                    "SELECT FROM webhooks.signing_secrets WHERE id = %s FOR UPDATE", [last]
                )
                killed = stack.start("webhooks", "secrets", "rotate")
                eventually(lambda: one(connection, RENEWED) >= 2 * BATCH)
                killed.signal(signal.SIGKILL)
                stack.emit(2)
                eventually(lambda: stack.statuses() == {"delivered": 2})
            assert one(connection, RENEWED) == 2 * BATCH
            finished = stack.start("webhooks", "secrets", "rotate")
            assert finished.popen.wait(30) == 0, finished.output()
            assert f"{MANY + 1 - 2 * BATCH} encrypted anew, with the key new." in finished.output()
            assert "old encrypts nothing any more: remove it" in finished.output()
            assert one(connection, RENEWED) == MANY + 1

        worker.stop()
        stack.env["WEBHOOKS_KEYRING"] = NEW
        stack.start_worker()
        stack.emit(3)
        eventually(lambda: stack.statuses() == {"delivered": 3})
    assert len(receiver.requests) == 3
    assert all(verify(secret, request) for request in receiver.requests)
