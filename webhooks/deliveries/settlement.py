"""Settle: write what attempts led to. Fenced, batched, all or nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import psycopg
from msgspec.structs import replace
from psycopg import errors

from webhooks.attempt import ErrorClass, Outcome, Status
from webhooks.db import INDEXES_ONLY, retry_tx, transaction
from webhooks.deliveries.health import show_closed, write_lanes
from webhooks.deliveries.record import Settlement, array, record, storable
from webhooks.lanes import DEFAULT_RULES, Rules
from webhooks.partitions import make_partitions
from webhooks.workers import fence

T = TypeVar("T")

UNSTORABLE = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.InternalError,
    psycopg.NotSupportedError,
    psycopg.ProgrammingError,
    ValueError,
)

log = logging.getLogger(__name__)

# In id order: unsorted batches deadlock one another. The states are told by worker_id and
# due_at here and below (the table's CHECKs make them equal): with "status = …" the planner
# could read the whole partial index of that state instead of looking the ids up. Nor are the
# ids joined: with statistics of a drained queue a join reads all of it, or compares all pairs.
HOLD = """
SELECT id, attempts, clock_timestamp() FROM webhooks.deliveries_queue
WHERE id = ANY (%(ids)s::uuid[]) AND worker_id = %(worker)s
ORDER BY id
FOR UPDATE
"""

# By a settle before, whose commit's answer was lost. Its worker's loss is no outcome.
RECORDED = """
SELECT delivery_id FROM webhooks.attempts
WHERE delivery_id = ANY (%(ids)s::uuid[]) AND worker_id = %(worker)s
  AND number = (%(attempts)s::int[])[array_position(%(ids)s::uuid[], delivery_id)]
  AND recorded_at BETWEEN now() - interval '1 day' AND now()
  AND error_class IS DISTINCT FROM 'worker_lost'
"""

SCHEDULE = """
UPDATE webhooks.deliveries_queue
SET status = 'scheduled', due_at = clock_timestamp() + make_interval(
        secs => (%(delays)s::float8[])[array_position(%(ids)s::uuid[], id)]),
    worker_id = NULL, tries = tries + 1, trigger = 'schedule', lost = 0,
    status_code = %(code)s, error_class = %(error)s
WHERE id = ANY (%(ids)s::uuid[])
"""

# Through the parent: the new finished_at moves the row to its day's partition.
FINISH = """
UPDATE webhooks.deliveries
SET status = %(status)s, reason = %(reason)s, finished_at = now(), worker_id = NULL,
    tries = tries + 1, status_code = %(code)s, error_class = %(error)s
WHERE finished_at = 'infinity' AND id = ANY (%(ids)s::uuid[])
"""


class Change(NamedTuple):
    """What a settlement writes to its delivery, beside the due time."""

    status: Status
    reason: str | None
    status_code: int | None
    error_class: str | None


def settle(
    connection: psycopg.Connection,
    worker_id: UUID,
    settlements: Sequence[Settlement],
    rules: Rules = DEFAULT_RULES,
) -> set[UUID]:
    """Record a batch; answers the deliveries whose outcome is recorded, now or before.

    The others were reclaimed or taken back meanwhile, and nothing of them changes. A
    row that cannot be stored is settled alone with a plain error, and the rest of the
    batch goes on. Raises psycopg.OperationalError when the connection is lost: it is not
    known then what was recorded, and the same batch is settled again.
    """
    try:
        held, closed = with_partitions(
            connection, lambda: _write(connection, worker_id, settlements, rules)
        )
    except UNSTORABLE as error:
        if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is not None:
            raise  # a column or a right is missing: no delivery's fault, and none may pay for it
        return _split(connection, worker_id, settlements, rules, error)
    if closed:
        try:
            show_closed(connection)
        except psycopg.Error as error:  # the batch is committed; the keeper shows it soon
            log.warning("a closed lane is not shown yet: %s", error)
    others = [s for s in settlements if s.claim.delivery_id not in held]
    return held | _recorded(connection, worker_id, others) if others else held


def with_partitions(connection: psycopg.Connection, work: Callable[[], T]) -> T:
    """Run a transaction; if a day's partition is missing, make it and run it again."""
    try:
        return retry_tx(work)
    except errors.CheckViolation:
        make_partitions(connection)
        return retry_tx(work)


def _split(
    connection: psycopg.Connection,
    worker_id: UUID,
    settlements: Sequence[Settlement],
    rules: Rules,
    error: Exception,
) -> set[UUID]:
    if len(settlements) > 1:
        half = len(settlements) // 2
        first = settle(connection, worker_id, settlements[:half], rules)
        return first | settle(connection, worker_id, settlements[half:], rules)
    (poison,) = settlements
    plain = _plain(poison.outcome, error)
    if plain == poison.outcome:
        return _bury(connection, worker_id, poison)
    log.error("delivery %s: its outcome cannot be stored: %s", poison.claim.delivery_id, error)
    return settle(connection, worker_id, [replace(poison, outcome=plain)], rules)


