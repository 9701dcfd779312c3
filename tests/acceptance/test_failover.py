"""Failover: the primary dies, its synchronous standby takes over, and nothing is lost."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pytest
import requests
from sqlalchemy import create_engine

from tests.recorder import Recorder
from tests.stack import Stack, eventually, free_port
from webhooks import embedded
from webhooks.db import sqlalchemy_url
from webhooks.embedded import Server
from webhooks.schema import upgrade

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

USER = embedded.SUPERUSER
TRUST = "host all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n"


@dataclass
class Pair:
    """A primary, and a standby that has each commit before it is answered."""

    folder: Path
    primary: Server
    standby: Server
    ports: tuple[int, int]

    @property
    def url(self) -> str:
        """Both hosts; whichever takes writes is the one."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        return f"postgresql://{USER}@{hosts}/webhooks?target_session_attrs=read-write"

    def crash_primary(self) -> None:
        self.primary.stop("immediate")

    def promote(self) -> None:
        self.standby._run("pg_ctl", "promote", "-w", cwd=self.standby.cluster)


def listening(port: int) -> dict[str, str]:
    return {
        "listen_addresses": "127.0.0.1", "port": str(port), "unix_socket_directories": "",
        "wal_level": "replica", "max_wal_senders": "4", "hot_standby": "on",
    }  # fmt: skip


def connect_to(port: int) -> psycopg.Connection:
    return psycopg.connect(
        f"postgresql://{USER}@127.0.0.1:{port}/postgres", autocommit=True, connect_timeout=3
    )


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Both run, the standby streams, and the schema is there."""
    folder = Path(tempfile.mkdtemp(prefix="webhooks-pair-"))
    folder.chmod(0o711)
    ports = (free_port(), free_port())
    primary = embedded.open_server(folder / "primary")
    with (primary.cluster / "pg_hba.conf").open("a") as hba:
        hba.write(TRUST)
    start(primary, ports[0], {"synchronous_standby_names": "standby"}, wait_for_standby=False)
    standby = replace(primary, data_dir=folder / "standby")
    copy(primary, standby, ports[0])
    start(standby, ports[1], {})
    try:
        with connect_to(ports[0]) as connection:
            state = "SELECT sync_state FROM pg_stat_replication"
            eventually(lambda: connection.execute(state).fetchone() == ("sync",))
            connection.execute("CREATE DATABASE webhooks")
        both = Pair(folder, primary, standby, ports)
        upgrade(both.url)
        yield both
    finally:
        for server in (primary, standby):
            if (server.cluster / "postmaster.pid").exists():
                server._run("pg_ctl", "stop", "-m", "immediate", cwd=server.cluster)
        shutil.rmtree(folder, ignore_errors=True)


def start(
    server: Server, port: int, options: dict[str, str], *, wait_for_standby: bool = True
) -> None:
    flags = " ".join(f"-c {k}={v or chr(39) * 2}" for k, v in (listening(port) | options).items())
    server._run("pg_ctl", "start", "-w", "-t", "30", "-l", "server.log", "-o", flags,
                cwd=server.cluster)  # fmt: skip


def copy(primary: Server, standby: Server, port: int) -> None:
    """As an operator would: pg_basebackup, which also writes how to follow."""
    standby.data_dir.mkdir()
    standby.cluster.mkdir(mode=0o700)
    standby._give(standby.cluster)
    source = f"host=127.0.0.1 port={port} user={USER} application_name=standby"
    primary._run("pg_basebackup", "-D", ".", "-d", source, "-R", "-c", "fast", "-X", "stream",
                 cwd=standby.cluster)  # fmt: skip


class Producer(threading.Thread):
    """Emits one event after another, each until it is accepted, with its own key."""

    def __init__(self, stack: Stack, count: int) -> None:
        super().__init__()
        self._stack = stack
        self._count = count
        self.accepted: list[str] = []
        self.refused = 0

    def run(self) -> None:
        for number in range(self._count):
            self._emit(number)
            time.sleep(0.01)

    def _emit(self, number: int) -> None:
        body = {"type": "a", "payload": {"n": number}, "idempotency_key": f"k{number}"}
        while True:
            try:
                answer = self._stack.post("/events", body)
            except requests.RequestException:
                answer = None
            if answer is not None and answer.status_code == 202:
                self.accepted.append(answer.json()["id"])
                return
            self.refused += 1
            time.sleep(0.1)


def test_nothing_acknowledged_is_lost_when_the_primary_dies(pair: Pair) -> None:
    """Emits and deliveries go on by the standby; each accepted event arrives, under one id."""
    with (
        Recorder() as receiver,
        Stack(pair.url, {"WEBHOOKS_LEASE_S": "6", "WEBHOOKS_HEARTBEAT_S": "1"}) as stack,
    ):
        stack.start_web()
        stack.start_worker()
        stack.register(receiver.url)
        producer = Producer(stack, 400)
        producer.start()
        eventually(lambda: len(producer.accepted) >= 100, 30)

        pair.crash_primary()
        time.sleep(1)
        pair.promote()

        producer.join(120)
        assert not producer.is_alive()
        assert producer.refused > 0, "the crash was seen by nobody"
        accepted = set(producer.accepted)
        assert len(accepted) == 400
        eventually(lambda: accepted <= {r.id for r in receiver.requests}, 60)
        eventually(lambda: stack.statuses() == {"delivered": 400}, 60)
        assert {r.id for r in receiver.requests} == accepted


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("postgresql://u:p@a:1,b:2/d?target_session_attrs=read-write", ("a,b", "1,2")),
        ("postgresql://a:1,b:2/d", ("a,b", "1,2")),
        ("postgresql://u@a:1/d", ("a", 1)),
    ],
)
def test_several_hosts_reach_the_driver(url: str, hosts: tuple[str, object]) -> None:
    """As libpq wants them, in the order given, whether or not there are a user and options."""
    engine = create_engine(sqlalchemy_url(url))
    _, arguments = engine.dialect.create_connect_args(engine.url)

    assert (arguments["host"], arguments["port"]) == hosts
    assert arguments["dbname"] == "d"
