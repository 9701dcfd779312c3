"""Bulk replay: what goes back into the queue, how fast, and when it stops by itself."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from flask import Flask

from tests.api import Api
from tests.dispatching import dispatching, make_target
from tests.queue import claim, delivered, emit, make_endpoint, one, outcome, register, statuses
from tests.recorder import Recorder
from tests.stack import eventually
from webhooks import deliveries, ids
from webhooks.attempt import ErrorClass
from webhooks.db import connect
from webhooks.deliveries import NO_CURSOR, Settlement, bulk, settlement
from webhooks.settings import Settings


@pytest.fixture
def api(app: Flask) -> Api:
    return Api(app)


def kill(connection: psycopg.Connection, count: int, endpoint_id: UUID | None = None) -> None:
    """So many dead letters."""
    if endpoint_id is None:
        make_endpoint(connection, cap=1000)
    emit(connection, count)
    die(connection)


def die(connection: psycopg.Connection, error: ErrorClass = ErrorClass.HTTP_5XX) -> None:
    worker_id = register(connection)
    while held := claim(connection, worker_id):
        failed = outcome(error, 503 if error is ErrorClass.HTTP_5XX else None)
        settlement.settle(connection, worker_id, [Settlement(each, failed, None) for each in held])
        connection.execute("UPDATE webhooks.lanes SET open_at = '-infinity', broken_s = 0, "
                           "throttle_until = '-infinity'")  # fmt: skip


def made(api: Api, **fields: Any) -> Any:
    answer = api.post("/replays", {"canary": False, **fields})
    assert answer.status_code == 201, answer.json
    return answer.json


def read(api: Api, replay: Any) -> Any:
    return api.get(f"/replays/{replay['id']}").json


def run(connection: psycopg.Connection, rounds: int = 100) -> int:
    """Advance until nothing more is to be done at once."""
    total = 0
    for _ in range(rounds):
        moved = bulk.advance(connection)
        total += moved
        connection.execute("UPDATE webhooks.replays SET next_at = '-infinity'")
        if not moved and not one(connection, "SELECT count(*) FROM webhooks.replays "
                                 "WHERE state = 'running'"):  # fmt: skip
            break
    return total


def test_a_replay_sends_the_same_events_again(api: Api, connection: psycopg.Connection) -> None:
    """Each dead letter once: pending, with all tries anew, behind what is live, and on record."""
    kill(connection, 1_200)
    before = connection.execute(
        "SELECT id, event_id FROM webhooks.deliveries ORDER BY id"
    ).fetchall()
    replay = made(api)

    assert run(connection) == 1_200

    after = read(api, replay)
    assert (after["state"], after["replayed"], after["skipped"]) == ("finished", 1_200, {})
    assert after["ended_at"] is not None
    rows = connection.execute(
        "SELECT id, event_id FROM webhooks.deliveries_queue WHERE status = 'pending' "
        "AND priority = 1 AND trigger = 'bulk' AND tries = 0 ORDER BY id"
    ).fetchall()
    assert rows == before
    actions = connection.execute(
        "SELECT action FROM webhooks.audit_log WHERE object = %s ORDER BY id", [replay["id"]]
    ).fetchall()
    assert actions == [("replay.create",), ("replay.finished",)]


def test_what_dies_again_is_not_taken_twice(api: Api, connection: psycopg.Connection) -> None:
    """It finished after the replay was made."""
    kill(connection, 10)
    replay = made(api, per_second=5)
    bulk.advance(connection)
    die(connection)
    run(connection)
    die(connection)
    run(connection)

    assert read(api, replay)["replayed"] == 10
    assert one(connection, "SELECT max(attempts) FROM webhooks.deliveries") == 2


def test_a_filter_takes_only_what_fits(api: Api, connection: psycopg.Connection) -> None:
    """By state, endpoint, type, class, code and time; the dry run says the same beforehand."""
    first, second = (make_endpoint(connection, cap=1000) for _ in range(2))
    connection.execute("SELECT webhooks.emit('default', 'a.b', '{}') FROM generate_series(1, 3)")
    die(connection)
    connection.execute("SELECT webhooks.emit('default', 'a.c', '{}')")
    die(connection, ErrorClass.TIMEOUT)
    worker_id = register(connection)
    emit(connection)
    held = claim(connection, worker_id)
    settlement.settle(connection, worker_id, [delivered(each) for each in held])
    ep = ids.encode(ids.ENDPOINT, first)

    for fields, count in (
        ({}, 8), ({"endpoint": ep}, 4), ({"event_type": "a.c"}, 2), ({"error_class": "timeout"}, 2),
        ({"status_code": "503"}, 6), ({"status_code": "5xx", "endpoint": ep}, 3),
        ({"status_code": "404"}, 0), ({"status": "delivered"}, 2),
        ({"to": "2020-01-01T00:00:00Z"}, 0), ({"from": "2020-01-01T00:00:00Z"}, 8),
    ):  # fmt: skip
        found = api.post("/replays/dry-run", fields).json
        assert (found["matching"], found["replayed"], found["complete"]) == (count, count, True)
        assert len(found["sample"]) == min(count, 10)
        replay = made(api, start=False, **fields)
        assert replay["state"] == "planned"
        assert bulk.advance(connection) == 0
    api.post(f"/replays/{replay['id']}/cancel")
    taken = made(api, endpoint=ids.encode(ids.ENDPOINT, second), event_type="a.b")
    run(connection)
    assert read(api, taken)["replayed"] == 3


def test_what_cannot_be_sent_is_skipped_and_counted(
    api: Api, connection: psycopg.Connection
) -> None:
    """With its reason, in the dry run and in the replay (W159)."""
    good = make_endpoint(connection, cap=1000)
    paused, disabled, deleted = (make_endpoint(connection) for _ in range(3))
    emit(connection, 2)
    die(connection)
    for endpoint_id, status in ((paused, "paused"), (disabled, "disabled")):
        connection.execute("UPDATE webhooks.endpoints SET status = %s WHERE id = %s",
                           [status, endpoint_id])  # fmt: skip
    connection.execute("UPDATE webhooks.endpoints SET deleted_at = now() WHERE id = %s", [deleted])
    gone = one(connection, "SELECT event_id FROM webhooks.deliveries WHERE endpoint_id = %s "
               "ORDER BY id LIMIT 1", good)  # fmt: skip
    connection.execute("UPDATE webhooks.events SET payload = NULL WHERE id = %s", [gone])
    expected = {"endpoint paused": 2, "endpoint disabled": 2, "endpoint deleted": 2,
                "payload gone": 1}  # fmt: skip

    plan = api.post("/replays/dry-run", {}).json
    replay = made(api)
    run(connection)

    assert (plan["matching"], plan["replayed"], plan["skipped"]) == (8, 1, expected)
    after = read(api, replay)
    assert (after["replayed"], after["skipped"]) == (1, expected)
    assert statuses(connection) == {"pending": 1, "dead_lettered": 7}


def test_who_replayed_one_alone_was_first(api: Api, connection: psycopg.Connection) -> None:
    """It is in the queue already, and is not doubled."""
    kill(connection, 3)
    delivery_id = one(connection, "SELECT id FROM webhooks.deliveries ORDER BY id LIMIT 1")
    replay = made(api)
    deliveries.replay(connection, delivery_id, None, actor="ada")

    run(connection)

    assert read(api, replay)["replayed"] == 2
    assert statuses(connection) == {"pending": 3}


def test_a_canary_stops_by_itself(api: Api, connection: psycopg.Connection) -> None:
    """One, then ten, then the rest; a stage that fails ends it, with the reason."""
    kill(connection, 100)
    replay = made(api, canary=True)
    assert bulk.advance(connection) == 1
    connection.execute("UPDATE webhooks.replays SET next_at = '-infinity'")
    assert bulk.advance(connection) == 0, "the canary's delivery has not ended"
    worker_id = register(connection)
    settlement.settle(connection, worker_id,
                      [delivered(each) for each in claim(connection, worker_id)])  # fmt: skip
    connection.execute("UPDATE webhooks.replays SET next_at = '-infinity'")
    assert bulk.advance(connection) == 10
    die(connection)
    run(connection, 5)

    stopped = read(api, replay)
    assert (stopped["state"], stopped["replayed"]) == ("stopped", 11)
    assert stopped["reason"] == "10 of the canary's 10 deliveries failed"
    assert statuses(connection) == {"dead_lettered": 99, "delivered": 1}
    resumed = api.post(f"/replays/{replay['id']}/resume").json
    assert (resumed["state"], resumed["reason"]) == ("running", None)
    assert bulk.advance(connection) == 10


def test_a_good_canary_lets_the_rest_go(api: Api, connection: psycopg.Connection) -> None:
    """Three stages, and all of it is replayed."""
    kill(connection, 50)
    replay = made(api, canary=True)
    worker_id = register(connection)
    sizes = []
    for _ in range(6):
        connection.execute("UPDATE webhooks.replays SET next_at = '-infinity'")
        sizes.append(bulk.advance(connection))
        settlement.settle(connection, worker_id,
                          [delivered(each) for each in claim(connection, worker_id)])  # fmt: skip

    assert [size for size in sizes if size] == [1, 10, 39]
    assert read(api, replay)["state"] == "finished"


def test_a_canary_stops_where_the_ladder_takes_days(
    api: Api, connection: psycopg.Connection
) -> None:
    """Ten minutes on, what was tried and waits for its next try has failed; what was not tried
    at all says nothing, and is waited for.
    """
    kill(connection, 100)
    replay = made(api, canary=True)
    assert bulk.advance(connection) == 1
    connection.execute(
        "UPDATE webhooks.replays SET stage_at = stage_at - interval '11 min', next_at = '-infinity'"
    )
    assert bulk.advance(connection) == 0
    assert read(api, replay)["state"] == "running"
    worker_id = register(connection)
    (held,) = claim(connection, worker_id)
    again = Settlement(held, outcome(ErrorClass.HTTP_5XX, 503), timedelta(hours=1))
    settlement.settle(connection, worker_id, [again])
    connection.execute("UPDATE webhooks.replays SET next_at = '-infinity'")

    assert bulk.advance(connection) == 0

    stopped = read(api, replay)
    assert (stopped["state"], stopped["replayed"]) == ("stopped", 1)
    assert stopped["reason"] == "1 of the canary's 1 deliveries failed"


def test_a_chunk_that_takes_too_long_stops_nothing_else(
    api: Api, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its replay is put off for a minute; another one goes on at once."""
    kill(connection, 10)
    slow, quick = made(api, event_type="test"), made(api, status="cancelled")
    real = bulk.scan

    def scan(connection: psycopg.Connection, job: Any, rows: int) -> Any:
        if job["event_type"]:
            connection.execute("SET LOCAL statement_timeout = '50ms'")
            connection.execute("SELECT pg_sleep(5)")
        return real(connection, job, rows)

    monkeypatch.setattr(bulk, "scan", scan)
    assert [bulk.advance(connection) for _ in range(2)] == [0, 0]

    assert read(api, slow)["state"] == "running"
    assert read(api, quick)["state"] == "finished"
    left = one(connection, "SELECT date_part('epoch', next_at - now()) FROM webhooks.replays "
               "WHERE state = 'running'")  # fmt: skip
    assert 50 < left <= 60


