"""Retention: what goes when, and that nothing that waits goes with it."""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from dataclasses import replace
from datetime import date, timedelta
from uuid import UUID

import psycopg
import pytest
from flask import Flask

from tests.api import Api
from tests.canary import Canaries
from tests.endpoints import create
from tests.queue import claim, delivered, make_endpoint, one, outcome, register
from webhooks import deliveries, erasure, ids, payloads, retention, tenants
from webhooks.attempt import ErrorClass
from webhooks.db import connect
from webhooks.deliveries import Settlement, settlement
from webhooks.doctor import examine
from webhooks.doctor.finding import Finding, Level
from webhooks.settings import Settings, SettingsError

OLD = timedelta(days=40)


def day_of(connection: psycopg.Connection, age: timedelta) -> date:
    found: date = one(
        connection, "SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date - %s", age.days
    )
    return found


def make_days(connection: psycopg.Connection, age: timedelta = OLD) -> date:
    """Each table's partition of that long ago."""
    day = day_of(connection, age)
    for table in ("events", "deliveries", "attempts"):
        connection.execute("SELECT webhooks.make_partition(%s, %s)", [table, day])
    return day


def emit_long_ago(
    connection: psycopg.Connection, age: timedelta = OLD, tenant: str = "default"
) -> tuple[UUID, list[UUID]]:
    """An event as if it had been accepted then, pending for each endpoint of its tenant."""
    make_days(connection, age)
    event_id: UUID = one(
        connection,
        "INSERT INTO webhooks.events (shard, id, tenant_id, type, payload, created_at) "
        "SELECT webhooks.shard_of(id), overlay(webhooks.uuid7_floor(now() - %s)::text "
        "  placing '7' || right(gen_random_uuid()::text, 21) from 15)::uuid, id, 'old', "
        "  'an old secret', now() - %s "
        "FROM webhooks.tenants WHERE key = %s RETURNING id",
        age, age, tenant,
    )  # fmt: skip
    rows = connection.execute(
        "INSERT INTO webhooks.deliveries_queue "
        "(shard, tenant_id, event_id, endpoint_id, event_type) "
        "SELECT v.shard, v.tenant_id, v.id, e.id, v.type FROM webhooks.events v "
        "JOIN webhooks.endpoints e USING (tenant_id) WHERE v.id = %s RETURNING id",
        [event_id],
    ).fetchall()
    return event_id, [row[0] for row in rows]


def partitions(connection: psycopg.Connection, day: date) -> set[str]:
    """The tables that there are of a day, attached or not."""
    rows = connection.execute(
        "SELECT split_part(relname, '_', 1) FROM pg_class WHERE relkind = 'r' "
        "AND relname ~ '_[0-9]{8}$' AND relname LIKE %s",
        [f"%_{day:%Y%m%d}"],
    )
    return {row[0] for row in rows}


def ripen(connection: psycopg.Connection) -> None:
    connection.execute("UPDATE webhooks.retired_days SET retired_at = now() - interval '1 hour'")


def drop(connection: psycopg.Connection, settings: Settings) -> int:
    """Both runs that a day of events needs."""
    gone = retention.drop_due(connection, settings)
    ripen(connection)
    return gone + retention.drop_due(connection, settings)


def test_each_table_keeps_its_own_days(connection: psycopg.Connection, settings: Settings) -> None:
    """What is older than its days goes, to the day; what is not stays."""
    settings = replace(
        settings, keep_events_days=41, keep_deliveries_days=39, keep_attempts_days=40
    )
    day, before = make_days(connection), make_days(connection, OLD + timedelta(days=1))

    drop(connection, settings)

    assert partitions(connection, day) == {"events", "attempts"}
    assert partitions(connection, before) == {"events"}


def test_the_plan_changes_nothing(connection: psycopg.Connection, settings: Settings) -> None:
    """It names what is due with its size, and why a day of events has to wait."""
    make_endpoint(connection)
    emit_long_ago(connection)

    due = {each.table: (each, why) for each, why in retention.plan(connection, settings)}

    assert due.keys() == {"events", "deliveries", "attempts"}
    assert due["events"][0].size_bytes > 0
    assert due["events"][1] == "deliveries of that day have not finished"
    assert due["attempts"][1] is None
    assert partitions(connection, day_of(connection, OLD)) == due.keys()
    assert one(connection, "SELECT count(*) FROM webhooks.retired_days") == 0


