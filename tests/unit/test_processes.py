"""`webhooks up`: what the processes are given, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path

import honcho.manager
import pytest

from tests.stack import eventually
from webhooks import files, ports, up
from webhooks.demo import PATTERN
from webhooks.first_start import Made
from webhooks.processes import CLEAN, FAILED, FORCED, Processes, Stop
from webhooks.secrets import Keyring
from webhooks.settings import Settings, SettingsError
from webhooks.welcome import Welcome

URL = "postgresql://webhooks@/webhooks?host=%2Fx"
KEYRING = Keyring.generate()


def environment(
    host: str = "127.0.0.1", *, allow: bool = False, workers: int | None = None, **given: str
) -> dict[str, str]:
    options = up.Options(
        host=host, port=8000, data_dir=Path("/data"), allow_loopback=allow, workers=workers
    )
    given = {"WEBHOOKS_KEYRING": KEYRING, **given}
    return up.environment(options, Settings.from_env(given), given, URL)


@pytest.mark.parametrize(
    ("host", "allow", "allowed"),
    [
        ("127.0.0.1", False, True),
        ("::1", False, True),
        ("localhost", False, True),
        ("0.0.0.0", False, False),
        ("::", False, False),
        ("192.0.2.1", False, False),
        ("0.0.0.0", True, True),
    ],
)
def test_loopback_targets_follow_the_host(host: str, allow: bool, allowed: bool) -> None:
    """Whoever lets others in must say that deliveries may go to this machine."""
    settings = Settings.from_env(environment(host, allow=allow))

    assert bool(settings.allow_cidrs) is allowed
    assert settings.development
    assert settings.allow_http


def test_own_settings_are_kept() -> None:
    """Networks that the operator allows, and http that the operator forbids."""
    env = environment(WEBHOOKS_ALLOW_CIDRS="10.0.0.0/8", WEBHOOKS_ALLOW_HTTP="false")

    assert env["WEBHOOKS_ALLOW_CIDRS"] == "10.0.0.0/8,127.0.0.0/8,::1/128"
    assert not Settings.from_env(env).allow_http


def test_processes_find_the_database_and_each_other(tmp_path: Path) -> None:
    """The chosen URL wins over a file, the worker's port is another, an IPv6 host is bracketed."""
    (tmp_path / "url").write_text("postgresql://elsewhere/x")

    env = environment("::1", workers=3, DATABASE_URL_FILE=str(tmp_path / "url"))

    assert Settings.from_env(env).database_url == URL
    assert (env["HOST"], env["PORT"], env["DELIVERY_WORKERS"]) == ("[::1]", "8000", "3")
    assert int(env["WORKER_PORT"]) > 8000
    assert env["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)


def test_a_missing_keyring_file_is_named(tmp_path: Path) -> None:
    """Without WEBHOOKS_KEYRING the processes read the data directory's."""
    options = up.Options(host="127.0.0.1", port=8000, data_dir=tmp_path)

    with pytest.raises(SettingsError, match="WEBHOOKS_KEYRING_FILE"):
        up.environment(options, Settings.from_env({}), {}, URL)

    (tmp_path / "keyring").write_text(f"{KEYRING}\n")
    env = up.environment(options, Settings.from_env({}), {}, URL)
    assert Settings.from_env(env).keyring == KEYRING


def test_the_next_free_port_is_found() -> None:
    """A port that is taken is passed over."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        assert ports.next_free(port) != port

    assert ports.next_free(port) == port
    assert 0 < ports.next_free(ports.HIGHEST + 1) <= ports.HIGHEST


def test_the_procfile_holds_what_up_runs() -> None:
    """Each process by its name, and the release step that `up` does itself."""
    names = [line.partition(":")[0] for line in files.find("Procfile").read_text().splitlines()]

    assert names == ["release", *up.PROCESSES]


@pytest.fixture
def stop() -> Iterator[Stop]:
    """Signal handlers, put back when the test ends."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield Stop()
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def run(
    stop: Stop, command: str, *signals: signal.Signals, ready: Callable[[], object] = lambda: True
) -> int:
    """Run a command and another one, and raise the signals when ``ready``."""

    def tell() -> None:
        eventually(ready)
        for number in signals:
            signal.raise_signal(number)

    processes = Processes(stop, tell)
    processes.add("one", command, {"PATH": os.environ["PATH"]})
    processes.add("two", "sleep 60", {"PATH": os.environ["PATH"]})
    return processes.run()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_before_the_processes_run_is_not_lost(
    stop: Stop, number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    """It comes before any has told its pid, and all of them stop all the same."""
    assert run(stop, "sleep 60", number) == CLEAN
    assert "Traceback" not in capfd.readouterr().err


def test_two_signals_kill(stop: Stop, tmp_path: Path) -> None:
    """A process that ignores the polite one is killed at the second."""
    trap = tmp_path / "trap"
    command = f"sh -c 'trap \"\" TERM; touch {trap}; sleep 60; :'"

    assert run(stop, command, signal.SIGTERM, signal.SIGTERM, ready=trap.exists) == FORCED


def test_two_signals_break_off_a_start(stop: Stop) -> None:
    """The first waits for the step under way, the second does not."""
    stop.install()

    signal.raise_signal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        stop.check()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("command", ["true", "false"])
def test_a_process_that_ends_is_a_failure(stop: Stop, command: str) -> None:
    """None of them ends by itself in a platform that is well."""
    assert run(stop, command) == FAILED


def test_patience_is_longer_than_a_workers_graceful_timeout(stop: Stop) -> None:
    """The processes may take their time before they are killed."""
    from webhooks import worker

    Processes(stop, lambda: None)

    assert worker.graceful_timeout < honcho.manager.KILL_WAIT


@pytest.mark.parametrize("demo", [True, False])
def test_the_example_reaches_the_sample_endpoints(demo: bool) -> None:
    """With --demo the curl example's type has the prefix that the samples subscribe to."""
    text = Welcome("h", 1, Path("/data"), Made("p", "whk_live_x"), demo=demo).text("Head")

    printed = json.loads(text[text.index("-d '") + 4 : text.rindex("'")])
    assert fnmatch(printed["type"], PATTERN) is demo
    assert printed["payload"] == {"id": 1}


def test_credentials_are_shown_even_if_the_start_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """A password that was made is never lost; later there is none to show."""
    for made, shown in ((Made("pass-word", "whk_live_x"), True), (Made(None, None), False)):
        welcome = Welcome("127.0.0.1", 1, Path("/data"), made)
        welcome.start(print)
        welcome.finish()

        assert ("pass-word" in capsys.readouterr().out) is shown
