"""A storm over real workers, a real web process and a PostgreSQL of its own; then the bill."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.chaos.producers import Producers
from tests.chaos.receiver import Receivers
from tests.chaos.storm import LEASE_S, WORKERS, Storm
from tests.chaos.verdict import Verdict
from tests.queue import one
from tests.stack import Process, Stack, eventually
from webhooks import embedded, ids
from webhooks.schema import upgrade

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(0)]

# Of each worker, from the claim's commit to the settle's: what its death can repeat.
IN_FLIGHT = 60
DRAIN_S = 90
ENDPOINTS = {
    "all": ["*"],
    "orders": ["order.*"],
    "paid": ["order.paid", "user.created"],
    "users": ["user.*", "user.deleted.*"],
    "none": ["nothing.*"],
}
ENV = {
    "WEBHOOKS_LEASE_S": str(LEASE_S),
    "WEBHOOKS_HEARTBEAT_S": "1",
    "WEBHOOKS_MAX_IN_FLIGHT": str(IN_FLIGHT),
    "WEBHOOKS_RETRY_BASE_S": "0.3",
    "WEBHOOKS_RETRY_FACTOR": "1.5",
    "WEBHOOKS_RETRY_CAP_S": "2",
    "WEBHOOKS_RETRY_ATTEMPTS": "100",
    # More than a worker in a hurry waits, less than a receiver hangs.
    "WEBHOOKS_ATTEMPT_TIMEOUT_S": "4",
    "WEBHOOKS_BREAKER_FAILURES": "5",
    "WEBHOOKS_BREAKER_FIRST_S": "0.5",
    "WEBHOOKS_BREAKER_LONGEST_S": "2",
}
# What may be on record of an attempt that was answered 2xx: that, or that its worker died or
# was cut off before it could say so, or (nothing) that a crash undid the claim itself.
EXPLAINED = {"delivered", "worker_lost", "given back", "timeout", "nothing"}
# Of what happens in the storm, how many workers it can part from their answers.
PARTED = {
    "kill_worker": 1,
    "terminate_worker": 1,
    "hurry_worker": 1,
    "stall_worker": 1,
    "kill_master": WORKERS,
    "restart_fast": 2 * WORKERS,
    "restart_immediate": 2 * WORKERS,
}


@pytest.fixture
def say(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Write a line to the terminal, whether or not the test passes."""
    reporter = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    capture = pytestconfig.pluginmanager.get_plugin("capturemanager")

    def write(line: str) -> None:
        assert reporter is not None
        assert capture is not None
        with capture.global_and_fixture_disabled():
            reporter.write_line(f"chaos: {line}")

    return write


def test_a_storm_loses_nothing(
    own_server: embedded.Server, pytestconfig: pytest.Config, say: Callable[[str], None]
) -> None:
    """Workers, database and receivers fail at random: all arrives, repeats are explained (W101)."""
    seed = pytestconfig.getoption("--chaos-seed") or random.SystemRandom().randrange(10**6)
    say(f"--chaos-seed {seed}")
    upgrade(own_server.url())
    with Stack(own_server.url(), dict(ENV)) as stack, Receivers(tuple(ENDPOINTS)) as receivers:
        stack.start_web()
        endpoints = {
            name: stack.register(receivers.url(name), event_types=patterns)[0]
            for name, patterns in ENDPOINTS.items()
        }
        storm = Storm(stack, own_server, receivers, endpoints, start_masters(stack), seed)
        producers = Producers(stack, seed)
        producers.start()
        storm.blow(pytestconfig.getoption("--chaos-seconds"))
        storm.calm()
        producers.stop()
        drain(stack)
        only_live_workers_are_left(stack)
        assert [master.stop() for master in storm.masters] == [0, 0]
        assert producers.errors == []
        assert [p.log.name for p in stack.processes if "Traceback" in p.output()] == []
        judge(stack, storm, producers, receivers, endpoints, say)


def start_masters(stack: Stack) -> Callable[[int], Process]:
    """The first with the default transport, the second with the other."""

    def start(number: int) -> Process:
        stack.env["WEBHOOKS_TRANSPORT"] = ("auto", "requests")[number]
        return stack.start_worker(WORKERS)

    return start


def drain(stack: Stack) -> None:
    """Replay what the policy gave up on, and wait until nothing is live."""

    def drained() -> bool:
        for row in stack.get("/deliveries?status=dead_lettered")["data"]:
            assert row["reason"] == "lost its worker 3 times", row
            stack.post(f"/deliveries/{row['id']}/replay")
        return stack.statuses().keys() == {"delivered"}

    eventually(drained, DRAIN_S, f"drained: {stack.statuses()}")


def only_live_workers_are_left(stack: Stack) -> None:
    """The rows of the dead go, and nothing is in flight without a worker."""
    with stack.connect() as connection:

        def live_ones_alone() -> bool:
            workers: int = one(connection, "SELECT count(*) FROM webhooks.workers")
            return workers == 2 * WORKERS

        eventually(live_ones_alone, 20, "a row for each live worker")


def judge(
    stack: Stack,
    storm: Storm,
    producers: Producers,
    receivers: Receivers,
    endpoints: dict[str, str],
    say: Callable[[str], None],
) -> None:
    """The verdict; what came twice is counted and explained."""
    names = {ids.decode(ids.ENDPOINT, text): name for name, text in endpoints.items()}
    log = receivers.entries()
    with stack.connect() as connection:
        verdict = Verdict(connection, ENDPOINTS, names, producers.promises, log)
    verdict.nothing_is_lost()
    verdict.nothing_is_invented()
    verdict.every_number_is_accounted_for()
    verdict.states_follow_each_other()
    answers, repeats = verdict.answers_are_on_record(), verdict.repeats()
    happened = storm.happened
    say(str(dict(happened)))
    say(f"{len(verdict.events)} events, {len(verdict.rows)} deliveries, {len(log)} requests")
    given_back = sum(len(row.given_back) for row in verdict.rows.values())
    say(f"2xx answers by what is on record: {dict(answers)}")
    say(f"repeats: {repeats}; given back: {given_back}")
    assert answers.keys() <= EXPLAINED
    parted = sum(happened[what] * workers for what, workers in PARTED.items())
    assert repeats <= parted * IN_FLIGHT
    undone = happened["restart_immediate"] * 2 * WORKERS * IN_FLIGHT
    assert answers["nothing"] <= undone
