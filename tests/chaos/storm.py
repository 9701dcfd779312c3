"""The storm: what happens to workers, database and receivers, by a seeded die."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable

import psycopg
import requests

from tests.chaos.receiver import MOODS, Receivers
from tests.stack import Process, Stack, alive, eventually
from webhooks import embedded

LEASE_S = 5
WORKERS = 2
# How much longer than its lease a worker is stopped.
STALL_S = 2.0

TERMINATE = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE application_name LIKE 'webhooks%%' AND application_name <> 'webhooks test'
  AND pid <> pg_backend_pid() AND random() < %s
"""


class Storm:
    """``masters`` are gunicorn masters of delivery workers; what happened is counted."""

    def __init__(
        self,
        stack: Stack,
        server: embedded.Server,
        receivers: Receivers,
        endpoints: dict[str, str],
        start_master: Callable[[int], Process],
        seed: int,
    ) -> None:
        self.happened: Counter[str] = Counter()
        self.masters = [start_master(0), start_master(1)]
        self._stack = stack
        self._server = server
        self._receivers = receivers
        self._endpoints = endpoints
        self._start_master = start_master
        self._dice = random.Random(seed)
        self._stopped: dict[int, float] = {}
        self._paused: set[str] = set()
        self._acts: dict[Callable[[], None], int] = {
            self._change_mood: 12,
            self._kill_worker: 3,
            self._terminate_worker: 2,
            self._hurry_worker: 4,
            self._stall_worker: 3,
            self._kill_master: 1,
            self._kill_web: 1,
            self._restart_fast: 1,
            self._restart_immediate: 1,
            self._terminate_backends: 4,
            self._pause_or_resume: 3,
            self._replay: 3,
        }

    def blow(self, seconds: float) -> None:
        """Everything at least once, in any order, and then whatever the die says."""
        acts, weights = list(self._acts), list(self._acts.values())
        first = self._dice.sample(acts, len(acts))
        end = time.monotonic() + seconds
        while first or time.monotonic() < end:
            act = first.pop() if first else self._dice.choices(acts, weights)[0]
            self.happened[act.__name__.strip("_")] += 1
            act()
            self._wake_stalled(time.monotonic())
            time.sleep(self._dice.uniform(0.1, 1.2))

    def calm(self) -> None:
        """Everybody is well again: nothing is stopped, paused or away."""
        self._wake_stalled(float("inf"))
        self._receivers.calm()
        for name in sorted(self._paused):
            self._set_status(name, "active")
        assert not self._paused, "an endpoint could not be resumed"

    def _workers(self) -> list[int]:
        return [pid for master in self.masters for pid in master.children()]

    def _some_worker(self) -> int | None:
        running = [pid for pid in self._workers() if pid not in self._stopped]
        return self._dice.choice(running) if running else None

    def _signal_worker(self, number: signal.Signals) -> int | None:
        pid = self._some_worker()
        if pid is not None and alive(pid):
            os.kill(pid, number)
        return pid

    def _kill_worker(self) -> None:
        self._signal_worker(signal.SIGKILL)

    def _terminate_worker(self) -> None:
        self._signal_worker(signal.SIGTERM)

    def _hurry_worker(self) -> None:
        """It may not wait for what hangs, and gives it back."""
        self._receivers.moods = dict.fromkeys(self._receivers.moods, "hang")
        time.sleep(1)
        self._signal_worker(signal.SIGQUIT)

    def _stall_worker(self) -> None:
        pid = self._signal_worker(signal.SIGSTOP)
        if pid is not None:
            self._stopped[pid] = time.monotonic() + LEASE_S + STALL_S

    def _wake_stalled(self, now: float) -> None:
        for pid in [pid for pid, until in self._stopped.items() if until <= now]:
            del self._stopped[pid]
            if alive(pid):
                os.kill(pid, signal.SIGCONT)

    def _kill_master(self) -> None:
        """As when a machine is lost: the master and all its workers at once."""
        number = self._dice.randrange(len(self.masters))
        for pid in self.masters[number].children():
            self._stopped.pop(pid, None)
        self.masters[number].kill()
        self.masters[number] = self._start_master(number)

    def _kill_web(self) -> None:
        web = self._stack.processes[0]
        for pid in web.children():
            os.kill(pid, signal.SIGKILL)

    def _restart_fast(self) -> None:
        self._restart("fast")

    def _restart_immediate(self) -> None:
        self._restart("immediate")

    def _restart(self, mode: str) -> None:
        self._server.stop(mode)
        time.sleep(self._dice.uniform(0, 2))
        self._server.start()

    def _terminate_backends(self) -> None:
        with psycopg.connect(self._server.url(), autocommit=True) as connection:
            connection.execute(TERMINATE, [self._dice.choice([0.2, 0.5, 1.0])])

    def _change_mood(self) -> None:
        name = self._dice.choice(sorted(self._receivers.moods))
        self._receivers.moods[name] = self._dice.choice(MOODS)

    def _pause_or_resume(self) -> None:
        name = self._dice.choice(sorted(self._endpoints))
        self._set_status(name, "active" if name in self._paused else "paused")

    def _set_status(self, name: str, status: str) -> None:
        """Until it is answered: setting it twice is setting it once."""

        def answered() -> bool:
            try:
                answer = self._stack.patch(
                    f"/endpoints/{self._endpoints[name]}", {"status": status}
                )
            except requests.RequestException:
                return False
            assert answer.status_code in (200, 503), answer.text
            return answer.status_code == 200

        eventually(answered, 45, f"{name} becomes {status}")
        (self._paused.add if status == "paused" else self._paused.discard)(name)

    def _replay(self) -> None:
        """Of what has finished; how often it was done is read from the audit log."""
        try:
            found = self._stack.get("/deliveries?status=delivered")["data"]
            if found:
                path = f"/deliveries/{self._dice.choice(found)['id']}/replay"
                assert self._stack.post(path).status_code in (202, 409, 503)
        except (requests.RequestException, AssertionError):
            self.happened["replay without an answer"] += 1
