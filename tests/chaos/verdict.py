"""Was it right? Judged from the receivers' log, the producers' notes and the database."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

import psycopg

from tests.chaos.producers import Promises
from tests.chaos.receiver import Entry
from webhooks import ids

DELIVERIES = """
SELECT id, event_id, endpoint_id, status, reason, attempts, coalesce(given_back, '{}')
FROM webhooks.deliveries
"""
ATTEMPTS = """
SELECT delivery_id, number, outcome, error_class FROM webhooks.attempts
ORDER BY recorded_at, number
"""
REPLAYS = """
SELECT object, count(*) FROM webhooks.audit_log WHERE action = 'delivery.replayed' GROUP BY 1
"""

Pair = tuple[str, str]


@dataclass
class Row:
    """A delivery with its attempts, oldest first: number, outcome, error class."""

    id: UUID
    status: str
    reason: str | None
    attempts: int
    given_back: list[int]
    replays: int = 0
    records: list[tuple[int, str, str | None]] = field(default_factory=list)

    @property
    def numbers(self) -> list[int]:
        return [number for number, _, _ in self.records]

    def outcome(self, number: int) -> str | None:
        """What is on record of an attempt: delivered, an error class, given back, or None."""
        if number in self.given_back:
            return "given back"
        found = {n: error or outcome for n, outcome, error in self.records}
        return found.get(number)


def matches(pattern: str, event_type: str) -> bool:
    """As the README says: the type itself, a star, or a prefix of whole words and a star."""
    if pattern == "*" or pattern == event_type:
        return True
    return pattern.endswith(".*") and event_type.startswith(pattern[:-1])


class Verdict:
    """``endpoints``: pattern lists by name; ``names``: endpoint id to name."""

    def __init__(
        self,
        connection: psycopg.Connection,
        endpoints: dict[str, list[str]],
        names: dict[UUID, str],
        promises: Promises,
        log: Iterable[Entry],
    ) -> None:
        self.rows: dict[Pair, Row] = {}
        self._read(connection, names)
        self.log: dict[Pair, list[Entry]] = defaultdict(list)
        for entry in log:
            self.log[entry.event, entry.path].append(entry)
        stored = {event for event, _ in self.rows}
        self.events = promises.committed | {
            event: kind for event, kind in promises.unsure.items() if event in stored
        }
        self.undone = promises.undone
        self.wanted = {
            (event, name)
            for event, kind in self.events.items()
            for name, patterns in endpoints.items()
            if any(matches(pattern, kind) for pattern in patterns)
        }

    def _read(self, connection: psycopg.Connection, names: dict[UUID, str]) -> None:
        replays: dict[str, int] = dict(connection.execute(REPLAYS).fetchall())
        by_id: dict[UUID, Row] = {}
        for row_id, event, endpoint, *more in connection.execute(DELIVERIES).fetchall():
            row = by_id[row_id] = Row(row_id, *more)
            row.replays = replays.get(ids.encode(ids.DELIVERY, row_id), 0)
            self.rows[ids.encode(ids.EVENT, event), names[endpoint]] = row
        for row_id, *record in connection.execute(ATTEMPTS).fetchall():
            by_id[row_id].records.append(tuple(record))

    def nothing_is_lost(self) -> None:
        """Every committed event was answered 2xx by every endpoint that matches it."""
        arrived = {
            pair for pair, entries in self.log.items() if any(e.answer == 200 for e in entries)
        }
        assert self.wanted - arrived == set()
        assert self.rows.keys() == self.wanted
        assert {row.status for row in self.rows.values()} == {"delivered"}

    def nothing_is_invented(self) -> None:
        """No event that rolled back, none at an endpoint that it does not match."""
        assert {event for event, _ in self.log} & self.undone == set()
        assert self.log.keys() - self.wanted == set()

    def every_number_is_accounted_for(self) -> None:
        """Attempt numbers increase, and each that is missing was given back."""
        for row in self.rows.values():
            assert row.numbers == sorted(set(row.numbers)), row
            assert sorted(row.numbers + row.given_back) == list(range(1, row.attempts + 1)), row

    def states_follow_each_other(self) -> None:
        """Nothing comes after a delivered attempt unless somebody replayed it."""
        for row in self.rows.values():
            delivered = sum(1 for _, outcome, _ in row.records if outcome == "delivered")
            assert 1 <= delivered <= 1 + row.replays, row
            # A replay of what had been delivered already need not have ended before the next.
            assert row.records[-1][1] == "delivered", row

    def answers_are_on_record(self) -> Counter[str]:
        """What is on record of each 2xx that a receiver gave; counted."""
        seen: Counter[str] = Counter()
        for pair, entries in self.log.items():
            row = self.rows[pair]
            answered = [row.outcome(e.number) or "nothing" for e in entries if e.answer == 200]
            assert answered.count("delivered") >= sum(1 for r in row.records if r[1] == "delivered")
            seen.update(answered)
        return seen

    def repeats(self) -> int:
        """2xx answers beyond one for each delivery and each replay of it."""
        return sum(
            max(0, sum(1 for e in entries if e.answer == 200) - 1 - self.rows[pair].replays)
            for pair, entries in self.log.items()
        )
