"""A settle whose COMMIT was done and whose answer never came: nothing is recorded twice."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest

from tests.dispatching import dispatching, make_target
from tests.queue import emit, one, statuses
from tests.recorder import Recorder
from tests.relay import Relay
from tests.stack import eventually
from webhooks import deliveries
from webhooks.settings import Settings

ATTEMPTS = "SELECT number, status_code FROM webhooks.attempts ORDER BY recorded_at"
CLAIMED_AGAIN = "SELECT status = 'in_flight' AND attempts = 2 FROM webhooks.deliveries"


@pytest.mark.parametrize("first", [500, 200], ids=["tried again", "replayed"])
def test_an_outcome_whose_commit_got_no_answer_counts_once(
    connection: psycopg.Connection, database_url: str, settings: Settings, first: int
) -> None:
    """Claimed again before that is known, the delivery is sent again: the outcome in hand is not
    taken for another attempt.
    """
    with (
        Relay(database_url, "settler") as relay,
        Recorder(lambda nth, request: first if nth == 1 else 200) as receiver,
    ):
        make_target(connection, receiver.url)
        with dispatching(replace(settings, database_url=relay.url)):
            emit(connection)
            assert relay.lost.wait(20)
            if first == 200:
                delivery_id = one(connection, "SELECT id FROM webhooks.deliveries")
                deliveries.replay(connection, delivery_id, None, actor="ana")
            eventually(lambda: one(connection, CLAIMED_AGAIN))
            assert len(receiver.requests) == 1

            relay.cut()

            eventually(lambda: statuses(connection) == {"delivered": 1})
        assert connection.execute(ATTEMPTS).fetchall() == [(1, first), (2, 200)]
        sent = [request.headers["webhook-attempt"] for request in receiver.requests]
        assert sent == ["1", "2"]
