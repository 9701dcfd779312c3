"""`webhooks up` as a newcomer runs it: a real process, its children, its database."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
import requests

from tests.stack import alive, eventually, free_port
from tests.support import require
from webhooks.embedded import running_url
from webhooks.receiver import Behaviour, Receiver

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

WEBHOOKS = Path(sys.executable).parent / "webhooks"
# Root may keep its Python where others cannot look: reading is left, all else is not.
AS_NOBODY = (
    "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups",
    "--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search",
    "--bounding-set=-all,+dac_read_search",
)  # fmt: skip


@dataclass
class Up:
    """`webhooks up` on a data directory of its own, started as often as a test likes."""

    folder: Path
    prefix: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    popen: subprocess.Popen[bytes] | None = None

    @property
    def data_dir(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self, *arguments: str) -> dict[str, Any]:
        words = [*self.prefix, str(WEBHOOKS), *arguments, "--data-dir", str(self.data_dir)]
        inherited = {k: v for k, v in os.environ.items() if k != "DATABASE_URL"}
        return {
            "args": words,
            "env": {**inherited, "HOME": str(self.folder), **self.env},
            "cwd": self.folder,
        }

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Another command of ours, while `up` runs or not."""
        return subprocess.run(**self.command(*arguments), capture_output=True, text=True)

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def start(self, *arguments: str) -> str:
        """Start it and wait until it says that it is ready; answers what it printed."""
        with self.log.open("wb") as log:
            self.popen = subprocess.Popen(
                **self.command("up", "--port", str(self.port), *arguments),
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        popen = self.popen
        eventually(lambda: "is ready" in self.output() or popen.poll() is not None, 60)
        eventually(lambda: re.search("data stays in\n.*\n|API key:.*\n", self.output()))
        assert popen.poll() is None, self.output()
        return self.output()

    def family(self) -> set[int]:
        """The ids of every process that belongs to it, the database's server too."""
        assert self.popen is not None
        pids = {self.popen.pid}
        pid_file = self.data_dir / "postgres" / "postmaster.pid"
        if pid_file.exists():
            pids.add(int(pid_file.read_text().splitlines()[0]))
        waiting = list(pids)
        while waiting:
            found = children(waiting.pop())
            waiting.extend(found - pids)
            pids |= found
        return pids

    def end(self, number: signal.Signals = signal.SIGTERM, within_s: float = 20) -> int:
        """Signal it; answers its exit code once it and all its processes are gone."""
        assert self.popen is not None
        family = self.family()
        self.popen.send_signal(number)
        code = self.popen.wait(within_s)
        eventually(lambda: not any(map(alive, family)), 20, "no process is left")
        return code

    def clean(self) -> None:
        if self.popen is not None:
            for pid in self.family():
                if alive(pid):
                    os.kill(pid, signal.SIGKILL)
            self.popen.wait()


def children(pid: int) -> set[int]:
    """The ids of a process's children; none when it has gone."""
    try:
        return {
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        }
    except OSError:
        return set()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every account can pass through, as pytest's own is not."""
    made = Path(tempfile.mkdtemp(prefix="webhooks-up-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def up(folder: Path) -> Iterator[Up]:
    """`up` as the account that runs the tests."""
    made = Up(folder)
    yield made
    made.clean()


@pytest.fixture(params=["our account", "an ordinary user"])
def anyones_up(request: pytest.FixtureRequest, up: Up) -> Up:
    """`up` as ourselves and, when that is root, as an ordinary user too."""
    if request.param == "an ordinary user":
        if os.geteuid() != 0:
            pytest.skip("the account that runs the tests is an ordinary one already")
        require(shutil.which("setpriv"), "setpriv", "apt-get install util-linux")
        up.prefix = AS_NOBODY
        os.chown(up.folder, pwd.getpwnam("nobody").pw_uid, -1)
    return up


def api(up: Up, key: str, method: str, path: str, body: Any = None) -> requests.Response:
    headers = {"Authorization": f"Bearer {key}"}
    return requests.request(
        method, f"{up.url}/api/v1{path}", json=body, headers=headers, timeout=10
    )


def test_the_whole_story(anyones_up: Up) -> None:
    """First start, use, a second one beside it, stop, and a start that continues."""
    up = anyones_up
    printed = up.start()

    assert f"{up.url}/" in printed
    assert re.search(r"User +admin\n +Password +\S{12,}\n", printed)
    found = re.search(r"API key +(whk_live_\S+)", printed)
    assert found is not None
    key = found[1]
    assert requests.get(f"{up.url}/healthz", timeout=10).status_code == 200
    page = requests.get(f"{up.url}/", timeout=10)
    assert page.status_code == 200
    assert "password" in page.text
    event = {"type": "invoice.paid", "payload": {"id": 1}}
    assert api(up, key, "POST", "/events", event).status_code == 202
    made = up.run("key", "create", "another")
    assert api(up, made.stdout.strip(), "GET", "/endpoints").status_code == 200
    assert up.run("emit", "invoice.paid", '{"id": 2}').stdout.startswith("evt_")

    second = up.run("up", "--port", str(free_port()))
    assert second.returncode == 2
    assert up.popen is not None
    assert f"already runs on {up.data_dir} (pid {up.popen.pid})" in second.stderr
    assert len(second.stderr.splitlines()) == 1

    assert up.end() == 0
    assert "no database runs" in up.run("key", "list").stderr

    printed = up.start()
    assert "Password  " not in printed
    assert "key create NAME" in printed
    assert api(up, key, "POST", "/events", event).status_code == 202
    assert up.end() == 0


def test_another_directory_on_the_same_port_is_refused(up: Up, tmp_path: Path) -> None:
    """One line names the port; nothing is left running."""
    up.start()

    other = subprocess.run(
        [WEBHOOKS, "up", "--data-dir", tmp_path / "other", "--port", str(up.port)],
        capture_output=True, text=True, env=up.command()["env"],
    )  # fmt: skip

    assert other.returncode == 2
    assert f"port {up.port}" in other.stderr
    assert len(other.stderr.splitlines()) == 1
    assert not (tmp_path / "other" / "postgres").exists()


def test_ctrl_c_is_ours_alone(up: Up, database_url: str) -> None:
    """On DATABASE_URL's server; the terminal's signal reaches the children as a polite one."""
    up.env["DATABASE_URL"] = database_url
    up.start()
    family = up.family()
    assert not (up.data_dir / "postgres").exists()
    assert (up.data_dir / "keyring").exists()

    assert up.popen is not None
    os.killpg(up.popen.pid, signal.SIGINT)

    assert up.popen.wait(20) == 0
    eventually(lambda: not any(map(alive, family)))
    assert "Handling signal: term" in up.output()
    assert "Handling signal: int" not in up.output()
    assert "Traceback" not in up.output()


def test_a_second_signal_gives_back_at_once(up: Up) -> None:
    """An endpoint that does not answer holds up the first signal, not the second."""
    with Receiver("127.0.0.1", 0, Behaviour(delay=60)) as receiver:
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        found = re.search(r"API key +(whk_live_\S+)", up.start())
        assert found is not None
        url = f"http://127.0.0.1:{receiver.server_port}/"
        new = {"url": url, "event_types": ["*"], "timeout_s": 60}
        assert api(up, found[1], "POST", "/endpoints", new).status_code == 201
        up.run("emit", "invoice.paid", "1")
        eventually(lambda: receiver.requests)
        family = up.family()

        assert up.popen is not None
        up.popen.send_signal(signal.SIGTERM)
        eventually(lambda: "web stopped" in up.output())
        assert up.popen.poll() is None
        up.popen.send_signal(signal.SIGTERM)

        assert up.popen.wait(10) == 130
        eventually(lambda: not any(map(alive, family)))
        assert "PostgreSQL is stopped" in up.output()
        receiver.shutdown()


def test_a_killed_up_leaves_nothing_behind_for_long(up: Up) -> None:
    """Its processes stop by themselves; the next start takes the database over."""
    up.start()
    postgres = int((up.data_dir / "postgres" / "postmaster.pid").read_text().splitlines()[0])
    ours = up.family() - {postgres} - children(postgres)

    assert up.popen is not None
    up.popen.kill()
    up.popen.wait()

    eventually(lambda: not any(map(alive, ours)), 30)
    assert alive(postgres)
    up.start()
    assert postgres in up.family()
    assert up.end() == 0
    assert not alive(postgres)


def test_a_process_that_ends_by_itself_ends_all(up: Up) -> None:
    """The exit code tells; the database is stopped in order."""
    up.start()
    family = up.family()
    scheduler = re.search(r"scheduler started \(pid=([0-9]+)\)", up.output())
    assert scheduler is not None

    os.kill(int(scheduler[1]), signal.SIGKILL)

    assert up.popen is not None
    assert up.popen.wait(20) == 1
    eventually(lambda: not any(map(alive, family)))
    assert "PostgreSQL is stopped" in up.output()


def test_the_demo_shows_every_fate(up: Up) -> None:
    """Deliveries arrive, fail, retry and die within a minute; a second start adds nothing."""
    found = re.search(r"API key +(whk_live_\S+)", up.start("--demo"))
    assert found is not None
    key = found[1]

    def seen() -> set[str]:
        deliveries = api(up, key, "GET", "/deliveries?limit=100").json()["data"]
        return {delivery["status"] for delivery in deliveries}

    eventually(lambda: {"delivered", "dead_lettered"} <= seen(), 60)
    assert "signature valid -> 200" in up.output()
    assert "signature invalid" not in up.output()
    before = api(up, key, "GET", "/endpoints").json()["data"]
    assert len(before) == 3
    assert up.end() == 0

    up.start("--demo")
    eventually(lambda: "signature valid -> 200" in up.output())
    after = api(up, key, "GET", "/endpoints").json()["data"]
    assert [each["id"] for each in after] == [each["id"] for each in before]
    assert "signature invalid" not in up.output()
    assert up.end() == 0


def test_it_is_durable_and_in_development_mode(up: Up) -> None:
    """The database that a newcomer trusts has fsync on, and pages say which mode it is."""
    up.start()

    with psycopg.connect(running_url(up.data_dir)) as connection:
        for name in ("fsync", "synchronous_commit", "full_page_writes"):
            row = connection.execute(f"SELECT current_setting('{name}')").fetchone()
            assert row == ("on",)
    assert "development" in requests.get(f"{up.url}/", timeout=10).text.lower()
    assert up.end() == 0
