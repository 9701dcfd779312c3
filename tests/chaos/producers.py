"""Producers that emit through the storm, and know what they were promised."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from uuid import UUID

import psycopg
import requests

from tests.stack import Stack
from webhooks import ids

TYPES = ("order.paid", "order.sent", "user.created", "user.deleted.hard", "audit")
PAUSE_S = 0.04


@dataclass
class Promises:
    """Event ids by type: committed for certain, rolled back for certain, or either."""

    committed: dict[str, str] = field(default_factory=dict)
    undone: set[str] = field(default_factory=set)
    unsure: dict[str, str] = field(default_factory=dict)


class Producers:
    """One that uses the API with idempotency keys, one that uses SQL in transactions."""

    def __init__(self, stack: Stack, seed: int) -> None:
        self.promises = Promises()
        self.errors: list[str] = []
        self._stack = stack
        self._seed = seed
        self._stop = threading.Event()
        runs = (self._by_api, self._by_sql)
        self._threads = [threading.Thread(target=run) for run in runs]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """After the last emit has its answer."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a producer hangs"

    def _by_api(self) -> None:
        dice = random.Random(self._seed)
        number = 0
        while not self._stop.wait(PAUSE_S):
            number += 1
            event_type = dice.choice(TYPES)
            self._post(event_type, f"{self._seed}-{number}")

    def _post(self, event_type: str, key: str) -> None:
        """Asked again with the same key until it is answered: then it is there once."""
        body = {"type": event_type, "payload": {"key": key}, "idempotency_key": key}
        deadline = time.monotonic() + 45
        while time.monotonic() < deadline:
            try:
                answer = self._stack.post("/events", body)
            except requests.RequestException:
                time.sleep(0.2)
                continue
            if answer.status_code in (200, 202):
                self.promises.committed[answer.json()["id"]] = event_type
                return
            if answer.status_code != 503:
                self.errors.append(f"{answer.status_code} {answer.text}")
                return
            time.sleep(0.2)
        self.errors.append(f"{key}: no answer in 45 s")

    def _by_sql(self) -> None:
        dice = random.Random(self._seed + 1)
        while not self._stop.is_set():
            try:
                with self._stack.connect() as connection:
                    while not self._stop.wait(PAUSE_S):
                        self._transaction(connection, dice)
            except psycopg.OperationalError:
                self._stop.wait(0.3)

    def _transaction(self, connection: psycopg.Connection, dice: random.Random) -> None:
        end = dice.choice(["COMMIT", "COMMIT", "ROLLBACK"])
        made: dict[str, str] = {}
        connection.execute("BEGIN")
        try:
            for _ in range(dice.randint(1, 6)):
                event_type = dice.choice(TYPES)
                made[_emit(connection, event_type)] = event_type
            time.sleep(dice.choice([0, 0, 0.3]))
        except psycopg.OperationalError:
            self.promises.undone.update(made)
            raise
        try:
            connection.execute(end.encode())
        except psycopg.OperationalError:
            # The server may have committed before the connection broke.
            if end == "COMMIT":
                self.promises.unsure.update(made)
            else:
                self.promises.undone.update(made)
            raise
        if end == "COMMIT":
            self.promises.committed.update(made)
        else:
            self.promises.undone.update(made)


def _emit(connection: psycopg.Connection, event_type: str) -> str:
    row = connection.execute(
        "SELECT webhooks.emit('default', %s, '{\"by\": \"sql\"}')", [event_type]
    ).fetchone()
    assert row is not None
    return ids.encode(ids.EVENT, UUID(str(row[0])))
