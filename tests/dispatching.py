"""A dispatcher in this process, and endpoints that it can send to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import psycopg

from tests.queue import make_endpoint, one
from tests.support import KEYRING
from webhooks.dispatcher import Dispatcher
from webhooks.secrets import Keyring, Place
from webhooks.sending import Sender
from webhooks.settings import Settings
from webhooks.transports import choice

SECRET = b"whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"


@contextmanager
def dispatching(settings: Settings, **changes: Any) -> Iterator[Dispatcher]:
    """With short leases and retries, and ``changes``; drained at the end."""
    quick: dict[str, Any] = {
        "lease_s": 3.0,
        "heartbeat_s": 0.5,
        "retry_base_s": 0.05,
        "retry_factor": 1.0,
        "retry_attempts": 4,
        "attempt_timeout_s": 1.0,
        "max_in_flight": 50,
    }
    settings = replace(settings, **(quick | changes))
    sender = Sender(settings, Keyring.parse(KEYRING))
    running = Dispatcher(settings, choice.make(settings), sender)
    running.start()
    try:
        yield running
    finally:
        running.drain(10)


def make_target(connection: psycopg.Connection, url: str, **more: Any) -> UUID:
    """An endpoint with a signing secret, encrypted as the product stores it."""
    endpoint_id = make_endpoint(connection, url=url, **more)
    tenant = one(connection, "SELECT tenant_id FROM webhooks.endpoints WHERE id = %s", endpoint_id)
    row_id = one(connection, "SELECT webhooks.uuid7()")
    place = Place("signing_secrets", tenant, row_id, "ciphertext")
    connection.execute(
        "INSERT INTO webhooks.signing_secrets (id, tenant_id, endpoint_id, ciphertext) "
        "VALUES (%s, %s, %s, %s)",
        [row_id, tenant, endpoint_id, Keyring.parse(KEYRING).encrypt(place, SECRET)],
    )
    return endpoint_id