def test_a_day_with_a_live_delivery_stays(
    connection: psycopg.Connection, settings: Settings
) -> None:
    """Its events go once the last delivery has finished, and not before (W144)."""
    make_endpoint(connection)
    emit_long_ago(connection)
    day = day_of(connection, OLD)

    drop(connection, settings)
    assert partitions(connection, day) == {"events"}

    worker_id = register(connection)
    (held,) = claim(connection, worker_id)
    assert held.payload == b"an old secret"
    settlement.settle(connection, worker_id, [delivered(held)])
    drop(connection, settings)
    assert partitions(connection, day) == set()
    assert one(connection, "SELECT count(*) FROM webhooks.retired_days") == 0


def test_a_large_fan_out_keeps_its_day(connection: psycopg.Connection, settings: Settings) -> None:
    """Deliveries that are still to be made need the payload, too."""
    event_id, _ = emit_long_ago(connection)
    connection.execute(
        "INSERT INTO webhooks.fanouts (shard, tenant_id, event_id, event_type, endpoint_ids) "
        "SELECT shard, tenant_id, id, type, ARRAY[id] FROM webhooks.events WHERE id = %s",
        [event_id],
    )

    drop(connection, settings)

    assert partitions(connection, day_of(connection, OLD)) == {"events"}


def test_nothing_comes_back_into_a_day_that_is_about_to_go(
    connection: psycopg.Connection, settings: Settings
) -> None:
    """From its retirement on a replay is refused; it is dropped some time after (W159)."""
    make_endpoint(connection)
    _, (delivery_id,) = emit_long_ago(connection)
    deliveries.cancel(connection, delivery_id, None, actor="ada", reason="test")
    day = day_of(connection, OLD)

    retention.drop_due(connection, settings)

    assert "events" in partitions(connection, day)
    with pytest.raises(deliveries.Refused, match="past its retention"):
        deliveries.replay(connection, delivery_id, None, actor="ada")
    assert one(connection, "SELECT count(*) FROM webhooks.deliveries_queue") == 0
    ripen(connection)
    retention.drop_due(connection, settings)
    assert "events" not in partitions(connection, day)


def test_a_reader_delays_the_dropping_and_nothing_else(
    connection: psycopg.Connection, settings: Settings, database_url: str
) -> None:
    """While a report reads the day, emits and new days go on; what broke off is finished later."""
    make_endpoint(connection)
    day = make_days(connection)
    connection.execute("SELECT webhooks.make_partition('events', %s)", [day])
    with connect(database_url, "report") as reader, connect(database_url, "janitor") as janitor:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM webhooks.attempts")
        dropping = threading.Thread(target=quietly, args=[janitor, settings])
        dropping.start()
        wait_for_waiter(connection)

        connection.execute("SET statement_timeout = '3s'")
        connection.execute("SELECT webhooks.emit('default', 'a', '{}')")
        assert one(connection, "SELECT webhooks.make_partition('events', current_date + 30)")
        worker_id = register(connection)
        settlement.settle(connection, worker_id, [delivered(claim(connection, worker_id)[0])])

        connection.execute("SELECT pg_cancel_backend(%s)", [janitor.info.backend_pid])
        dropping.join()
        reader.execute("COMMIT")
    connection.execute("RESET statement_timeout")

    drop(connection, settings)
    assert partitions(connection, day) == set()


def quietly(connection: psycopg.Connection, settings: Settings) -> None:
    with suppress(psycopg.errors.QueryCanceled):
        retention.drop_due(connection, settings)


def wait_for_waiter(connection: psycopg.Connection) -> None:
    """Until some session waits for another one's lock or transaction."""
    for _ in range(200):
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        if one(connection, waits):
            return
        connection.execute("SELECT pg_sleep(0.02)")
    raise AssertionError("nobody waits")


def test_what_was_detached_and_not_dropped_goes_with_the_next_run(
    connection: psycopg.Connection, settings: Settings
) -> None:
    """A janitor that dies between the two leaves no table behind for good."""
    day = make_days(connection)
    connection.execute(
        f"ALTER TABLE webhooks.attempts DETACH PARTITION webhooks.attempts_{day:%Y%m%d}"
    )

    drop(connection, settings)

    assert partitions(connection, day) == set()


