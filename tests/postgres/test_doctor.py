"""`webhooks doctor`: each condition is made real, found, named and given its remedy."""

from __future__ import annotations

import json
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from flask import Flask
from psycopg.pq import PGconn

from tests.api import Api
from tests.queue import claim, emit, expire, make_endpoint, one, register
from tests.stack import eventually
from tests.support import KEYRING
from webhooks import cli, datadir, embedded, ids, schema
from webhooks.db import connect
from webhooks.doctor import Finding, Level, examine, installation, server, vacuum, work, worst
from webhooks.scheduler import JOBS
from webhooks.secrets import Keyring
from webhooks.settings import Settings


def only(findings: Iterator[Finding]) -> Finding:
    (finding,) = findings
    return finding


def complaint(findings: Iterator[Finding], level: Level = Level.WARN) -> str:
    """What the only finding says; it has this level and a remedy."""
    finding = only(findings)
    assert finding.level is level, finding
    assert finding.remedy
    return finding.what


def fine(findings: Iterator[Finding]) -> None:
    """Every finding is OK and asks for nothing."""
    for finding in findings:
        assert (finding.level, finding.remedy) == (Level.OK, ""), finding


@pytest.fixture(scope="module")
def poor_url() -> Iterator[str]:
    """A server set up as badly as can be, with a database that lacks our schema."""
    data_dir = Path(tempfile.mkdtemp(prefix="webhooks-test-poor-"))
    data_dir.chmod(0o711)
    made = embedded.open_server(data_dir)
    made.start({
        "fsync": "off", "full_page_writes": "off", "synchronous_commit": "off",
        "autovacuum": "off", "max_locks_per_transaction": "64", "max_connections": "13",
        "superuser_reserved_connections": "3", "max_prepared_transactions": "2",
        "idle_in_transaction_session_timeout": "0",
    })  # fmt: skip
    yield made.url("postgres")
    made.stop("immediate")
    shutil.rmtree(data_dir, ignore_errors=True)


@pytest.fixture
def poor(poor_url: str) -> Iterator[psycopg.Connection]:
    with connect(poor_url, "test") as opened:
        yield opened


# The whole.


def test_a_healthy_installation_has_nothing_to_complain_of(
    settings: Settings, connection: psycopg.Connection, app: Flask
) -> None:
    """Every check is asked and answers OK; only what the test's server itself has off is not."""
    Api(app).endpoint()
    register(connection)
    for job in JOBS:
        connection.execute(
            "INSERT INTO webhooks.job_leases VALUES (%s, webhooks.uuid7(), now())", [job.name]
        )
    name = connection.info.dbname
    connection.execute(f"ALTER DATABASE {name} SET idle_in_transaction_session_timeout = '5min'")
    off = {
        name for name in ("fsync", "full_page_writes") if one(connection, f"SHOW {name}") == "off"
    }

    findings = examine(settings)

    assert [f for f in findings if f.level is not Level.OK and f.what.split()[0] not in off] == []
    assert {finding.check for finding in findings} == {
        "database", "schema", "keyring", "clock", "durability", "locks", "idle transactions",
        "connections", "held-back vacuum", "dead rows", "partitions", "scheduler", "workers",
        "in flight", "oldest pending", "endpoints", "expiry",
    }  # fmt: skip


def test_the_oldest_server_can_be_asked_too(old_database_url: str) -> None:
    """PostgreSQL 15 answers every check."""
    findings = examine(Settings(database_url=old_database_url, keyring=KEYRING))

    assert [f for f in findings if "cannot be" in f.what or "did not answer" in f.what] == []
    assert len(findings) >= 16


def test_a_server_that_is_away_is_one_failure() -> None:
    """Nothing else is asked, and the password is not told."""
    (finding,) = examine(Settings(database_url="postgresql://u:hunter2@127.0.0.1:1/x"))

    assert (finding.check, finding.level) == ("database", Level.FAIL)
    assert "127.0.0.1" in finding.what
    assert "hunter2" not in f"{finding}"


def test_without_our_schema_only_the_server_is_asked(poor_url: str) -> None:
    """The remedy is the command that makes it."""
    findings = {finding.check: finding for finding in examine(Settings(database_url=poor_url))}

    assert findings["schema"].level is Level.FAIL
    assert "webhooks db upgrade" in findings["schema"].remedy
    assert "durability" in findings
    assert "workers" not in findings


