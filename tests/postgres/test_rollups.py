"""Roll-ups: what workers count agrees with what they record."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.dispatching import dispatching, make_target
from tests.queue import claim, emit, make_endpoint, one, outcome, register, statuses
from tests.recorder import Recorder
from tests.stack import eventually
from webhooks import latency, retention, rollups
from webhooks.attempt import Claim, ErrorClass, Outcome, Timings
from webhooks.rollups import ALL
from webhooks.settings import Settings
from webhooks.tally import Tally, fingerprint


@pytest.fixture
def claimed(connection: psycopg.Connection) -> Claim:
    make_endpoint(connection)
    emit(connection)
    (found,) = claim(connection, register(connection))
    return found


def count(connection: psycopg.Connection, *settled: tuple[Claim, Outcome, bool]) -> None:
    tally = Tally()
    tally.add(settled)
    rollups.flush(connection, tally.take())


def rows(connection: psycopg.Connection, width: int, endpoint_id: UUID) -> list[Any]:
    return connection.execute(
        "SELECT event_type, delivered, failed, dead_lettered FROM webhooks.delivery_counts "
        "WHERE width = %s AND endpoint_id = %s ORDER BY at, tenant_id, event_type",
        [width, endpoint_id],
    ).fetchall()


def groups(connection: psycopg.Connection) -> list[Any]:
    return connection.execute(
        "SELECT error_class, status_code, detail, failures, dead_lettered, state "
        "FROM webhooks.failure_groups ORDER BY first_at"
    ).fetchall()


def test_each_attempt_counts_for_endpoint_tenant_and_all(
    connection: psycopg.Connection, claimed: Claim
) -> None:
    """In its minute, hour and day; a second flush adds to the first."""
    ok, bad = outcome(None, 200), outcome(ErrorClass.HTTP_5XX, 500)
    count(connection, (claimed, ok, True), (claimed, bad, False))
    count(connection, (claimed, bad, True))

    for width in (60, 1440):
        totals = Counter[str]()
        for _, delivered, failed, dead in rows(connection, width, claimed.endpoint_id):
            totals.update(delivered=delivered, failed=failed, dead=dead)
        assert totals == {"delivered": 1, "failed": 2, "dead": 1}
        both = rows(connection, width, ALL)
        assert sum(row[1] for row in both) == 2
        assert sum(row[2] for row in both) == 4
        assert {row[0] for row in both} == {""}
    starts = connection.execute(
        "SELECT width, at, date_bin(make_interval(mins => width), at, '1970-01-01Z') "
        "FROM webhooks.delivery_counts"
    ).fetchall()
    assert {width for width, _, _ in starts} == {1, 60, 1440}
    assert all(at == binned for _, at, binned in starts)


def test_an_attempt_counts_for_the_minute_of_its_end(
    connection: psycopg.Connection, claimed: Claim
) -> None:
    """Also when it is added later: the database was away, or the worker busy."""
    ended = time.monotonic() - 180
    late = Outcome(None, status_code=200, started=ended, finished=ended)

    count(connection, (claimed, late, True))

    at: datetime = one(
        connection, "SELECT at FROM webhooks.delivery_counts WHERE width = 1 AND tenant_id = %s "
        "AND endpoint_id = %s", claimed.tenant_id, claimed.endpoint_id,
    )  # fmt: skip
    ago = one(connection, "SELECT date_part('epoch', clock_timestamp() - %s)", at)
    assert 180 <= ago <= 180 + 60 + 10


def test_durations_can_be_added_up(connection: psycopg.Connection, claimed: Claim) -> None:
    """Two workers' buckets are one row, from which a quantile is read."""
    for total_ms in (10.0, 10.0, 10.0, 1000.0):
        done = outcome(None, 200, timings=Timings(total_ms=total_ms))
        count(connection, (claimed, done, True))

    durations = one(
        connection, "SELECT durations FROM webhooks.delivery_counts WHERE width = 1440 "
        "AND endpoint_id = %s", claimed.endpoint_id,
    )  # fmt: skip
    assert sum(durations) == 4
    median, longest = latency.quantile(durations, 0.5), latency.quantile(durations, 1)
    assert median == pytest.approx(10, rel=0.16)
    assert longest == pytest.approx(1000, rel=0.16)


def test_failures_alike_are_one_group(connection: psycopg.Connection, claimed: Claim) -> None:
    """Numbers in the text do not tell them apart; class and code do."""
    for n in range(3):
        refused = outcome(ErrorClass.CONNECT, detail=f"connection to port {n} refused")
        count(connection, (claimed, refused, n == 2))
    count(connection, (claimed, outcome(ErrorClass.HTTP_5XX, 500), False))
    count(connection, (claimed, outcome(ErrorClass.HTTP_5XX, 503), False))

    assert groups(connection) == [
        ("connect", None, "connection to port 2 refused", 3, 1, "open"),
        ("http_5xx", 500, "", 1, 0, "open"),
        ("http_5xx", 503, "", 1, 0, "open"),
    ]


