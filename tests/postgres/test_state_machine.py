"""The queue's operations in any order, by several workers, against a model of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from uuid import UUID

import psycopg
import pytest
from flask import Flask
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.chaos.twin import HOW, Twin
from webhooks.attempt import Claim

T = TypeVar("T")

# Few of each, so that the operations meet.
CAPS = (1, 3)
MOST_WORKERS = 3
MOST_DELIVERIES = 8
ROOM = 6
EXAMPLES = 60
STEPS = 50

picks = st.integers(0, 2**16)
some = st.lists(picks, min_size=1, max_size=4)
endings = st.sampled_from(
    ["is reclaimed", "is reclaimed", "expires", "is pruned", "beats", "retires"]
)
# Two days are enough here; each partition less makes every statement cheaper.
DAYS_AHEAD = """
SELECT inhrelid::regclass::text FROM pg_inherits
WHERE inhparent::regclass::text ~ '^webhooks[.](events|deliveries|attempts)$'
  AND right(inhrelid::regclass::text, 8) > to_char(now() + interval '1 day', 'YYYYMMDD')
  AND inhrelid::regclass::text ~ '_[0-9]{8}$'
"""
actions = st.sampled_from(["cancel", "replay", "retry now"])


def nth(found: Sequence[T], number: int) -> T:
    return found[number % len(found)]


class Queue(RuleBasedStateMachine):
    """Chooses what happens next; the twin does it to both and compares."""

    connection: psycopg.Connection
    app: Flask

    @initialize()
    def begin(self) -> None:
        self.twin = Twin(self.connection, self.app, CAPS)
        self.model = self.twin.model
        self.arrive()

    @rule()
    def arrive(self) -> None:
        """An event, and a worker."""
        if len(self.model.deliveries) < MOST_DELIVERIES:
            self.twin.emit()
        if len(self.model.workers) < MOST_WORKERS:
            self.twin.start_worker()

    @rule(number=picks, room=st.integers(len(CAPS), ROOM))
    def work(self, number: int, room: int) -> None:
        self.twin.claim(self.someone(number), room)
        self.twin.compare()

    @rule(numbers=some, how=st.sampled_from(list(HOW)), late=st.booleans())
    def finish(self, numbers: list[int], how: str, *, late: bool) -> None:
        """Claims stay in hand, so that they are settled late as well."""
        for worker, claims in self.chosen(numbers, late=late).items():
            # A worker has a delivery in hand once.
            self.twin.settle(worker, list({c.delivery_id: c for c in claims}.values()), how)
            self.twin.compare()

    @rule(numbers=some, late=st.booleans())
    def give_back(self, numbers: list[int], *, late: bool) -> None:
        for worker, claims in self.chosen(numbers, late=late).items():
            self.twin.give_back(worker, {(c.delivery_id, c.attempt) for c in claims})
            self.twin.compare()

    @rule(number=picks, how=endings)
    def end(self, number: int, how: str) -> None:
        """Something happens to a worker that holds something."""
        self.ready(number)
        holders = sorted({d.worker for d in self.model.deliveries.values() if d.worker})
        worker = nth(holders or [self.someone(number)], number)
        if how in ("expires", "is reclaimed") and worker in self.model.workers:
            self.twin.expire(worker)
        if how == "is pruned":
            self.twin.prune(worker)
        if how == "beats":
            self.twin.beat(worker)
        if how == "retires":
            self.twin.retire(worker)
        if how == "is reclaimed":
            self.twin.reclaim()
        self.twin.compare()

    @rule()
    def reclaim(self) -> None:
        self.twin.reclaim()
        self.twin.compare()

    @precondition(lambda self: self.model.of("scheduled"))
    @rule(number=picks, promoted=st.booleans())
    def wait(self, number: int, *, promoted: bool) -> None:
        """A retry falls due."""
        self.twin.fall_due(nth(self.model.of("scheduled"), number))
        if promoted:
            self.twin.promote()
        self.twin.compare()

    @rule(number=picks, action=actions, odd=st.booleans())
    def press(self, number: int, action: str, *, odd: bool) -> None:
        """``odd``: it may be a delivery where this is refused."""
        found = sorted(self.model.deliveries)
        fitting = [i for i in found if self.model.allows(action, i)]
        self.twin.press(action, nth(found if odd or not fitting else fitting, number))
        self.twin.compare()

    @rule(number=picks, status=st.sampled_from(["active", "paused", "active"]))
    def turn(self, number: int, status: str) -> None:
        self.twin.turn(nth(sorted(self.model.lanes), number), status)
        self.twin.compare()

    def someone(self, number: int) -> UUID:
        """One that has a row, or one whose row is gone but that does not know it."""
        claimers = (c.worker_id for c in self.twin.hands if c.worker_id)
        known = sorted({*self.model.workers, *claimers}) or [self.twin.start_worker()]
        return nth(known, number)

    def chosen(self, numbers: list[int], *, late: bool) -> dict[UUID, list[Claim]]:
        """Some claims, by the worker that made them."""
        self.ready(numbers[0])
        hands = self.twin.in_hand(late=late)
        by_worker: dict[UUID, list[Claim]] = {}
        for claim in (nth(hands, number) for number in numbers if hands):
            assert claim.worker_id is not None
            by_worker.setdefault(claim.worker_id, []).append(claim)
        return by_worker

    def ready(self, number: int) -> None:
        """Let something be in flight: chance alone would rarely come to where it matters."""
        if self.model.of("in_flight"):
            return
        for endpoint_id, lane in self.model.lanes.items():
            if lane.status != "active":
                self.twin.turn(endpoint_id, "active")
        for delivery_id in self.model.of("delivered", "dead_lettered", "cancelled"):
            if not self.model.of("pending"):
                self.twin.press("replay", delivery_id)
        workers = sorted(self.model.workers) or [self.twin.start_worker()]
        self.twin.claim(nth(workers, number), ROOM)

    def teardown(self) -> None:
        """Whatever happened, every row has a way out (W128)."""
        if hasattr(self, "twin"):
            self.twin.drain()


@pytest.mark.timeout(0)  # hypothesis ends by itself, and shrinking a failure takes minutes
def test_any_order_of_operations_leaves_the_queue_as_the_model_says(
    connection: psycopg.Connection, app: Flask, chaos_scale: float
) -> None:
    """Claims, settles, deaths, replays by several workers: states, numbers and caps are right."""
    for (name,) in connection.execute(DAYS_AHEAD).fetchall():
        connection.execute(f"DROP TABLE {name}".encode())
    machine = type("TheQueue", (Queue,), {"connection": connection, "app": app})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=max(1, round(EXAMPLES * chaos_scale)),
            stateful_step_count=STEPS,
            phases=(Phase.generate, Phase.shrink),
            deadline=None,
            print_blob=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