def test_what_a_role_may_not_read_is_a_warning(
    database_url: str, connection: psycopg.Connection
) -> None:
    """The other checks go on."""
    role = f"reader_{os.getpid()}"
    connection.execute(f"CREATE ROLE {role}")
    connection.execute(f"GRANT USAGE ON SCHEMA webhooks TO {role}")
    connection.execute(f"GRANT SELECT ON webhooks.alembic_version TO {role}")
    mark = "&" if "?" in database_url else "?"
    url = f"{database_url}{mark}options=-c%20role%3D{role}"
    try:
        findings = {finding.check: finding for finding in examine(Settings(
            database_url=url, keyring=KEYRING))}  # fmt: skip
    finally:
        connection.execute(f"DROP OWNED BY {role}")
        connection.execute(f"DROP ROLE {role}")

    assert findings["keyring"].level is Level.WARN
    assert "permission denied" in findings["live workers"].what
    assert findings["live workers"].level is Level.WARN
    assert findings["clock"].level is Level.OK


# The server.


@pytest.mark.parametrize(
    ("apart_s", "level"), [(5, Level.OK), (-45, Level.WARN), (45, Level.WARN), (400, Level.FAIL)]
)
def test_clocks_apart(connection: psycopg.Connection, apart_s: float, level: Level) -> None:
    """Thirty seconds are a warning; five minutes are what receivers refuse."""
    finding = only(server.clock(connection, lambda: time.time() + apart_s))

    assert finding.level is level
    assert (finding.remedy != "") == (level is not Level.OK)


def test_settings_that_lose_data(poor: psycopg.Connection) -> None:
    """fsync and full_page_writes off are failures, synchronous_commit off is a warning."""
    findings = list(server.durability(poor))

    assert [(f.what.split()[0], f.level) for f in findings] == [
        ("fsync", Level.FAIL),
        ("full_page_writes", Level.FAIL),
        ("synchronous_commit", Level.WARN),
    ]
    assert all(finding.remedy for finding in findings)


def test_limits_that_are_too_low(poor: psycopg.Connection) -> None:
    """Locks for the partitions, and an end for transactions that somebody left open."""
    locks, idle = server.limits(poor)

    assert (locks.level, idle.level) == (Level.WARN, Level.WARN)
    assert "64" in locks.what
    assert "256" in locks.remedy
    assert "idle_in_transaction_session_timeout is 0" in idle.what


def test_a_server_that_runs_out_of_connections(poor_url: str, poor: psycopg.Connection) -> None:
    """Of ten, eight in use are a warning and all ten a failure."""
    fine(server.connections(poor))
    with ExitStack() as opened:
        for _ in range(7):
            opened.enter_context(psycopg.connect(poor_url))
        assert complaint(server.connections(poor)) == "8 of 10 are in use"
        for _ in range(2):
            opened.enter_context(psycopg.connect(poor_url))
        assert complaint(server.connections(poor), Level.FAIL) == "10 of 10 are in use"


# Vacuum.


def test_a_long_transaction_is_named(database_url: str, connection: psycopg.Connection) -> None:
    """Its process, program, role, age and state, and the statement that ends it (W129)."""
    with psycopg.connect(database_url, application_name="a long report") as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        time.sleep(0.3)

        fine(vacuum.held_back(connection, longest_s=60))
        finding = only(vacuum.held_back(connection, longest_s=0.2))

        assert finding.level is Level.WARN
        assert f"pid {reader.info.backend_pid} (a long report, role " in finding.what
        assert "0 s, idle in transaction" in finding.what
        assert f"pg_terminate_backend({reader.info.backend_pid})" in finding.remedy
    fine(vacuum.held_back(connection, longest_s=0.2))


def test_another_databases_transaction_holds_nothing_back(
    server_url: str, connection: psycopg.Connection
) -> None:
    """Vacuum looks at its own database's transactions only."""
    with psycopg.connect(server_url) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        time.sleep(0.1)

        fine(vacuum.held_back(connection, longest_s=0.05))