def test_an_acknowledged_group_opens_again_after_some_quiet(
    connection: psycopg.Connection, claimed: Claim
) -> None:
    """While it goes on it stays acknowledged; a muted one stays muted for good."""
    bad = outcome(ErrorClass.TIMEOUT)

    def again(state: str, quiet: str) -> str:
        connection.execute(
            "UPDATE webhooks.failure_groups SET state = %s, last_at = now() - %s::interval",
            [state, quiet],
        )
        count(connection, (claimed, bad, False))
        return str(groups(connection)[0][-1])

    count(connection, (claimed, bad, False))
    assert again("acknowledged", "1 minute") == "acknowledged"
    assert again("acknowledged", "2 hours") == "open"
    assert again("muted", "2 hours") == "muted"


def test_texts_that_a_receiver_made_up_are_stored(
    connection: psycopg.Connection, claimed: Claim
) -> None:
    """NUL and lone surrogates, and a text that is too long."""
    for detail in ("a\0b", "\ud800", "x" * 100_000):
        count(connection, (claimed, outcome(ErrorClass.PROTOCOL, detail=detail), False))

    assert len(groups(connection)) == 3
    assert max(len(row[2]) for row in groups(connection)) <= 500


def test_one_endpoint_cannot_fill_the_tally(claimed: Claim) -> None:
    """However many different texts it answers with between two flushes."""
    tally = Tally()
    texts = (chr(0x4E00 + n) for n in range(6_000))
    tally.add((claimed, outcome(ErrorClass.PROTOCOL, detail=text), False) for text in texts)

    sheet = tally.take()
    assert len(sheet.groups) == 5_000
    assert sum(each.failed for each in sheet.counts.values()) == 6_000
    assert tally.take().counts == {}


def test_a_fingerprint_tells_classes_codes_and_words_apart() -> None:
    """And nothing else: ids, addresses and counts in a text are numbers."""
    base = outcome(ErrorClass.TLS, detail="certificate 0af31b2c99 expired 3 days ago")
    same = outcome(ErrorClass.TLS, detail="certificate ffe0129bc1 expired 12 days ago")
    others = [
        outcome(ErrorClass.CONNECT, detail=base.detail),
        outcome(ErrorClass.TLS, 500, detail=base.detail),
        outcome(ErrorClass.TLS, detail="another name"),
    ]

    assert fingerprint(base) == fingerprint(same)
    assert len({fingerprint(each) for each in (base, *others)}) == 4


def test_counts_agree_with_the_rows_after_a_clean_stop(
    settings: Settings, connection: psycopg.Connection
) -> None:
    """A dispatcher that was drained has counted each attempt that is on record, once."""
    with Recorder(answer=lambda nth, _: 500 if nth % 3 == 0 else 200) as receiver:
        for n in range(3):
            make_target(connection, f"{receiver.url}/{n}")
        emit(connection, 30)
        with dispatching(settings):
            eventually(lambda: statuses(connection).keys() <= {"delivered", "dead_lettered"}, 30)

    recorded = connection.execute(
        "SELECT endpoint_id, count(*) FILTER (WHERE outcome = 'delivered'), "
        "count(*) FILTER (WHERE outcome = 'failed') FROM webhooks.attempts GROUP BY 1 ORDER BY 1"
    ).fetchall()
    counted = connection.execute(
        "SELECT endpoint_id, sum(delivered), sum(failed) FROM webhooks.delivery_counts "
        "WHERE width = 60 AND endpoint_id <> %s GROUP BY 1 ORDER BY 1",
        [ALL],
    ).fetchall()
    assert counted == recorded
    assert one(connection, "SELECT sum(failures) FROM webhooks.failure_groups") == sum(
        row[2] for row in recorded
    )


def test_a_flush_that_fails_stops_nothing(
    settings: Settings, connection: psycopg.Connection
) -> None:
    """Without the tables of the roll-ups deliveries go on as if nothing were wrong."""
    connection.execute("DROP TABLE webhooks.delivery_counts")
    with Recorder() as receiver:
        make_target(connection, receiver.url)
        with dispatching(settings):
            for n in range(1, 4):
                emit(connection)
                eventually(lambda n=n: statuses(connection) == {"delivered": n}, 20)


def test_each_width_is_kept_for_its_own_days(
    settings: Settings, connection: psycopg.Connection
) -> None:
    """Minutes go after two days, hours with the deliveries, days with the audit log."""
    for width in (1, 60, 1440):
        for days in (1, 3, 31, 401):
            connection.execute(
                "INSERT INTO webhooks.delivery_counts VALUES "
                "(0, %s, %s, %s, now() - make_interval(days => %s), '', %s, 0, 0, '{}')",
                [ALL, ALL, width, days, days],
            )

    assert retention.drop_counts(connection, settings) == 3 + 2 + 1

    kept = connection.execute(
        "SELECT width, array_agg(delivered ORDER BY delivered) FROM webhooks.delivery_counts "
        "GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert kept == [(1, [1]), (60, [1, 3]), (1440, [1, 3, 31])]
