"""The queue in plain Python: what each operation should do, without a line of the product's."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

LIVE = ("pending", "in_flight", "scheduled")
MOST_LOST = 3


@dataclass
class Delivery:
    """One delivery as the database should have it.

    ``records`` are its attempts: number and error class (None: delivered).
    """

    endpoint: UUID
    status: str = "pending"
    attempts: int = 0
    tries: int = 0
    lost: int = 0
    worker: UUID | None = None
    trigger: str = "schedule"
    reason: str | None = None
    due: bool = False
    given_back: list[int] = field(default_factory=list)
    records: list[tuple[int, str | None]] = field(default_factory=list)


@dataclass
class Lane:
    """One endpoint; nothing of it is claimed unless its ``status`` is active."""

    cap: int
    status: str = "active"


@dataclass
class Model:
    """All deliveries by id, lanes by endpoint, and the workers that have a row: id to expired."""

    deliveries: dict[UUID, Delivery] = field(default_factory=dict)
    lanes: dict[UUID, Lane] = field(default_factory=dict)
    workers: dict[UUID, bool] = field(default_factory=dict)

    def of(self, *statuses: str) -> list[UUID]:
        return sorted(i for i, d in self.deliveries.items() if d.status in statuses)

    def held_by(self, worker: UUID) -> set[tuple[UUID, int]]:
        return {(i, d.attempts) for i, d in self.deliveries.items() if d.worker == worker}

    def claimable(self, room: int) -> list[UUID]:
        """What a claim takes: of each open lane its oldest, up to its cap and its share."""
        waiting: dict[UUID, list[UUID]] = {}
        for delivery_id in self.of("pending"):
            endpoint = self.deliveries[delivery_id].endpoint
            if self.lanes[endpoint].status == "active":
                waiting.setdefault(endpoint, []).append(delivery_id)
        share = max(1, room // max(1, len(waiting)))
        return [i for lane, ids in waiting.items() for i in ids[: min(share, self._free(lane))]]

    def _free(self, endpoint: UUID) -> int:
        flying = sum(1 for i in self.of("in_flight") if self.deliveries[i].endpoint == endpoint)
        return self.lanes[endpoint].cap - flying

    def claim(self, worker: UUID, taken: list[UUID]) -> None:
        for delivery_id in taken:
            delivery = self.deliveries[delivery_id]
            delivery.status, delivery.worker = "in_flight", worker
            delivery.attempts += 1

    def holds(self, worker: UUID, delivery_id: UUID, number: int) -> bool:
        """The fence: the worker has its row, and the claim is still the newest."""
        return worker in self.workers and (delivery_id, number) in self.held_by(worker)

    def settle(self, delivery_id: UUID, error: str | None, reason: str | None, wait: str) -> None:
        """``wait``: none (it is final), now or later."""
        delivery = self.deliveries[delivery_id]
        delivery.records.append((delivery.attempts, error))
        delivery.tries += 1
        delivery.worker, delivery.reason = None, reason
        if wait == "none":
            delivery.status = "delivered" if error is None else "dead_lettered"
        else:
            delivery.status, delivery.due = "scheduled", wait == "now"
            delivery.lost, delivery.trigger = 0, "schedule"

    def give_back(self, claims: set[tuple[UUID, int]]) -> None:
        for delivery_id, number in claims:
            delivery = self.deliveries[delivery_id]
            delivery.status, delivery.worker = "pending", None
            delivery.given_back.append(number)

    def lose(self, delivery_id: UUID) -> None:
        """Its worker is dead: recorded and charged; the third time it is given up."""
        delivery = self.deliveries[delivery_id]
        delivery.records.append((delivery.attempts, "worker_lost"))
        delivery.tries += 1
        delivery.lost += 1
        delivery.worker = None
        if delivery.lost >= MOST_LOST:
            delivery.status, delivery.reason = "dead_lettered", "lost its worker 3 times"
            return
        delivery.status = "pending" if delivery.lost == 1 else "scheduled"
        delivery.trigger, delivery.due = "schedule", False

    def reclaim(self) -> list[UUID]:
        """What expired workers, and workers without a row, held; their rows go."""
        self.workers = {worker: False for worker, expired in self.workers.items() if not expired}
        taken = [i for i in self.of("in_flight") if self.deliveries[i].worker not in self.workers]
        for delivery_id in taken:
            self.lose(delivery_id)
        return taken

    def promote(self) -> list[UUID]:
        due = [i for i in self.of("scheduled") if self.deliveries[i].due]
        for delivery_id in due:
            self.deliveries[delivery_id].status = "pending"
        return due

    def allows(self, action: str, delivery_id: UUID) -> bool:
        """Whether a person may cancel, replay or retry a delivery now."""
        delivery = self.deliveries[delivery_id]
        if action == "cancel":
            return delivery.status in ("pending", "scheduled")
        fitting = (
            delivery.status not in LIVE if action == "replay" else (delivery.status == "scheduled")
        )
        return fitting and self.lanes[delivery.endpoint].status != "disabled"

    def press(self, action: str, delivery_id: UUID) -> None:
        delivery = self.deliveries[delivery_id]
        if action == "cancel":
            delivery.status, delivery.reason = "cancelled", "why"
            return
        delivery.status, delivery.trigger = "pending", "manual"
        if action == "replay":
            delivery.reason = None
            delivery.tries = delivery.lost = 0
