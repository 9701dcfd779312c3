"""DeliveryWorker: gunicorn forks, restarts, drains and watches the dispatchers.

Also gunicorn's configuration: ``gunicorn --config python:webhooks.worker
webhooks.worker:application``. The master imports this module, so it must not import
the metrics: their files belong to the processes that count.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gunicorn.workers.gthread import ThreadWorker

from webhooks import logs
from webhooks.secrets import Keyring
from webhooks.settings import Settings, SettingsError
from webhooks.transports import choice
from webhooks.web import check_settings

if TYPE_CHECKING:
    from webhooks.dispatcher import Dispatcher

METRICS_DIR = "PROMETHEUS_MULTIPROC_DIR"
HEALTHY_TICK_S = 10.0
BEAT_RESERVE_S = 1.0
GC_THRESHOLD = 20_000

worker_class = "webhooks.worker.DeliveryWorker"
threads = 2
timeout = 60
graceful_timeout = 70
control_socket_disable = True

LONGEST_ATTEMPT_S = 60
# Of the graceful timeout, what is left for the last settle after the last answer.
SETTLE_RESERVE_S = 5
QUICK_DRAIN_S = 3
DRAIN_BEAT_S = 0.2

_own_folders: list[str] = []


def on_starting(server: Any) -> None:
    """Refuse wrong settings before a fork, and begin with an empty metrics folder."""
    check_settings()
    least = LONGEST_ATTEMPT_S + SETTLE_RESERVE_S
    if server.cfg.graceful_timeout < least:
        raise SystemExit(
            f"--graceful-timeout {server.cfg.graceful_timeout}: give at least {least}, the longest "
            f"attempt and {SETTLE_RESERVE_S} s to record it"
        )
    # libcurl would write every connection's TLS keys there; it looks when it is loaded.
    os.environ.pop("SSLKEYLOGFILE", None)
    _check_transport()
    _raise_file_limit()
    if METRICS_DIR not in os.environ:
        os.environ[METRICS_DIR] = tempfile.mkdtemp(prefix="webhooks-metrics-")
        _own_folders.append(os.environ[METRICS_DIR])
    folder = Path(os.environ[METRICS_DIR])
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.db"):
        old.unlink()


def _check_transport() -> None:
    try:
        choice.choose(Settings.from_env(os.environ).transport)
    except SettingsError as error:
        raise SystemExit(f"webhooks: {error}") from None


def _raise_file_limit() -> None:
    """Each delivery in flight is an open file, each idle connection too: 1,024 are too few."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems say "infinity" and mean less
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def on_exit(server: Any) -> None:
    """Remove the metrics folder, if this master made it."""
    for folder in _own_folders:
        shutil.rmtree(folder, ignore_errors=True)


def child_exit(server: Any, worker: Any) -> None:
    """Forget a dead process's gauges."""
    from prometheus_client import multiprocess

    multiprocess.mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]


class DeliveryWorker(ThreadWorker):
    """Runs a Dispatcher beside gunicorn's own loop, which serves the pages of ``application``."""

    _dispatcher: Dispatcher | None = None
    _drain: threading.Thread | None = None
    _quick = False

    def run(self) -> None:
        settings = Settings.from_env(os.environ)
        logs.setup(settings.log_level)
        self._dispatcher = _make_dispatcher(settings)
        # What passes through makes no cycles: the collector would look at it for nothing.
        gc.collect()
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD)
        self._dispatcher.start()
        try:
            super().run()
        finally:
            self.alive = False
            self.notify()
            while self._drain is not None and self._drain.is_alive():
                self.notify()
                self._drain.join(DRAIN_BEAT_S)

    def notify(self) -> None:
        """Tell the master that we live, as long as the dispatcher does."""
        if self._dispatcher is None:
            super().notify()
            return
        if not self.alive and self._drain is None:
            # At once, and beside gunicorn's loop: that may wait for slow clients.
            self._drain = threading.Thread(target=self._drain_dispatcher, daemon=True)
            self._drain.start()
        if self._dispatcher.ticking or self._drain is not None:
            super().notify()

    def handle_exit(self, sig: int, frame: Any) -> None:
        """SIGTERM: claim nothing more; the loops look at the flag."""
        if self._dispatcher is not None:
            self._dispatcher.stop_claiming()
        super().handle_exit(sig, frame)

    def handle_quit(self, sig: int, frame: Any) -> None:
        """SIGINT and SIGQUIT: the same in a hurry, for what is in hand must not be lost."""
        self._quick = True
        self.handle_exit(sig, frame)

    def _drain_dispatcher(self) -> None:
        assert self._dispatcher is not None  # noqa: S101 - run() has made it
        limit = QUICK_DRAIN_S if self._quick else self.cfg.graceful_timeout - SETTLE_RESERVE_S
        self._dispatcher.drain(limit)


def _make_dispatcher(settings: Settings) -> Dispatcher:
    from webhooks.dispatcher import Dispatcher
    from webhooks.sending import Sender

    sender = Sender(settings, Keyring.parse(settings.keyring))
    return Dispatcher(settings, choice.make(settings), sender)


def application(
    environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], Any]
) -> Iterable[bytes]:
    """The worker's own pages, for all processes of its master: /healthz, /livez, /metrics."""
    from webhooks import metrics

    path = environ.get("PATH_INFO")
    if path in ("/healthz", "/livez"):
        fault = _stalled()
        if path == "/healthz":
            fault = fault or _database_away()
        status = "503 Service Unavailable" if fault else "200 OK"
        body = f"{fault or 'ok'}\n".encode()
    elif path == "/metrics":
        status, body = "200 OK", metrics.exposition()
    else:
        status, body = "404 Not Found", b"/healthz, /livez and /metrics are here\n"
    start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [body]


def _stalled() -> str:
    """Which of them does not go round, or ""."""
    from webhooks import metrics

    return "" if metrics.oldest_tick_age_s() < HEALTHY_TICK_S else "a dispatcher is stalled"


def _database_away() -> str:
    """Whether one of them has missed two beats: it claims and sends nothing then."""
    from webhooks import metrics

    patience_s = 2 * Settings.from_env(os.environ).heartbeat_s + BEAT_RESERVE_S
    return "" if metrics.oldest_beat_age_s() < patience_s else "the database does not answer"
