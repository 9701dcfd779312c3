"""What the log says of an attempt that failed."""

from __future__ import annotations

import contextlib
import itertools
import logging
import socket
from dataclasses import replace

import psycopg
import pytest

from tests.dispatching import dispatching, make_target
from tests.queue import emit, one, statuses
from tests.recorder import Recorder
from tests.stack import eventually, free_port
from tests.support import KEYRING
from webhooks import ids
from webhooks.addresses import AddressPolicy
from webhooks.attempt import LIVE
from webhooks.dispatcher import Dispatcher
from webhooks.resolver import Resolver
from webhooks.secrets import Keyring
from webhooks.sending import Sender
from webhooks.settings import Settings
from webhooks.transports.curl import CurlTransport

FOUR = [f"127.0.0.{n}" for n in (1, 2, 3, 4)]
DEADLINE_S = 2.0


def test_one_of_four_addresses_hangs_and_the_log_says_where(
    settings: Settings, connection: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """Forty deliveries to a name with four: each ends in time, and a line of one that failed
    has its endpoint and its peer (W041).
    """
    caplog.set_level(logging.INFO)
    turns = itertools.count()

    def look_up(host: str) -> list[str]:
        first = next(turns) % 4
        return FOUR[first:] + FOUR[:first]

    quick = replace(settings, retry_attempts=1, attempt_timeout_s=DEADLINE_S)
    resolver = Resolver(AddressPolicy.from_settings(quick), look_up)
    port = free_port()
    with contextlib.ExitStack() as stack:
        for address in ("127.0.0.1", "127.0.0.3", "127.0.0.4"):
            each = Recorder(lambda nth, _: 503 if nth % 2 else 200, port=port, host=address)
            stack.enter_context(each)
        swallow(stack, "127.0.0.2", port)
        endpoints = [make_target(connection, f"http://four{n}.example:{port}/") for n in range(4)]
        connection.execute("UPDATE webhooks.endpoints SET timeout_s = %s", [DEADLINE_S])
        emit(connection, 10)
        transport = CurlTransport(quick, resolver=resolver)
        running = Dispatcher(quick, transport, Sender(quick, Keyring.parse(KEYRING)))
        running.start()
        eventually(lambda: finished(connection) == 40, 60)
        running.drain(10)

    assert one(connection, "SELECT max(total_ms) FROM webhooks.attempts") <= (DEADLINE_S + 1) * 1000
    failed = connection.execute(
        "SELECT delivery_id, endpoint_id, peer FROM webhooks.attempts WHERE outcome = 'failed'"
    ).fetchall()
    lines = [r.getMessage() for r in caplog.records if r.name.endswith("attempt_log")]
    assert len(lines) == len(failed) >= 4
    for delivery_id, endpoint_id, peer in failed:
        assert endpoint_id in endpoints
        (line,) = [each for each in lines if ids.encode(ids.DELIVERY, delivery_id) in each]
        assert ids.encode(ids.ENDPOINT, endpoint_id) in line
        assert f"peer {peer}," in line


def finished(connection: psycopg.Connection) -> int:
    return sum(n for status, n in statuses(connection).items() if status not in LIVE)


def swallow(stack: contextlib.ExitStack, address: str, port: int) -> None:
    """A full backlog answers no SYN."""
    hole = stack.enter_context(socket.socket())
    hole.bind((address, port))
    hole.listen(0)
    for _ in range(4):
        filler = stack.enter_context(socket.socket())
        filler.setblocking(False)
        filler.connect_ex((address, port))


def test_what_was_delivered_is_not_logged(
    settings: Settings, connection: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """A busy installation would log nothing else."""
    caplog.set_level(logging.DEBUG)
    with Recorder() as receiver:
        make_target(connection, receiver.url)
        emit(connection, 3)
        with dispatching(settings):
            eventually(lambda: statuses(connection) == {"delivered": 3}, 20)

    assert not [r for r in caplog.records if r.name.endswith("attempt_log")]
