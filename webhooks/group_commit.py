"""Group commit: what concurrent requests emit becomes durable in one transaction.

Whoever comes while nothing is being stored stores at once, in its own thread. Who comes
meanwhile waits, and then the first of them stores for all. So nobody waits for longer than
the group before takes, and a transaction is shared by as many as there are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import psycopg

from webhooks import events
from webhooks.db import TRANSIENT
from webhooks.events import Accepted, Conflict, NewEvent
from webhooks.web_database import psycopg_connection

MOST_EVENTS = 100
MOST_BYTES = 4 * 1024 * 1024

Verdict = Accepted | Conflict


def store_together(group: Sequence[NewEvent]) -> Sequence[Verdict]:
    """All of a group on a connection of the app's pool, or none; tried once."""
    with psycopg_connection() as connection:
        return events.emit_group(connection, group)


def store_alone(event: NewEvent) -> Accepted:
    """One event on a connection of the app's pool, with waits and tries of its own."""
    with psycopg_connection() as connection:
        return events.emit(
            connection, event.tenant_id, event.type, event.payload, event.idempotency_key
        )


class _Ticket:
    """One event's place in the queue. ``done``: a group with it was tried."""

    __slots__ = ("_called", "done", "error", "event", "verdict")

    def __init__(self, event: NewEvent) -> None:
        self.event = event
        self.done = False
        self.verdict: Accepted | None = None
        self.error: BaseException | None = None
        self._called = threading.Lock()  # cheaper than an Event
        self._called.acquire()

    def wait(self) -> None:
        """Until it has been tried, or it is its turn to store."""
        self._called.acquire()

    def call(self) -> None:
        self._called.release()


class GroupCommit:
    """Stores the events of many threads together.

    ``together`` stores a group, all or none, one answer each, and is tried once. If one of
    them fails it, each is stored by ``alone`` in its own thread: a used key or a bad event
    is nobody else's trouble. Where it is not known what was stored, all get the error.
    """

    def __init__(
        self,
        together: Callable[[Sequence[NewEvent]], Sequence[Verdict]] = store_together,
        alone: Callable[[NewEvent], Accepted] = store_alone,
    ) -> None:
        self._together = together
        self._alone = alone
        self._lock = threading.Lock()
        self._waiting: list[_Ticket] = []
        self._storing = False

    def store(self, event: NewEvent) -> Accepted:
        """Answer once the event is durable; raises what events.emit raises."""
        ticket = _Ticket(event)
        with self._lock:
            leads, self._storing = not self._storing, True
            self._waiting.append(ticket)
        if not leads:
            ticket.wait()
        if not ticket.done:
            self._lead(ticket)
        if ticket.error is not None:
            raise ticket.error
        return ticket.verdict or self._alone(event)

    def _lead(self, leader: _Ticket) -> None:
        with self._lock:
            group = self._take()
        try:
            self._try(group)
        finally:
            self._pass_on()
            for ticket in group:
                ticket.done = True
                if ticket is not leader:
                    ticket.call()

    def _take(self) -> list[_Ticket]:
        """The next group, the leader first; one event at least, however large."""
        count, size = 0, 0
        for ticket in self._waiting[:MOST_EVENTS]:
            size += len(ticket.event.payload)
            if count and size > MOST_BYTES:
                break
            count += 1
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group

    def _try(self, group: list[_Ticket]) -> None:
        try:
            verdicts = self._together([ticket.event for ticket in group])
        except BaseException as error:
            if not _stored_nothing(error):
                for ticket in group:
                    ticket.error = error
            return
        for ticket, verdict in zip(group, verdicts, strict=True):
            if isinstance(verdict, Conflict):
                ticket.error = verdict
            else:
                ticket.verdict = verdict

    def _pass_on(self) -> None:
        """Let the first of those who came meanwhile store, or nobody."""
        with self._lock:
            self._storing = bool(self._waiting)
            if self._waiting:
                self._waiting[0].call()


def _stored_nothing(error: BaseException) -> bool:
    """Whether the server itself refused the transaction; a lost connection leaves it open."""
    if isinstance(error, TRANSIENT):
        return True
    return isinstance(error, psycopg.Error) and not isinstance(error, psycopg.OperationalError)