def test_what_could_not_be_delivered_for_too_long_expires(
    connection: psycopg.Connection, settings: Settings
) -> None:
    """It is cancelled with that reason and can be replayed, until its event goes."""
    make_endpoint(connection)
    _, (old,) = emit_long_ago(connection, timedelta(days=31))
    _, (young,) = emit_long_ago(connection, timedelta(days=29))

    assert deliveries.expire(connection, 30, 32) == 1

    states = dict(connection.execute("SELECT id, status || ' ' || coalesce(reason, '') "
                                     "FROM webhooks.deliveries").fetchall())  # fmt: skip
    assert states == {old: "cancelled expired", young: "pending "}
    deliveries.replay(connection, old, None, actor="ada")
    assert deliveries.expire(connection, 30, 32) == 0
    assert deliveries.expire(connection, 30, 31) == 1


def test_what_was_replayed_and_fails_again_has_its_time(connection: psycopg.Connection) -> None:
    """A failed try after a replay does not make it old again."""
    make_endpoint(connection)
    _, (old,) = emit_long_ago(connection, timedelta(days=31))
    worker_id = register(connection)

    def fail(wait: timedelta | None) -> None:
        (held,) = claim(connection, worker_id)
        failed = Settlement(held, outcome(ErrorClass.HTTP_4XX, 404), wait)
        settlement.settle(connection, worker_id, [failed])

    fail(None)
    deliveries.replay(connection, old, None, actor="ada")
    fail(timedelta(hours=1))

    assert deliveries.expire(connection, 30, 32) == 0
    assert deliveries.expire(connection, 30, 31) == 1


def test_the_doctor_warns_before_anything_expires(
    connection: psycopg.Connection, settings: Settings
) -> None:
    """Three days before, with how many and the remedy; of what is younger it says nothing."""
    make_endpoint(connection)
    emit_long_ago(connection, timedelta(days=26))
    assert expiry(settings).level is Level.OK

    emit_long_ago(connection, timedelta(days=28))

    assert expiry(settings).what == "1 deliveries expire within 3 days"
    assert "WEBHOOKS_MAX_AGE_DAYS" in expiry(settings).remedy


def expiry(settings: Settings) -> Finding:
    (found,) = [each for each in examine(settings) if each.check == "expiry"]
    return found


def test_what_is_in_flight_does_not_expire(connection: psycopg.Connection) -> None:
    """A worker has it; its outcome decides, and only a retry would be too late."""
    make_endpoint(connection)
    emit_long_ago(connection)
    claim(connection, register(connection))

    assert deliveries.expire(connection, 30, 32) == 0


def test_events_outlive_what_is_to_be_delivered() -> None:
    """Keeping them for less than two days more than the maximum age is refused at the start."""
    with pytest.raises(SettingsError, match="WEBHOOKS_KEEP_EVENTS_DAYS=31: at least two days"):
        Settings.from_env({"WEBHOOKS_KEEP_EVENTS_DAYS": "31"})


def test_a_tenants_payloads_go_earlier(connection: psycopg.Connection) -> None:
    """After its days a payload and the answers go; what waits, younger and others' stay."""
    connection.execute("INSERT INTO webhooks.tenants (key, name) VALUES ('other', 'Other')")
    connection.execute("UPDATE webhooks.tenants SET created_at = now() - interval '20 days'")
    connection.execute("UPDATE webhooks.tenants SET payload_days = 7 WHERE key = 'default'")
    old, _ = emit_long_ago(connection, timedelta(days=8))
    young, _ = emit_long_ago(connection, timedelta(days=6))
    foreign, _ = emit_long_ago(connection, timedelta(days=8), "other")
    make_endpoint(connection)
    live, _ = emit_long_ago(connection, timedelta(days=9))

    assert payloads.expire(connection) == 1

    rows = dict(connection.execute("SELECT id, payload IS NULL FROM webhooks.events").fetchall())
    assert rows == {old: True, young: False, foreign: False, live: False}
    assert payloads.expire(connection) == 0


def test_a_payload_that_is_gone_is_said_to_be(app: Flask, connection: psycopg.Connection) -> None:
    """The API answers 410 and shows the event without it; a replay is refused."""
    api = Api(app)
    make_endpoint(connection)
    event_id, (delivery_id,) = emit_long_ago(connection)
    deliveries.cancel(connection, delivery_id, None, actor="ada", reason="test")

    erasure.erase_event(connection, event_id, actor="ada")

    path = f"/events/{ids.encode(ids.EVENT, event_id)}"
    assert api.get(f"{path}/payload").status_code == 410
    assert api.get(path).json["payload_bytes"] is None
    with pytest.raises(deliveries.Refused, match="its payload is gone"):
        deliveries.replay(connection, delivery_id, None, actor="ada")


