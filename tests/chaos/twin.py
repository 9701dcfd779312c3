"""The queue and its model side by side: each operation is done to both, and compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from flask import Flask

from tests import queue
from tests.chaos.model import LIVE, Delivery, Lane, Model
from webhooks import deliveries, endpoints, workers
from webhooks.attempt import Claim, ErrorClass
from webhooks.deliveries import Fenced, Refused, Settlement
from webhooks.lanes import Rules

# The lanes' own health is another test's matter.
RULES = Rules(breaker_failures=1_000_000)
MOST_HANDS = 10
WAITS = {"none": None, "now": timedelta(0), "later": timedelta(hours=1)}
# Error class, status code, wait before the next try.
HOW: dict[str, tuple[ErrorClass | None, int | None, str]] = {
    "ok": (None, 200, "none"),
    "again": (ErrorClass.CONNECT, None, "now"),
    "later": (ErrorClass.HTTP_5XX, 500, "later"),
    "final": (ErrorClass.INVALID_URL, None, "none"),
    "gone": (ErrorClass.HTTP_4XX, 410, "none"),
}
TABLES = ("attempts", "deliveries", "events", "lanes", "workers", "subscriptions", "endpoints")

ROWS = """
SELECT id, endpoint_id, status, attempts, tries, lost, worker_id, trigger, reason,
       coalesce(given_back, '{}'), finished_at = 'infinity', due_at IS NOT NULL
