"""A worker whose keyring lacks a key: the deliveries that need it wait, and no try is charged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import psycopg
import pytest
from flask import Flask

from tests.api import Api
from tests.dispatching import SECRET, dispatching, make_target
from tests.pages import signed_in
from tests.queue import emit, one
from tests.recorder import Recorder, verify
from tests.stack import eventually
from tests.support import KEYRING
from webhooks.dispatcher import Dispatcher, put_off
from webhooks.dispatcher.put_off import PutOff
from webhooks.reencryption import reencrypt
from webhooks.secrets import Keyring, Place
from webhooks.sending import Sender
from webhooks.settings import Settings
from webhooks.transports import choice

AWAY = Keyring.generate("away")


@contextmanager
def dispatching_with(settings: Settings, keyring: str) -> Iterator[Dispatcher]:
    """A dispatcher whose process has this keyring."""
    settings = replace(settings, lease_s=3.0, heartbeat_s=0.5, max_in_flight=50)
    running = Dispatcher(settings, choice.make(settings), Sender(settings, Keyring.parse(keyring)))
    running.start()
    try:
        yield running
    finally:
        running.drain(10)


def encrypt_elsewhere(connection: psycopg.Connection, endpoint_id: UUID) -> None:
    """Its secret is of the key "away", as if a process with that key had made it."""
    row = connection.execute(
        "SELECT id, tenant_id FROM webhooks.signing_secrets WHERE endpoint_id = %s", [endpoint_id]
    ).fetchone()
    assert row is not None
    place = Place("signing_secrets", row[1], row[0], "ciphertext")
    connection.execute(
        "UPDATE webhooks.signing_secrets SET ciphertext = %s WHERE id = %s",
        [Keyring.parse(AWAY).encrypt(place, SECRET), row[0]],
    )


def delivery_of(connection: psycopg.Connection, endpoint_id: UUID) -> Any:
    """Status, numbers used, tries charged, numbers given back, attempts on record."""
    return connection.execute(
        "SELECT status, attempts, tries, given_back, "
        "(SELECT count(*) FROM webhooks.attempts a WHERE a.delivery_id = d.id) "
        "FROM webhooks.deliveries d WHERE endpoint_id = %s",
        [endpoint_id],
    ).fetchone()


def given_back(connection: psycopg.Connection, endpoint_id: UUID) -> bool:
    return delivery_of(connection, endpoint_id) == ("pending", 1, 0, [1], 0)


def test_a_delivery_waits_for_a_worker_that_has_the_key(
    connection: psycopg.Connection, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """This one gives it back and serves others; another one, with the key, sends it (W183)."""
    with Recorder() as recorder:
        lost = make_target(connection, recorder.url)
        well = make_target(connection, recorder.url)
        encrypt_elsewhere(connection, lost)
        emit(connection)
        with dispatching(settings), caplog.at_level(logging.WARNING):
            # At once, not when strays are looked for, every five seconds.
            eventually(lambda: given_back(connection, lost), 4)
            emit(connection, 3)
            eventually(lambda: len(recorder.requests) == 4)
            counts = "SELECT sum(attempts) FROM webhooks.deliveries WHERE endpoint_id = %s"
            assert (one(connection, counts, lost), one(connection, counts, well)) == (1, 4)

            with dispatching_with(settings, f"{KEYRING},{AWAY}"):
                eventually(lambda: len(recorder.requests) == 8)

    assert all(verify(SECRET.decode(), request) for request in recorder.requests)
    assert one(connection, "SELECT sum(tries) FROM webhooks.deliveries") == 8
    assert "no key 'away' in the keyring" in caplog.text


def test_custom_headers_of_a_lost_key_make_it_wait_too(
    connection: psycopg.Connection, settings: Settings
) -> None:
    """Without its headers a delivery is not what was ordered."""
    with Recorder() as recorder, dispatching(settings):
        lost = make_target(connection, recorder.url)
        connection.execute("UPDATE webhooks.endpoints SET headers = 'v1:away:AAAA:AAAA'")
        emit(connection)
        eventually(lambda: given_back(connection, lost))

    assert recorder.requests == []


def test_a_worker_goes_on_by_itself_once_it_can(
    connection: psycopg.Connection, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Re-encrypted with a key that it has, what waited is sent without a restart."""
    monkeypatch.setattr(put_off, "WAIT_S", 0.3)
    with Recorder() as recorder, dispatching(settings):
        lost = make_target(connection, recorder.url)
        encrypt_elsewhere(connection, lost)
        emit(connection, 2)
        eventually(lambda: one(connection, "SELECT max(attempts) FROM webhooks.deliveries") >= 2)
        for _ in reencrypt(connection, Keyring.parse(f"{KEYRING},{AWAY}")):
            pass
        eventually(lambda: len(recorder.requests) == 2)

    assert all(verify(SECRET.decode(), request) for request in recorder.requests)