def _bury(connection: psycopg.Connection, worker_id: UUID, poison: Settlement) -> set[UUID]:
    """Move a delivery that cannot even be recorded as its verdict says: it counts as a try."""
    log.error("delivery %s: settled without a record", poison.claim.delivery_id)
    status = _status(poison)
    reason = None if status is Status.SCHEDULED else "its outcome cannot be recorded"
    change = Change(status, reason, None, None if poison.outcome.delivered else "internal")

    def work() -> set[UUID]:
        with transaction(connection, *INDEXES_ONLY):
            if not fence(connection, worker_id):
                return set()
            mine, _ = _hold(connection, worker_id, [poison])
            if mine:
                _write_change(connection, change, mine)
            return {s.claim.delivery_id for s in mine}

    return with_partitions(connection, work)


def _plain(outcome: Outcome, error: Exception) -> Outcome:
    """The same verdict without anything that came from the receiver."""
    return Outcome(
        outcome.error,
        detail=f"what came back could not be stored: {type(error).__name__}",
        status_code=outcome.status_code,
        retry_after_s=outcome.retry_after_s,
        started=outcome.started,
        finished=outcome.finished,
    )


def _write(
    connection: psycopg.Connection,
    worker_id: UUID,
    settlements: Sequence[Settlement],
    rules: Rules,
) -> tuple[set[UUID], bool]:
    with transaction(connection, *INDEXES_ONLY):
        if not fence(connection, worker_id):
            return set(), False
        mine, now = _hold(connection, worker_id, settlements)
        held = {s.claim.delivery_id for s in mine}
        if not mine:
            return held, False
        for change in _changes(mine).items():
            _write_change(connection, *change)
        record(connection, worker_id, mine, database_now=now)
        return held, write_lanes(connection, mine, rules)


def _recorded(
    connection: psycopg.Connection, worker_id: UUID, settlements: Sequence[Settlement]
) -> set[UUID]:
    """Those that a settle before has recorded, as the same attempts of this worker."""
    values = {
        "worker": worker_id,
        "ids": array(s.claim.delivery_id for s in settlements),
        "attempts": array(s.claim.attempt for s in settlements),
    }

    def work() -> set[UUID]:
        with transaction(connection, *INDEXES_ONLY):
            return {row[0] for row in connection.execute(RECORDED, values, binary=True)}

    return retry_tx(work)


def _hold(
    connection: psycopg.Connection, worker_id: UUID, settlements: Sequence[Settlement]
) -> tuple[list[Settlement], datetime]:
    """Lock what is still this worker's; answers it, and the database's time."""
    claimed = {"ids": array(s.claim.delivery_id for s in settlements), "worker": worker_id}
    rows = connection.execute(HOLD, claimed, binary=True).fetchall()
    # Of a row that was waited for, this is the newest version: the number is the fence.
    numbers = {delivery_id: attempt for delivery_id, attempt, _ in rows}
    mine = [s for s in settlements if numbers.get(s.claim.delivery_id) == s.claim.attempt]
    return mine, rows[0][2] if rows else datetime.now(UTC)


def _changes(mine: Sequence[Settlement]) -> dict[Change, list[Settlement]]:
    """Settlements by what they write: most batches are a single statement."""
    changes: dict[Change, list[Settlement]] = {}
    for settlement in mine:
        outcome = settlement.outcome
        change = Change(
            _status(settlement),
            _reason(settlement),
            outcome.status_code,
            outcome.error and outcome.error.value,
        )
        changes.setdefault(change, []).append(settlement)
    return changes


def _status(settlement: Settlement) -> Status:
    if settlement.delay is not None:
        return Status.SCHEDULED
    return Status.DELIVERED if settlement.outcome.delivered else Status.DEAD_LETTERED


def _write_change(
    connection: psycopg.Connection, change: Change, settlements: Sequence[Settlement]
) -> None:
    values: dict[str, Any] = {
        "status": change.status.value,
        "reason": change.reason,
        "code": change.status_code,
        "error": change.error_class,
        "ids": array(s.claim.delivery_id for s in settlements),
    }
    if change.status is Status.SCHEDULED:
        values["delays"] = array(
            s.delay.total_seconds() for s in settlements if s.delay is not None
        )
        connection.execute(SCHEDULE, values)
    else:
        connection.execute(FINISH, values)


def _reason(settlement: Settlement) -> str | None:
    outcome = settlement.outcome
    if outcome.delivered or settlement.delay is not None:
        return None
    why = f"HTTP {outcome.status_code}" if outcome.status_code else str(outcome.error)
    if outcome.error is ErrorClass.INTERNAL:
        return storable(outcome.detail)
    if not outcome.retryable:
        return f"{why}: not retryable"
    return f"{why} after {settlement.claim.tries + 1} tries"