def test_a_transaction_whose_age_is_hidden(
    database_url: str, connection: psycopg.Connection
) -> None:
    """A role that may not see others' sessions says so, and does not say that all is well."""
    role = f"blind_{os.getpid()}"
    connection.execute(f"CREATE ROLE {role}")
    with psycopg.connect(database_url) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        connection.execute(f"SET ROLE {role}")
        finding = only(vacuum.held_back(connection))
    connection.execute("RESET ROLE")
    connection.execute(f"DROP ROLE {role}")

    assert finding.level is Level.WARN
    assert "hidden" in finding.what
    assert "pg_read_all_stats" in finding.remedy


def test_a_prepared_transaction_is_named(poor_url: str, poor: psycopg.Connection) -> None:
    """Forgotten two-phase commits survive every restart."""
    with psycopg.connect(poor_url, autocommit=True) as other:
        other.execute("BEGIN")
        other.execute("SELECT pg_current_xact_id()")
        other.execute("PREPARE TRANSACTION 'forgotten'")
        time.sleep(0.2)

        assert "'forgotten'" in complaint(vacuum.held_back(poor, longest_s=0.1))

        other.execute("ROLLBACK PREPARED 'forgotten'")
    fine(vacuum.held_back(poor, longest_s=0.1))


@pytest.mark.parametrize("slot", [True, False], ids=["slot", "standby"])
def test_a_standby_that_needs_old_rows_is_named(poor_url: str, slot: bool) -> None:
    """By its replication slot, or as a walsender without one (hot_standby_feedback)."""
    standby = PGconn.connect(f"{poor_url}&replication=database".encode())
    with connect(poor_url, "test") as poor:
        xid = int(one(poor, "SELECT pg_current_xact_id()::text"))
        if slot:
            standby.exec_(b"CREATE_REPLICATION_SLOT lagging PHYSICAL")
        position = one(poor, "SELECT pg_current_wal_flush_lsn()::text").encode()
        which = b"SLOT lagging " if slot else b""
        standby.exec_(b"START_REPLICATION %bPHYSICAL %b" % (which, position))
        # Hot standby feedback: time, xmin and its epoch, catalog xmin and its epoch.
        standby.put_copy_data(b"h" + struct.pack("!qIIII", 0, xid, 0, 0, 0))
        standby.flush()
        for _ in range(20):
            poor.execute("SELECT pg_current_xact_id()")
        time.sleep(0.2)

        what = complaint(vacuum.held_back(poor, most_transactions=10))
        fine(vacuum.held_back(poor, most_transactions=1_000))
    standby.finish()
    assert ("slot 'lagging'" if slot else "on the standby") in what
    if slot:
        with connect(poor_url, "test") as poor:
            gone = "SELECT NOT active FROM pg_replication_slots"
            eventually(lambda: one(poor, gone), 10, "the standby is gone")
            assert "inactive" in complaint(vacuum.held_back(poor, most_transactions=10))
            poor.execute("SELECT pg_drop_replication_slot('lagging')")


def test_dead_rows_that_pile_up(connection: psycopg.Connection) -> None:
    """The table, the count and when it was last vacuumed."""
    connection.execute("ALTER TABLE webhooks.lanes SET (autovacuum_enabled = off)")
    make_endpoint(connection)
    with connection.transaction():
        for cap in range(1, 31):
            connection.execute("UPDATE webhooks.lanes SET max_in_flight = %s", [cap])
    connection.execute("SELECT pg_stat_force_next_flush()")
    connection.execute("SELECT pg_stat_clear_snapshot()")

    findings = {finding.what.split()[0]: finding for finding in vacuum.dead_rows(connection, 20)}
    fine(vacuum.dead_rows(connection, 1_000))

    assert findings["lanes"].level is Level.WARN
    assert findings["lanes"].what.startswith("lanes has 30 dead rows beside ")
    assert findings["lanes"].what.endswith("not vacuumed yet")
    assert findings["deliveries_queue"].level is Level.OK


def test_autovacuum_off_is_a_failure(poor: psycopg.Connection) -> None:
    """No table's own settings help then."""
    assert "autovacuum is off" in complaint(vacuum.dead_rows(poor), Level.FAIL)