FROM webhooks.deliveries
"""
RECORDS = "SELECT delivery_id, number, error_class FROM webhooks.attempts ORDER BY recorded_at"

# Who comes back apart from the others does so at random: here, not before it is told.
HOLD = """
UPDATE webhooks.deliveries_queue SET due_at = now() + interval '1 hour'
WHERE status = 'scheduled' AND id = ANY (%s)
"""
FALL_DUE = """
UPDATE webhooks.deliveries_queue SET due_at = now() WHERE status = 'scheduled' AND id = ANY (%s)
"""


class Twin:
    """An empty queue with a lane for each of ``caps``; ``hands`` are claims, live and old."""

    def __init__(self, connection: psycopg.Connection, app: Flask, caps: Iterable[int]) -> None:
        self.connection = connection
        self.app = app
        self.model = Model()
        self.hands: list[Claim] = []
        self.recorded: set[tuple[UUID, UUID, int]] = set()
        for table in TABLES:
            connection.execute(f"DELETE FROM webhooks.{table}".encode())
        for cap in caps:
            self.model.lanes[queue.make_endpoint(connection, cap=cap)] = Lane(cap)

    def emit(self) -> None:
        queue.emit(self.connection, 1)
        for delivery_id, endpoint_id in self.connection.execute(
            "SELECT id, endpoint_id FROM webhooks.deliveries"
        ).fetchall():
            self.model.deliveries.setdefault(delivery_id, Delivery(endpoint_id))

    def start_worker(self) -> UUID:
        worker = queue.register(self.connection)
        self.model.workers[worker] = False
        return worker

    def claim(self, worker: UUID, room: int) -> None:
        expected = self.model.claimable(room)
        if worker not in self.model.workers:
            self._claim_fenced(worker, room)
            return
        # In an order that the next run of the same steps has as well.
        claims = sorted(queue.claim(self.connection, worker, room), key=lambda c: c.delivery_id)
        assert [c.delivery_id for c in claims] == sorted(expected)
        self.model.claim(worker, expected)
        for claimed in claims:
            d = self.model.deliveries[claimed.delivery_id]
            assert (claimed.attempt, claimed.tries, claimed.lost) == (d.attempts, d.tries, d.lost)
        self.hands = [*self.hands, *claims][-MOST_HANDS:]

    def _claim_fenced(self, worker: UUID, room: int) -> None:
        """Refused, or found nothing to ask for."""
        try:
            assert queue.claim(self.connection, worker, room) == ()
        except Fenced:
            return
        waiting = (self.model.deliveries[i].endpoint for i in self.model.of("pending"))
        assert not any(self.model.lanes[endpoint].status == "active" for endpoint in waiting)

    def in_hand(self, *, late: bool) -> list[Claim]:
        """Claims that still are their worker's, or (``late``, or there are none) any."""
        held = [
            c
            for c in self.hands
            if c.worker_id and self.model.holds(c.worker_id, c.delivery_id, c.attempt)
        ]
        return self.hands if late or not held else held

    def settle(self, worker: UUID, claims: list[Claim], how: str) -> None:
        """Those that are still the worker's change; answered are those on record by now."""
        error, code, wait = HOW[how]
        held = [c for c in claims if self.model.holds(worker, c.delivery_id, c.attempt)]
        batch = [Settlement(c, queue.outcome(error, code), WAITS[wait]) for c in claims]

        answer = deliveries.settle(self.connection, worker, batch, RULES)

        self.recorded |= {(worker, c.delivery_id, c.attempt) for c in held}
        assert answer == {
            c.delivery_id for c in claims if (worker, c.delivery_id, c.attempt) in self.recorded
        }
        why = f"{'HTTP 410' if how == 'gone' else error}: not retryable"
        for each in held:
            reason = why if error and wait == "none" else None
            self.model.settle(each.delivery_id, error and str(error), reason, wait)
            if how == "gone" and self.model.lanes[each.endpoint_id].status == "active":
                self.model.lanes[each.endpoint_id].status = "disabled"

    def fall_due(self, delivery_id: UUID) -> None:
        self.connection.execute(FALL_DUE, [[delivery_id]])
        self.model.deliveries[delivery_id].due = True

    def promote(self) -> None:
        assert deliveries.promote(self.connection) == len(self.model.promote())

    def expire(self, worker: UUID) -> None:
        queue.expire(self.connection, worker)
        self.model.workers[worker] = True

    def prune(self, worker: UUID) -> None:
        """Its row goes, by hand; what it held stays in flight until that is found."""
        self.connection.execute("DELETE FROM webhooks.workers WHERE id = %s", [worker])
        self.model.workers.pop(worker, None)

    def beat(self, worker: UUID) -> None:
        """Late or not: the lease is renewed as long as the row is there."""
        known = worker in self.model.workers
        assert workers.beat(self.connection, worker, 0) is known
        if known:
            self.model.workers[worker] = False
            lease = "UPDATE webhooks.workers SET lease = '30 s' WHERE id = %s"
            self.connection.execute(lease, [worker])

    def retire(self, worker: UUID) -> None:
        free = worker in self.model.workers and not self.model.held_by(worker)
        assert workers.retire(self.connection, worker) is free
        if free:
            del self.model.workers[worker]

    def reclaim(self) -> None:
        taken = self.model.reclaim()
        assert deliveries.reclaim(self.connection) == len(taken)
        self.connection.execute(HOLD, [taken])

    def give_back(self, worker: UUID, asked: Collection[tuple[UUID, int]]) -> None:
        held = self.model.held_by(worker)
        assert deliveries.held_by(self.connection, worker) == held
        mine = set(asked) & held
        assert deliveries.give_back(self.connection, worker, asked) == len(mine)
        self.model.give_back(mine)

    def press(self, action: str, delivery_id: UUID) -> None:
        """What a person does to a delivery: done where it is allowed, refused elsewhere."""
        act: Callable[[], object] = {
            "cancel": lambda: deliveries.cancel(
                self.connection, delivery_id, None, actor="me", reason="why"
            ),
            "replay": lambda: deliveries.replay(self.connection, delivery_id, None, actor="me"),
            "retry now": lambda: deliveries.retry_now(
                self.connection, delivery_id, None, actor="me"
            ),
        }[action]
        if not self.model.allows(action, delivery_id):
            with pytest.raises(Refused):
                act()
            return
        act()
        self.model.press(action, delivery_id)

    def turn(self, endpoint_id: UUID, status: str) -> None:
        """Pause or resume an endpoint."""
        with self.app.app_context():
            endpoint = endpoints.find(None, endpoint_id)
            assert endpoint is not None
            (endpoints.pause if status == "paused" else endpoints.resume)(endpoint, actor="me")
        self.model.lanes[endpoint_id].status = status

    def compare(self) -> None:
        """Every row, every record, and what holds whatever happened."""
        rows = {row[0]: row[1:] for row in self.connection.execute(ROWS).fetchall()}
        records: dict[UUID, list[Any]] = {}
        for delivery_id, number, error in self.connection.execute(RECORDS).fetchall():
            records.setdefault(delivery_id, []).append((number, error))
        assert rows.keys() == self.model.deliveries.keys()
        for delivery_id, d in self.model.deliveries.items():
            assert rows[delivery_id] == (
                d.endpoint, d.status, d.attempts, d.tries, d.lost, d.worker, d.trigger, d.reason,
                d.given_back, d.status in LIVE, d.status == "scheduled",
            )  # fmt: skip
            assert records.get(delivery_id, []) == d.records
            _account(rows[delivery_id], records.get(delivery_id, []))
        flying = Counter(row[0] for row in rows.values() if row[1] == "in_flight")
        assert all(count <= self.model.lanes[lane].cap for lane, count in flying.items())

    def drain(self) -> None:
        """One healthy worker alone brings every row to its end."""
        for worker in self.model.workers:
            queue.expire(self.connection, worker)
        deliveries.reclaim(self.connection)
        self.connection.execute("UPDATE webhooks.lanes SET open_at = '-infinity'")
        self.connection.execute(FALL_DUE, [list(self.model.deliveries)])
        deliveries.promote(self.connection)
        worker = queue.register(self.connection)
        while claims := queue.claim(self.connection, worker):
            batch = [queue.delivered(c) for c in claims]
            assert len(deliveries.settle(self.connection, worker, batch, RULES)) == len(batch)
        assert queue.one(self.connection, "SELECT count(*) FROM webhooks.deliveries_queue") == 0


def _account(row: Any, records: list[Any]) -> None:
    """Attempts are unique and increasing, and each number that is missing was given back."""
    _, status, attempts, *_ = row
    flying = [attempts] if status == "in_flight" else []
    numbers = [number for number, _ in records]
    assert numbers == sorted(set(numbers))
    assert sorted(numbers + row[8] + flying) == list(range(1, attempts + 1))