def test_verbs_and_states(app: Flask, api: Api, connection: psycopg.Connection) -> None:
    """Each may be repeated; what cannot be is a conflict that says the state."""
    kill(connection, 20)
    replay = made(api, start=False, per_second=5)

    def act(verb: str) -> tuple[int, str]:
        answer = api.post(f"/replays/{replay['id']}/{verb}")
        return answer.status_code, answer.json.get("state") or answer.json["detail"]

    assert act("pause") == (409, "it is planned, and cannot be paused")
    assert act("start") == act("start") == (200, "running")
    assert bulk.advance(connection) == 5
    assert act("pause") == act("pause") == (200, "paused")
    connection.execute("UPDATE webhooks.replays SET next_at = '-infinity'")
    assert bulk.advance(connection) == 0
    assert act("resume") == (200, "running")
    assert act("cancel") == act("cancel") == (200, "cancelled")
    assert act("resume")[0] == 409
    assert statuses(connection) == {"pending": 5, "dead_lettered": 15}
    for other in ("rpl_1", "rpl_" + "0" * 26, "evt_" + "0" * 26):
        assert api.post(f"/replays/{other}/pause").status_code == 404


def test_the_rate_is_exact_over_workers(
    api: Api, connection: psycopg.Connection, database_url: str
) -> None:
    """Four at once move what one second allows, not more."""
    kill(connection, 100)
    made(api, per_second=7)
    moved: Counter[int] = Counter()

    def work(number: int) -> None:
        with connect(database_url, "w") as mine:
            for _ in range(10):
                moved[number] += bulk.advance(mine)

    threads = [threading.Thread(target=work, args=[n]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(moved.values()) == 7


def test_several_workers_double_nothing(
    api: Api, connection: psycopg.Connection, database_url: str
) -> None:
    """Each chunk is one worker's; together they move each delivery once."""
    kill(connection, 3_000)
    replay = made(api)
    moved: list[int] = []

    def work() -> None:
        with connect(database_url, "w") as mine:
            while one(mine, "SELECT count(*) FROM webhooks.replays WHERE state = 'running'"):
                moved.append(bulk.advance(mine))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(moved) == 3_000 == read(api, replay)["replayed"]
    assert statuses(connection) == {"pending": 3_000}


def test_live_traffic_goes_first_and_starves_nothing(connection: psycopg.Connection) -> None:
    """A claim takes what is live first; one that asks for bulk takes that, where there is some."""
    both, live_only = make_endpoint(connection, cap=1000), make_endpoint(connection, cap=1000)
    emit(connection, 10)
    connection.execute("UPDATE webhooks.deliveries_queue SET priority = 1 WHERE endpoint_id = %s "
                       "AND id IN (SELECT id FROM webhooks.deliveries_queue WHERE "
                       "endpoint_id = %s ORDER BY id LIMIT 5)", [both, both])  # fmt: skip
    worker_id = register(connection)

    def taken(*, bulk_first: bool) -> Counter[tuple[UUID, int]]:
        batch = deliveries.claim(connection, worker_id, NO_CURSOR, 4, bulk_first=bulk_first)
        rows = connection.execute(
            "SELECT endpoint_id, priority FROM webhooks.deliveries_queue WHERE id = ANY (%s)",
            [[each.delivery_id for each in batch.claims]],
        ).fetchall()
        return Counter(rows)

    assert taken(bulk_first=False) == {(both, 0): 2, (live_only, 0): 2}
    assert taken(bulk_first=True) == {(both, 1): 2, (live_only, 0): 2}


def test_workers_advance_it_by_themselves(
    api: Api, settings: Settings, connection: psycopg.Connection
) -> None:
    """No scheduler runs: the receiver gets each event again, under the same id."""
    answers = {"status": 500}
    with Recorder(lambda nth, _: answers["status"]) as receiver:
        make_target(connection, receiver.url)
        emit(connection, 30)
        with dispatching(settings, retry_attempts=1, breaker_failures=1000):
            eventually(lambda: statuses(connection) == {"dead_lettered": 30}, 30)
            answers["status"] = 200
            replay = made(api, canary=True)
            eventually(lambda: statuses(connection) == {"delivered": 30}, 30)
            eventually(lambda: read(api, replay)["state"] == "finished", 10)

        assert read(api, replay)["replayed"] == 30
        assert set(receiver.counts().values()) == {2}
    triggers = connection.execute(
        "SELECT trigger, count(*) FROM webhooks.attempts GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert triggers == [("bulk", 30), ("schedule", 30)]


def test_a_tenants_replay_takes_its_tenants_alone(
    app: Flask, api: Api, connection: psycopg.Connection
) -> None:
    """Whatever the filter names; and another tenant's replay is not there."""
    acme = Api(app, "acme")
    acme.endpoint()
    acme.event()
    kill(connection, 2)
    replay = made(acme)
    assert made(acme, endpoint=ids.encode(ids.ENDPOINT, make_endpoint(connection)))
    run(connection)

    assert read(acme, replay)["replayed"] == 1
    assert Api(app, "other").get(f"/replays/{replay['id']}").status_code == 404
    assert acme.post("/replays", {"tenant": "default"}).status_code == 403
    assert {row["tenant"] for row in acme.get("/replays").json["data"]} == {"acme"}
    whole = made(api)
    assert whole["tenant"] is None


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"status": "pending"}, "status"), ({"endpoint": "ep_1"}, "endpoint"),
        ({"event_type": "a b"}, "event_type"), ({"error_class": "x"}, "error_class"),
        ({"status_code": "9xx"}, "status_code"), ({"from": "yesterday"}, "from"),
        ({"to": "2026-11-30T14:00:00"}, "to"), ({"per_second": 0}, "per_second"),
        ({"per_second": 1e9}, "per_second"), ({"stop_share": 1.5}, "stop_share"),
        ({"tenant": "nobody"}, "tenant"), ({"statuses": []}, "statuses"),
    ],
)  # fmt: skip
def test_a_wrong_replay_is_refused_by_its_field(api: Api, fields: Any, field: str) -> None:
    """And nothing is made."""
    answer = api.post("/replays", fields)

    assert (answer.status_code, answer.json["errors"][0]["field"]) == (422, field)
    assert api.get("/replays").json["data"] == []