# The installation.


def test_an_older_schema(database_url: str) -> None:
    """It names both revisions, and the command."""
    schema.downgrade(database_url)

    finding = installation.schema(database_url)

    assert finding.level is Level.FAIL
    assert "this version needs" in finding.what
    assert "webhooks db upgrade" in finding.remedy


def test_the_keyring_of_another_database(settings: Settings, app: Flask, tmp_path: Path) -> None:
    """Found before a delivery finds out; the data directory's own is used where none is set."""
    Api(app).endpoint()
    other = Settings(database_url=settings.database_url, keyring=Keyring.generate("other"))
    datadir.write_keyring(tmp_path, KEYRING)
    kept = Settings(database_url=settings.database_url, data_dir=str(tmp_path))

    assert installation.keyring(other).level is Level.FAIL
    assert "test" in installation.keyring(other).what
    assert installation.keyring(Settings(database_url=settings.database_url)).level is Level.FAIL
    assert installation.keyring(settings).level is Level.OK
    assert installation.keyring(kept).level is Level.OK


@pytest.mark.parametrize(
    ("missing", "level", "ahead"),
    [
        (8, Level.OK, "7 days ahead"),
        (7, Level.WARN, "6 days ahead"),
        (4, Level.WARN, "3 days ahead"),
        (3, Level.FAIL, "2 days ahead"),
        (0, Level.FAIL, "not even for today"),
    ],
)
def test_partitions_that_run_out(
    connection: psycopg.Connection, missing: int, level: Level, ahead: str
) -> None:
    """Counted up to the first gap: under a week is a warning, under three days a failure (W137)."""
    day = datetime.now(UTC) + timedelta(days=missing)
    connection.execute(f"DROP TABLE webhooks.attempts_{day:%Y%m%d}")

    attempts, deliveries, events = installation.partitions(connection)

    assert (attempts.what, attempts.level) == (f"attempts: {ahead}", level)
    assert (deliveries.what, deliveries.level) == ("deliveries: 14 days ahead", Level.OK)
    assert events.level is Level.OK


def test_a_detached_partition_does_not_count(connection: psycopg.Connection) -> None:
    """A table of that name that is not attached takes no rows."""
    day = datetime.now(UTC) + timedelta(days=2)
    connection.execute(f"ALTER TABLE webhooks.events DETACH PARTITION webhooks.events_{day:%Y%m%d}")

    *_, events = installation.partitions(connection)

    assert (events.what, events.level) == ("events: 1 days ahead", Level.FAIL)


def test_maintenance_that_does_not_run(connection: psycopg.Connection) -> None:
    """Jobs that never ran, or missed more than a whole interval, are named."""
    first, *others = JOBS
    assert first.name in complaint(installation.jobs(connection))
    for job in others:
        connection.execute(
            "INSERT INTO webhooks.job_leases VALUES (%s, webhooks.uuid7(), now() + '1 minute')",
            [job.name],
        )
    connection.execute(
        "INSERT INTO webhooks.job_leases "
        "VALUES (%s, webhooks.uuid7(), now() - make_interval(secs => %s))",
        [first.name, first.seconds - 5],
    )
    fine(installation.jobs(connection))

    connection.execute(
        "UPDATE webhooks.job_leases SET leased_until = leased_until - interval '1 day' "
        "WHERE job = %s",
        [first.name],
    )

    assert complaint(installation.jobs(connection)).startswith(f"{first.name} last ran 24 h ago")


# The work.


def test_no_worker_is_a_failure(connection: psycopg.Connection) -> None:
    """Whether there never was one or its lease has ended."""
    assert complaint(work.live_workers(connection), Level.FAIL) == "none is alive"
    expire(connection, register(connection))

    assert "the last one was seen 0 s ago" in complaint(work.live_workers(connection), Level.FAIL)


def test_a_worker_that_beats_late(connection: psycopg.Connection) -> None:
    """It still has its lease, but missed three beats."""
    worker_id = register(connection)
    fine(work.live_workers(connection))

    connection.execute(
        "UPDATE webhooks.workers SET seen_at = now() - interval '20 s' WHERE id = %s", [worker_id]
    )

    assert "1 alive, the last beats 20 s to 20 s ago" in complaint(work.live_workers(connection))


