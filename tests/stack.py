"""The product as real processes: gunicorn web, gunicorn worker, PostgreSQL."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import requests

from tests.support import KEYRING
from webhooks import embedded, ids, keys
from webhooks.app import create_app
from webhooks.db import connect
from webhooks.settings import Settings

BIN = Path(sys.executable).parent


def eventually(condition: Callable[[], object], within_s: float = 20, what: str = "") -> Any:
    """Wait until ``condition`` answers something true, and answer that."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {within_s} s: {what or condition}")


@contextmanager
def own_server(options: Mapping[str, str] | None = None) -> Iterator[embedded.Server]:
    """A PostgreSQL of one's own, durable as in production, that may be restarted."""
    folder = Path(tempfile.mkdtemp(prefix="webhooks-own-"))
    folder.chmod(0o711)
    made = embedded.open_server(folder)
    made.start(options)
    try:
        yield made
    finally:
        made.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)


def listens(port: int) -> bool:
    """Whether something accepts connections there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@dataclass
class Process:
    """One process of the product, with its output in a file."""

    popen: subprocess.Popen[bytes]
    log: Path
    port: int = 0

    @property
    def pid(self) -> int:
        return self.popen.pid

    def children(self) -> list[int]:
        path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def stop(self, within_s: float = 30) -> int:
        """SIGTERM, then the exit code."""
        if self.popen.poll() is None:
            self.signal(signal.SIGTERM)
        return self.popen.wait(within_s)

    def kill(self) -> None:
        """Kill it and its children, by their ids."""
        children = self.children() if self.popen.poll() is None else []
        self.popen.kill()
        self.popen.wait()
        for pid in children:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


@dataclass
class Stack:
    """Processes on one database; ``env`` is added to each one's settings."""

    database_url: str
    env: dict[str, str] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    key: str = ""

    def __enter__(self) -> Stack:
        app = create_app(Settings.from_env(self._env()))
        with app.app_context():
            _, self.key = keys.create("acceptance", None)
            app.extensions["sqlalchemy"].engine.dispose()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.log.unlink()

    def _env(self) -> dict[str, str]:
        return {
            "DATABASE_URL": self.database_url,
            "WEBHOOKS_KEYRING": KEYRING,
            "WEBHOOKS_MODE": "development",
            "WEBHOOKS_ALLOW_HTTP": "true",
            "WEBHOOKS_ALLOW_CIDRS": "127.0.0.0/8",
            # Every receiver of a test is on one host.
            "WEBHOOKS_HOST_MAX_IN_FLIGHT": "0",
            **self.env,
        }

    def start(
        self,
        *command: str,
        port: int = 0,
        prefix: Sequence[str] = (),
        more: Mapping[str, str] | None = None,
    ) -> Process:
        """A process of ours; ``prefix`` runs it (such as ip netns exec), ``more`` is its env."""
        descriptor, log = tempfile.mkstemp(prefix="webhooks-log-")
        env = {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "HOME": os.environ.get("HOME", "/"),
            **self._env(),
            **(more or {}),
        }
        popen = subprocess.Popen(
            [*prefix, str(BIN / command[0]), *command[1:]],
            stdout=descriptor, stderr=subprocess.STDOUT, env=env,
        )  # fmt: skip
        os.close(descriptor)
        process = Process(popen, Path(log), port)
        self.processes.append(process)
        return process

    def start_web(self) -> Process:
        port = free_port()
        web = self.start(
            "gunicorn", "--config", "python:webhooks.web", "--workers", "1",
            "--bind", f"127.0.0.1:{port}", "webhooks.web:app()",
            port=port,
        )  # fmt: skip
        self.base_url = f"http://127.0.0.1:{port}"
        eventually(lambda: _answers(f"{self.base_url}/healthz"), 20, web.output())
        return web

    def start_worker(self, workers: int = 1) -> Process:
        port = free_port()
        worker = self.start(
            "gunicorn", "--config", "python:webhooks.worker", "--workers", str(workers),
            "--bind", f"127.0.0.1:{port}", "webhooks.worker:application", port=port,
        )  # fmt: skip
        eventually(lambda: _answers(f"http://127.0.0.1:{port}/healthz"), 20, "worker is healthy")
        return worker

    def connect(self) -> psycopg.Connection:
        return connect(self.database_url, "test")

    def post(self, path: str, body: Any = None, **more: Any) -> requests.Response:
        return requests.post(
            f"{self.base_url}/api/v1{path}",
            json=body,
            headers={"Authorization": f"Bearer {self.key}"},
            timeout=15,
            **more,
        )

    def patch(self, path: str, body: Any) -> requests.Response:
        return requests.patch(
            f"{self.base_url}/api/v1{path}",
            json=body,
            headers={"Authorization": f"Bearer {self.key}"},
            timeout=15,
        )

    def get(self, path: str) -> Any:
        answer = requests.get(
            f"{self.base_url}/api/v1{path}",
            headers={"Authorization": f"Bearer {self.key}"},
            timeout=15,
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    def register(self, url: str, **more: Any) -> tuple[str, str]:
        """An endpoint for every event type by the API: its id and its secret."""
        answer = self.post("/endpoints", {"url": url, "event_types": ["*"], **more})
        assert answer.status_code == 201, answer.text
        return answer.json()["id"], answer.json()["secret"]

    def emit(self, payload: Any, event_type: str = "test.event") -> str:
        answer = self.post("/events", {"type": event_type, "payload": payload})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def emit_sql(self, count: int) -> list[str]:
        """Many events at once, by the SQL function; their public ids."""
        with self.connect() as connection:
            rows = connection.execute(
                "SELECT webhooks.emit('default', 'test.event', '{\"n\": ' || n || '}') "
                "FROM generate_series(1, %s) AS n",
                [count],
            ).fetchall()
        return [ids.encode(ids.EVENT, UUID(str(row[0]))) for row in rows]

    def statuses(self) -> dict[str, int]:
        with self.connect() as connection:
            return dict(
                connection.execute(
                    "SELECT status, count(*) FROM webhooks.deliveries GROUP BY 1"
                ).fetchall()
            )


def _answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=2).status_code == 200
    except requests.RequestException:
        return False