def test_a_damaged_secret_is_not_waited_for(
    connection: psycopg.Connection, settings: Settings
) -> None:
    """No keyring mends it: the delivery is dead-lettered with its class (W118)."""
    with Recorder() as recorder, dispatching(settings):
        make_target(connection, recorder.url)
        connection.execute("UPDATE webhooks.signing_secrets SET ciphertext = ciphertext || 'AAAA'")
        emit(connection)
        eventually(lambda: one(connection, "SELECT status FROM webhooks.deliveries")
                   == "dead_lettered")  # fmt: skip

    assert one(connection, "SELECT error_class FROM webhooks.attempts") == "internal"


@pytest.mark.parametrize(
    ("column", "what"),
    [
        ("signing_secrets SET ciphertext", "a signing secret was"),
        ("endpoints SET headers", "its custom headers were"),
    ],
    ids=["signing secret", "custom headers"],
)
def test_the_page_and_the_api_say_why_it_waits(
    app: Flask, connection: psycopg.Connection, column: str, what: str
) -> None:
    """The web process asks its own keyring, for live secrets alone; it names the key (W183)."""
    api, client = Api(app), signed_in(app)
    endpoint = api.endpoint(headers={"X-Token": "t"})
    assert api.get(f"/endpoints/{endpoint}").json["missing_key"] is None  # type: ignore[index]
    assert "Nothing can be sent" not in client.get(f"/endpoints/{endpoint}").text

    connection.execute(f"UPDATE webhooks.{column} = 'v1:away:AAAA:AAAA'")

    why = (
        f"{what} encrypted with the key away, which is not in the keyring: deliveries wait; "
        "put the key back into WEBHOOKS_KEYRING"
    )
    assert api.get(f"/endpoints/{endpoint}").json["missing_key"] == why  # type: ignore[index]
    assert api.get("/endpoints").json["data"][0]["missing_key"] == why  # type: ignore[index]
    page = client.get(f"/endpoints/{endpoint}")
    assert page.status_code == 200
    assert f"<strong>Nothing can be sent:</strong> {why}." in page.text


def test_an_ended_secret_of_a_lost_key_keeps_nothing_waiting(
    app: Flask, connection: psycopg.Connection
) -> None:
    """What signs no more need not be decrypted; nor is a damaged one a matter of keys."""
    api = Api(app)
    endpoint = api.endpoint()
    connection.execute(
        "UPDATE webhooks.signing_secrets SET ciphertext = 'v1:away:AAAA:AAAA', valid_until = now()"
    )
    api.post(f"/endpoints/{endpoint}/secrets", {})
    connection.execute(
        "UPDATE webhooks.signing_secrets SET ciphertext = 'garbage' WHERE valid_until > now()"
    )

    assert api.get(f"/endpoints/{endpoint}").json["missing_key"] is None  # type: ignore[index]


def test_of_what_is_put_off_nothing_is_taken_and_then_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For one wait nothing, for another a single delivery; others are not touched."""
    now = 100.0
    monkeypatch.setattr(put_off.time, "monotonic", lambda: now)
    lost, well = UUID(int=1), UUID(int=2)
    those = PutOff()

    def share(endpoint_id: UUID) -> int:
        return those.limit(lambda endpoint_id, askers: 7)(endpoint_id, 1)

    assert share(lost) == 7
    those.add([lost])
    assert (share(lost), share(well)) == (0, 7)
    now += 59
    assert share(lost) == 0
    now += 2
    assert (share(lost), share(well)) == (1, 7)
    those.add([lost])
    assert share(lost) == 0
    now += 121
    assert share(lost) == 7
