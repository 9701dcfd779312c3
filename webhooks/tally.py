"""Tally: what a worker counts of its attempts between two flushes. No I/O.

A crash loses what was not flushed, some seconds' worth; the attempts' own rows lose nothing.
A loss of its worker is on record as an attempt, but no worker's tally counts it.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from webhooks.attempt import Claim, Outcome
from webhooks.latency import BUCKETS, bucket

# Attempts are counted for the moment of their end, to so many seconds.
SLOT_S = 5
LONGEST_DETAIL = 500
# One endpoint that answers differently each time must not fill a table.
MOST_GROUPS = 5_000

_NUMBER = re.compile(r"\b[0-9a-f]{8,}\b|\d+", re.IGNORECASE)


class Key(NamedTuple):
    """What is counted together. ``slot``: the monotonic clock in units of SLOT_S."""

    slot: int
    shard: int
    tenant_id: UUID
    endpoint_id: UUID
    event_type: str


class GroupKey(NamedTuple):
    """Failures of one endpoint that are alike."""

    shard: int
    tenant_id: UUID
    endpoint_id: UUID
    fingerprint: bytes


@dataclass(slots=True)
class Counts:
    """Attempts and their durations; ``dead_lettered`` are among the failed."""

    delivered: int = 0
    failed: int = 0
    dead_lettered: int = 0
    durations: list[int] = field(default_factory=lambda: [0] * BUCKETS)


@dataclass(slots=True)
class Group:
    """Failures alike: how many, when the first and the last (monotonic), and the last's words."""

    error_class: str
    status_code: int | None
    detail: str
    first: float
    last: float
    delivery_id: UUID
    failures: int = 0
    dead_lettered: int = 0


@dataclass(frozen=True, slots=True)
class Sheet:
    """What was counted since the flush before."""

    counts: Mapping[Key, Counts]
    groups: Mapping[GroupKey, Group]


class Tally:
    """Counts recorded attempts; ``take`` empties it. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Key, Counts] = {}
        self._groups: dict[GroupKey, Group] = {}

    def add(self, settled: Iterable[tuple[Claim, Outcome, bool]]) -> None:
        """Claims with their outcomes, and whether that was the delivery's last try."""
        with self._lock:
            for claim, outcome, last in settled:
                self._count(claim, outcome, dead=last and not outcome.delivered)

    def take(self) -> Sheet:
        """What was counted; from now on it is counted anew."""
        with self._lock:
            sheet = Sheet(self._counts, self._groups)
            self._counts, self._groups = {}, {}
        return sheet

    def _count(self, claim: Claim, outcome: Outcome, *, dead: bool) -> None:
        slot = int(outcome.finished // SLOT_S)
        key = Key(slot, claim.shard, claim.tenant_id, claim.endpoint_id, claim.event_type)
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = Counts()
        if outcome.delivered:
            counts.delivered += 1
        else:
            counts.failed += 1
            counts.dead_lettered += dead
            self._group(claim, outcome, dead=dead)
        if outcome.timings.total_ms is not None:
            counts.durations[bucket(outcome.timings.total_ms)] += 1

    def _group(self, claim: Claim, outcome: Outcome, *, dead: bool) -> None:
        key = GroupKey(claim.shard, claim.tenant_id, claim.endpoint_id, fingerprint(outcome))
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= MOST_GROUPS:
                return
            group = self._groups[key] = Group(
                str(outcome.error), outcome.status_code, "", outcome.finished, outcome.finished,
                claim.delivery_id,
            )  # fmt: skip
        group.failures += 1
        group.dead_lettered += dead
        group.detail = outcome.detail[:LONGEST_DETAIL]
        group.last = max(group.last, outcome.finished)
        group.delivery_id = claim.delivery_id


def fingerprint(outcome: Outcome) -> bytes:
    """What alike failures have in common: class, code, and the text without its numbers."""
    alike = f"{outcome.error}\0{outcome.status_code}\0{_NUMBER.sub('#', outcome.detail)}"
    return hashlib.sha256(alike.encode("utf-8", "replace")).digest()[:16]


def now() -> float:
    """The clock of ``Outcome.finished``."""
    return time.monotonic()
