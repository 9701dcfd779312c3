"""A network that is cut: workers on two hosts, one of which loses the database."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import psycopg
import pytest

from tests.recorder import Recorder
from tests.stack import Process, Stack, eventually, free_port, own_server
from tests.support import require
from webhooks import embedded, ids
from webhooks.schema import upgrade

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

NETWORK = "10.213"
TRUST = f"host all all {NETWORK}.0.0/16 trust\n"


@dataclass(frozen=True)
class Host:
    """A network namespace with a cable to this one."""

    number: int

    @property
    def name(self) -> str:
        return f"wh{os.getpid() % 100_000}-{self.number}"

    @property
    def here(self) -> str:
        """This end's address."""
        return f"{NETWORK}.{self.number}.1"

    def make(self) -> None:
        ip("netns", "add", self.name)
        ip("link", "add", self.name, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        ip("address", "add", f"{self.here}/24", "dev", self.name)
        ip("link", "set", self.name, "up")
        for arguments in (
            ("address", "add", f"{NETWORK}.{self.number}.2/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
            ("route", "add", "default", "via", self.here),
        ):
            ip("-n", self.name, *arguments)

    def cut(self) -> None:
        ip("link", "set", self.name, "down")

    def mend(self) -> None:
        ip("link", "set", self.name, "up")

    def remove(self) -> None:
        with suppress(subprocess.CalledProcessError):
            ip("netns", "del", self.name)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    """Two, each on a network of its own with this one, which has the database."""
    require(shutil.which("ip"), "ip", "iproute2")
    require(os.geteuid() == 0, "the right to make a network", "run as root")
    made = (Host(1), Host(2))
    try:
        for host in made:
            host.make()
        yield made
    finally:
        for host in made:
            host.remove()


@pytest.fixture
def port(hosts: tuple[Host, Host]) -> Iterator[int]:
    """A database that listens on both networks."""
    number = free_port()
    listens = {"listen_addresses": ",".join(host.here for host in hosts), "port": str(number)}
    with own_server() as server:
        with (server.cluster / "pg_hba.conf").open("a") as hba:
            hba.write(TRUST)
        server.stop()
        server._run(
            "pg_ctl", "start", "-w", "-l", "server.log", "-o",
            " ".join(f"-c {k}={v}" for k, v in listens.items()) + " -c unix_socket_directories=",
            cwd=server.cluster,
        )  # fmt: skip
        with psycopg.connect(url(hosts[0], number, "postgres"), autocommit=True) as connection:
            connection.execute("CREATE DATABASE webhooks")
        upgrade(url(hosts[0], number))
        yield number


def url(host: Host, port: int, database: str = "webhooks") -> str:
    return f"postgresql://{embedded.SUPERUSER}@{host.here}:{port}/{database}"


def start_worker(stack: Stack, host: Host, port: int) -> Process:
    return stack.start(
        "gunicorn", "--config", "python:webhooks.worker", "--workers", "1",
        "--bind", "127.0.0.1:9100", "webhooks.worker:application",
        prefix=("ip", "netns", "exec", host.name),
        more={
            "DATABASE_URL": url(host, port), "WEBHOOKS_ALLOW_CIDRS": f"{NETWORK}.0.0/16",
            "WEBHOOKS_LEASE_S": "6", "WEBHOOKS_HEARTBEAT_S": "1",
        },
    )  # fmt: skip


def test_a_host_that_is_cut_off_loses_nothing(hosts: tuple[Host, Host], port: int) -> None:
    """The other host takes over what it held; when it comes back it sends none of that again."""
    one, other = hosts
    env = {"WEBHOOKS_ALLOW_CIDRS": f"{NETWORK}.0.0/16"}
    with (
        Recorder(delay_s=0.2, host="0.0.0.0") as receiver,
        Stack(url(one, port), env) as stack,
    ):
        receiver_url = f"http://{other.here}:{receiver.url.rpartition(':')[2]}"
        stack.start_web()
        for n in range(4):
            stack.register(f"{receiver_url}/{n}", max_in_flight=5)
        start_worker(stack, one, port)
        start_worker(stack, other, port)
        with psycopg.connect(url(other, port), autocommit=True) as connection:
            eventually(lambda: workers(connection) == 2, 30, "both work")
            emitted = set(emit(connection, 100))
            eventually(lambda: statuses(connection).get("delivered", 0) > 40, 30)

            one.cut()
            eventually(lambda: statuses(connection) == {"delivered": 400}, 60)
            one.mend()
            emitted |= set(emit(connection, 20))
            eventually(lambda: statuses(connection) == {"delivered": 480}, 60)
            eventually(lambda: workers(connection) == 2, 30, "it is back")

            lost = connection.execute(
                "SELECT count(*) FROM webhooks.attempts WHERE error_class = 'worker_lost'"
            ).fetchone()
        assert lost is not None
        assert lost[0] <= 20, "no more than it held"
        arrived = [(r.path, r.id) for r in receiver.requests]
        assert len(set(arrived)) == 480
        assert {event_id for _, event_id in arrived} == emitted
        assert len(arrived) - len(set(arrived)) <= lost[0]


def workers(connection: psycopg.Connection) -> int:
    row = connection.execute(
        "SELECT count(*) FROM webhooks.workers WHERE seen_at > now() - interval '3 s'"
    ).fetchone()
    return row[0] if row else 0


def statuses(connection: psycopg.Connection) -> dict[str, int]:
    rows = connection.execute("SELECT status, count(*) FROM webhooks.deliveries GROUP BY 1")
    return dict(rows.fetchall())


def emit(connection: psycopg.Connection, count: int) -> list[str]:
    rows = connection.execute(
        "SELECT webhooks.emit('default', 'a', '{}') FROM generate_series(1, %s)", [count]
    ).fetchall()
    return [ids.encode(ids.EVENT, row[0]) for row in rows]