def test_an_erased_event_is_found_nowhere(connection: psycopg.Connection) -> None:
    """Neither its payload nor an answer; what waited is cancelled; the audit log tells of it."""
    make_endpoint(connection)
    event_id, _ = emit_long_ago(connection)
    make_endpoint(connection)
    worker_id = register(connection)
    (held,) = claim(connection, worker_id)
    settlement.settle(connection, worker_id, [delivered(held)])
    connection.execute("UPDATE webhooks.attempts SET response_body = 'an old secret'")

    assert erasure.erase_event(connection, event_id, actor="ada") is not None

    canaries = Canaries()
    canaries.add("payload", "an old secret")
    assert canaries.found(dump(connection)) == []
    assert one(connection, "SELECT action FROM webhooks.audit_log") == "event.erase"


def dump(connection: psycopg.Connection) -> bytes:
    """Every row of every table, as text and with its bytes."""
    tables = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'webhooks'::regnamespace "
        "AND relkind IN ('r', 'p')"
    ).fetchall()
    found = b""
    for (table,) in tables:
        for row in connection.execute(f"SELECT to_jsonb(t)::text FROM webhooks.{table} t"):
            found += row[0].encode() + b"\n"
            found += b"".join(bytes.fromhex(part) for part in hexes(row[0]))
    return found


def hexes(text: str) -> list[str]:
    """What stands in a row's text as bytea."""
    return re.findall(r"\\\\x((?:[0-9a-f]{2})+)", text)


def test_an_erased_tenant_is_found_nowhere(app: Flask, connection: psycopg.Connection) -> None:
    """Endpoints, secrets, headers, payloads and answers are gone, another tenant's are not."""
    with app.app_context():
        tenants.create("acme", "Acme")
        create(
            app,
            tenant="acme",
            url="http://127.0.0.1/canary-path-of-acme",
            headers={"X-Plain": "canary-header-of-acme"},
            description="canary-words-of-acme",
        )
        create(app, url="http://127.0.0.1/canary-path-of-others")
        for tenant in ("acme", "default"):
            connection.execute(
                "SELECT webhooks.emit(%s, 'a', %s, %s)",
                [tenant, f'"canary-payload-of-{tenant}"', f"canary-key-of-{tenant}"],
            )
        acme = tenants.find("acme")
        assert acme is not None
        connection.execute(
            "INSERT INTO webhooks.failure_groups (shard, tenant_id, endpoint_id, fingerprint, "
            "error_class, detail, first_at, last_at, failures, dead_lettered, last_delivery_id) "
            "SELECT webhooks.shard_of(id), id, id, '', 'tls', 'canary-words-of-acme', now(), "
            "now(), 1, 0, id FROM webhooks.tenants WHERE key = 'acme'"
        )

        assert erasure.erase_tenant(acme, actor="ada") == 1

    canaries = Canaries()
    for what in ("path", "header", "words", "payload", "key"):
        canaries.add(what, f"canary-{what}-of-acme")
    assert canaries.found(dump(connection)) == []
    others = Canaries()
    others.add("path", "canary-path-of-others")
    others.add("payload", "canary-payload-of-default")
    assert {name.partition(",")[0] for name in others.found(dump(connection))} == {
        "path",
        "payload",
    }


def test_the_audit_log_goes_by_retention_alone(
    connection: psycopg.Connection, settings: Settings
) -> None:
    """Old entries go, young ones stay, and nobody else's DELETE is taken."""
    connection.execute(
        "INSERT INTO webhooks.audit_log (id, actor, action, object) VALUES "
        "(webhooks.uuid7_floor(now() - interval '401 days'), 'ada', 'old', ''), "
        "(webhooks.uuid7_floor(now() - interval '399 days'), 'ada', 'young', '')"
    )
    with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
        connection.execute("DELETE FROM webhooks.audit_log")

    assert retention.drop_audit(connection, settings) == 1

    assert one(connection, "SELECT action FROM webhooks.audit_log") == "young"
    with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
        connection.execute("UPDATE webhooks.audit_log SET actor = 'eve'")
