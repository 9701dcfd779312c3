"""Group commit: who stores, who waits, and what each gets when something fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from uuid import UUID

import psycopg
import pytest
from psycopg import errors

from webhooks import group_commit
from webhooks.events import Accepted, Conflict, NewEvent
from webhooks.group_commit import GroupCommit, Verdict

TENANT = UUID(int=1)


def event(number: int, size: int = 1) -> NewEvent:
    return NewEvent(TENANT, "a", b"x" * size, str(number))


def accepted(event: NewEvent) -> Accepted:
    """The answer for an event, told from every other."""
    return Accepted(UUID(int=int(event.idempotency_key or "0")), 1, False)


class Database:
    """Stores groups while ``open``; holds the first that comes until it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.entered = threading.Event()
        self.groups: list[list[int]] = []
        self.single: list[int] = []
        self.fail: Callable[[Sequence[NewEvent]], Exception | None] = lambda group: None

    def together(self, group: Sequence[NewEvent]) -> list[Verdict]:
        self.entered.set()
        assert self.open.wait(10)
        self.groups.append([int(e.idempotency_key or "0") for e in group])
        if error := self.fail(group):
            raise error
        return [accepted(e) for e in group]

    def alone(self, event: NewEvent) -> Accepted:
        self.single.append(int(event.idempotency_key or "0"))
        return accepted(event)


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
def commit(database: Database) -> GroupCommit:
    return GroupCommit(database.together, database.alone)


@contextmanager
def crowd(
    commit: GroupCommit, database: Database, sent: Sequence[NewEvent]
) -> Iterator[list[Future[Accepted]]]:
    """Threads that come, in this order, while the first is held in the database."""
    with ThreadPoolExecutor(len(sent)) as pool:
        futures = [pool.submit(commit.store, sent[0])]
        assert database.entered.wait(10)
        for number, one in enumerate(sent[1:], 1):
            futures.append(pool.submit(commit.store, one))
            for _ in range(2_000):
                if len(commit._waiting) == number:
                    break
                threading.Event().wait(0.001)
        database.open.set()
        yield futures


def test_a_single_one_is_stored_at_once(commit: GroupCommit, database: Database) -> None:
    """In its own thread, without a wait for others, again and again."""
    database.open.set()

    for number in range(3):
        assert commit.store(event(number)) == accepted(event(number))

    assert database.groups == [[0], [1], [2]]
    assert database.single == []


def test_those_who_come_meanwhile_are_stored_together(
    commit: GroupCommit, database: Database
) -> None:
    """One group of all that waited, in their order; each gets its own answer."""
    sent = [event(number) for number in range(8)]

    with crowd(commit, database, sent) as futures:
        answers = [future.result(10) for future in futures]

    assert answers == [accepted(e) for e in sent]
    assert database.groups == [[0], [1, 2, 3, 4, 5, 6, 7]]
    assert commit.store(event(9)) == accepted(event(9))


def test_a_group_is_bounded(
    commit: GroupCommit, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In events and in bytes; a larger one goes alone; those left over are the next group."""
    monkeypatch.setattr(group_commit, "MOST_EVENTS", 3)
    monkeypatch.setattr(group_commit, "MOST_BYTES", 10)
    sizes = [1, 1, 1, 1, 9, 2, 99, 1]

    sent = [event(number, size) for number, size in enumerate(sizes)]
    with crowd(commit, database, sent) as futures:
        assert [future.result(10) for future in futures] == [accepted(e) for e in sent]

    assert database.groups == [[0], [1, 2, 3], [4], [5], [6], [7]]


@pytest.mark.parametrize(
    "refused", [errors.LockNotAvailable(), errors.DeadlockDetected(), errors.DataError()]
)
def test_a_bad_one_does_not_fail_its_neighbours(
    commit: GroupCommit, database: Database, refused: psycopg.Error
) -> None:
    """The server refused the group, so nothing is stored: each goes again alone."""
    database.fail = lambda group: refused if len(group) > 1 else None
    sent = [event(number) for number in range(5)]

    with crowd(commit, database, sent) as futures:
        assert [future.result(10) for future in futures] == [accepted(e) for e in sent]

    assert sorted(database.single) == [1, 2, 3, 4]


def test_the_bad_one_gets_its_error(commit: GroupCommit, database: Database) -> None:
    """What it raises alone is raised to it, and to nobody else."""
    database.fail = lambda group: errors.DataError()

    def alone(event: NewEvent) -> Accepted:
        if event.idempotency_key == "2":
            raise errors.DataError("bad")
        return accepted(event)

    commit._alone = alone
    with crowd(commit, database, [event(number) for number in range(4)]) as futures:
        outcomes = [future.exception(10) for future in futures]

    assert [type(outcome) for outcome in outcomes] == [
        type(None), type(None), errors.DataError, type(None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "lost", [psycopg.OperationalError("gone"), errors.AdminShutdown(), RuntimeError("bug")]
)
def test_a_lost_connection_is_told_to_all_and_not_repeated(
    commit: GroupCommit, database: Database, lost: Exception
) -> None:
    """Nobody knows whether it was stored: a second try could store it twice."""
    database.fail = lambda group: lost if len(group) > 1 else None

    with crowd(commit, database, [event(number) for number in range(4)]) as futures:
        outcomes = [future.exception(10) for future in futures]

    assert [type(outcome) for outcome in outcomes] == [type(None), *[type(lost)] * 3]
    assert database.single == []
    assert commit.store(event(5)) == accepted(event(5))


def test_a_conflict_is_one_events_own(database: Database) -> None:
    """The others of its group are stored."""

    def together(group: Sequence[NewEvent]) -> list[Verdict]:
        verdicts = database.together(group)
        return [
            Conflict("used") if e.idempotency_key == "2" else verdict
            for e, verdict in zip(group, verdicts, strict=True)
        ]

    commit = GroupCommit(together, database.alone)
    with crowd(commit, database, [event(number) for number in range(4)]) as futures:
        outcomes = [future.exception(10) for future in futures]

    assert [type(outcome) for outcome in outcomes] == [
        type(None), type(None), Conflict, type(None),
    ]  # fmt: skip


def test_many_threads_for_a_while(commit: GroupCommit, database: Database) -> None:
    """Each of 2,000 events is stored once and answered as itself; no thread is left waiting."""
    database.open.set()

    with ThreadPoolExecutor(16) as pool:
        sent = [event(number) for number in range(2_000)]
        answers = list(pool.map(commit.store, sent, timeout=60))

    assert answers == [accepted(e) for e in sent]
    assert sorted(number for group in database.groups for number in group) == list(range(2_000))
    assert commit._waiting == []