def test_what_is_in_flight_without_a_worker(connection: psycopg.Connection) -> None:
    """As many as there are."""
    make_endpoint(connection)
    emit(connection, 3)
    worker_id = register(connection)
    assert len(claim(connection, worker_id)) == 3
    fine(work.strays(connection))

    connection.execute("DELETE FROM webhooks.workers")

    assert complaint(work.strays(connection)) == "3 are in flight and no worker holds them"


def test_what_waits_for_a_worker(connection: psycopg.Connection) -> None:
    """The oldest new delivery of an open lane, and its endpoint."""
    make_endpoint(connection)
    late = make_endpoint(connection)
    emit(connection, 2)
    fine(work.oldest_pending(connection))
    connection.execute(
        "UPDATE webhooks.deliveries SET created_at = now() - interval '10 minutes' "
        "WHERE endpoint_id = %s",
        [late],
    )

    what = complaint(work.oldest_pending(connection))
    assert what == f"10 min, for {ids.encode(ids.ENDPOINT, late)}"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE webhooks.lanes SET open_at = 'infinity'",
        "UPDATE webhooks.lanes SET rate_limit = 1, rate_burst = 1",
        "UPDATE webhooks.lanes SET broken_s = 30",
        "UPDATE webhooks.deliveries SET attempts = 1",
        "DELETE FROM webhooks.lanes",
    ],
)
def test_what_waits_for_a_good_reason(connection: psycopg.Connection, change: str) -> None:
    """Closed, rate-limited and broken lanes, and what was tried before, are no complaint."""
    make_endpoint(connection)
    emit(connection)
    connection.execute("UPDATE webhooks.deliveries SET created_at = now() - interval '10 minutes'")
    assert only(work.oldest_pending(connection)).level is Level.WARN

    connection.execute(change)

    fine(work.oldest_pending(connection))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("UPDATE webhooks.endpoints SET status = 'disabled'", "1 disabled"),
        ("UPDATE webhooks.lanes SET broken_s = 30", "1 with an open breaker"),
    ],
)
def test_endpoints_that_are_out(connection: psycopg.Connection, change: str, named: str) -> None:
    """Disabled ones and open breakers are counted; a pause is somebody's will."""
    make_endpoint(connection)
    connection.execute("UPDATE webhooks.endpoints SET status = 'paused'")
    fine(work.endpoints(connection))

    connection.execute(change)

    assert named in complaint(work.endpoints(connection))


# The command.


@pytest.mark.parametrize(
    ("levels", "code"),
    [
        ([], 0),
        ([Level.OK, Level.OK], 0),
        ([Level.OK, Level.WARN, Level.OK], 1),
        ([Level.FAIL, Level.WARN], 2),
    ],
)
def test_the_exit_code_is_the_worst_level(
    monkeypatch: pytest.MonkeyPatch, levels: list[Level], code: int
) -> None:
    """0 is well, 1 a warning, 2 a failure; each finding is a line, its remedy below it."""
    findings = [Finding("x", level, "seen", "do it") for level in levels]
    monkeypatch.setenv("DATABASE_URL", "postgresql://localhost/x")
    monkeypatch.setattr("webhooks.commands.doctor.examine", lambda settings: findings)

    plain = CliRunner().invoke(cli.main, ["doctor"])
    as_json = CliRunner().invoke(cli.main, ["doctor", "--json"])

    assert (plain.exit_code, as_json.exit_code) == (code, code)
    assert plain.stdout == "".join(f"{level:4}  x: seen\n      → do it\n" for level in levels)
    assert json.loads(as_json.stdout) == {
        "status": worst(findings),
        "findings": [
            {"check": "x", "level": level, "what": "seen", "remedy": "do it"} for level in levels
        ],
    }


def test_the_command_asks_the_database_that_is_set(
    monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    """Without a worker it fails, and says how to start one."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("WEBHOOKS_KEYRING", KEYRING)

    result = CliRunner().invoke(cli.main, ["doctor"])

    assert result.exit_code == 2
    assert "fail  workers: none is alive\n      → start some: gunicorn" in result.stdout
    assert "ok    keyring: " in result.stdout
