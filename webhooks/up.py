"""`webhooks up`: the whole platform on one machine, in development mode.

Starts a database unless DATABASE_URL names one, migrates, makes what a first start
needs, runs the Procfile's processes, and stops the database last.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from honcho.environ import parse_procfile

from webhooks import datadir, embedded, files, first_start, logs, ports, schema
from webhooks.processes import CLEAN, Processes, Stop
from webhooks.secrets import Keyring
from webhooks.settings import Settings
from webhooks.welcome import Welcome

PROCESSES = ("web", "worker", "scheduler")
LOOPBACK = "127.0.0.0/8,::1/128"
WORKER_COUNTS = ("WEB_WORKERS", "DELIVERY_WORKERS")


class UpError(RuntimeError):
    """The platform cannot start; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `webhooks up` was asked for. ``workers`` are delivery processes."""

    host: str
    port: int
    data_dir: Path
    workers: int | None = None
    demo: bool = False
    allow_loopback: bool = False


def run(options: Options, settings: Settings) -> int:
    """Run until stopped; answers the exit code (0 after a clean stop).

    Raises UpError, PortError, DataDirError, EmbeddedError, SchemaError, KeyringError or
    a database error when it cannot start; nothing is left running then.
    """
    _check(options, settings)
    logs.setup(settings.log_level)
    stop = Stop()
    stop.install()
    datadir.prepare(options.data_dir)
    with datadir.locked(options.data_dir):
        ports.check(options.host, options.port)
        try:
            with _database(options, settings, stop) as url:
                return _run_on(url, options, settings, stop)
        except KeyboardInterrupt:
            return CLEAN


def _run_on(url: str, options: Options, settings: Settings, stop: Stop) -> int:
    click.echo(f"The schema is at revision {schema.upgrade(url)}.")
    stop.check()
    made = first_start.prepare(url, options.data_dir, settings)
    welcome = Welcome(options.host, options.port, options.data_dir, made, demo=options.demo)
    try:
        env = environment(options, settings, os.environ, url)
        processes = Processes(stop, lambda: welcome.start(processes.show))
        with TemporaryDirectory(prefix="webhooks-metrics-") as metrics_dir:
            _add(processes, options, env, metrics_dir)
            return processes.run()
    finally:
        welcome.finish()


def environment(
    options: Options, settings: Settings, given: Mapping[str, str], url: str
) -> dict[str, str]:
    """What the processes get: what we were ``given``, and what this start decides.

    Raises SettingsError when they do not fit together.
    """
    env = {name: value for name, value in given.items() if name != "DATABASE_URL_FILE"}
    env.setdefault("WEBHOOKS_ALLOW_HTTP", "true")
    if not settings.keyring:
        env["WEBHOOKS_KEYRING_FILE"] = str(options.data_dir / datadir.KEYRING)
    if options.allow_loopback or ports.is_loopback(options.host):
        own = [network for network in (given.get("WEBHOOKS_ALLOW_CIDRS"),) if network]
        env["WEBHOOKS_ALLOW_CIDRS"] = ",".join([*own, LOOPBACK])
    if options.workers:
        env["DELIVERY_WORKERS"] = str(options.workers)
    env |= {
        "DATABASE_URL": url,
        "WEBHOOKS_DATA_DIR": str(options.data_dir),
        "WEBHOOKS_MODE": "development",
        "HOST": ports.bracketed(options.host),
        "PORT": str(options.port),
        "WORKER_HOST": ports.LOCAL,
        "WORKER_PORT": str(ports.next_free(options.port + 1)),
        "PATH": _path(given.get("PATH", os.defpath)),
    }
    Settings.from_env(env)
    return env


def _check(options: Options, settings: Settings) -> None:
    if os.environ.get("WEBHOOKS_MODE", "development") != "development":
        raise UpError(
            f"WEBHOOKS_MODE={settings.mode!r}: `webhooks up` is development mode; unset it, "
            "or run the Procfile's processes for production"
        )
    if settings.keyring:
        Keyring.parse(settings.keyring)
    for name in WORKER_COUNTS:
        if not re.fullmatch(r"[1-9][0-9]?", os.environ.get(name, "1")):
            raise UpError(f"{name}={os.environ[name]!r}: give a number of processes from 1 to 99")
    local = ports.is_loopback(options.host)
    if options.demo and not (local or options.allow_loopback):
        raise UpError(
            f"--demo delivers to this machine, and --host {options.host} forbids that; "
            "add --allow-loopback"
        )


@contextmanager
def _database(options: Options, settings: Settings, stop: Stop) -> Iterator[str]:
    if settings.database_url:
        yield settings.database_url
        return
    click.echo(f"Starting PostgreSQL in {options.data_dir} …")
    server = embedded.open_server(options.data_dir)
    try:
        stop.check()
        server.start()
        server.ensure_database()
        stop.check()
        yield server.url()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        server.stop()
        click.echo("PostgreSQL is stopped.")


def _add(processes: Processes, options: Options, env: Mapping[str, str], metrics_dir: str) -> None:
    procfile = files.find("Procfile").read_text(encoding="utf-8")
    commands = parse_procfile(procfile).processes
    for name in PROCESSES:
        own = {"PROMETHEUS_MULTIPROC_DIR": metrics_dir} if name == "worker" else {}
        processes.add(name, commands[name], {**env, **own})
    if options.demo:
        processes.add("demo", "webhooks demo", env)


def _path(path: str) -> str:
    """``path`` with the folders first in which this very installation has its programs."""
    programs = (sys.executable, sys.argv[0])
    ours = dict.fromkeys(str(Path(program).absolute().parent) for program in programs)
    found = os.pathsep.join([*ours, path])
    for program in ("gunicorn", "webhooks"):
        if shutil.which(program, path=found) is None:
            raise UpError(f"{program} is missing from this installation; install it again")
    return found
