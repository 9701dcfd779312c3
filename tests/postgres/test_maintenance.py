"""Maintenance jobs, and the leases that let any number of schedulers run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from uuid import uuid4

import psycopg

from tests.queue import one
from webhooks import maintenance
from webhooks.partitions import make_partitions
from webhooks.scheduler import JOBS, Job, run_job
from webhooks.settings import Settings


def test_partitions_are_kept_two_weeks_ahead(connection: psycopg.Connection) -> None:
    """A missing day of each table is made; a second run finds nothing to do."""
    connection.execute(
        "DO $$ DECLARE day text := to_char(now() AT TIME ZONE 'UTC' + interval '14 days', "
        "'YYYYMMDD'); BEGIN EXECUTE 'DROP TABLE webhooks.events_' || day; "
        "EXECUTE 'DROP TABLE webhooks.attempts_' || day; END $$")  # fmt: skip

    assert make_partitions(connection) == 2
    assert make_partitions(connection) == 0


def test_expired_idempotency_keys_go_and_live_ones_stay(connection: psycopg.Connection) -> None:
    """The window of a day is kept exactly: only keys past it are deleted."""
    connection.execute("SELECT webhooks.emit('default', 'a', '{}', 'old')")
    connection.execute("UPDATE webhooks.idempotency_keys SET expires_at = now()")
    connection.execute("SELECT webhooks.emit('default', 'a', '{}', 'new')")

    assert maintenance.expire_idempotency_keys(connection) == 1
    assert one(connection, "SELECT key FROM webhooks.idempotency_keys") == "new"


def test_idle_sessions_go(connection: psycopg.Connection) -> None:
    """A session that was idle for half an hour is deleted."""
    connection.execute(
        "WITH u AS (INSERT INTO webhooks.users (username, password_hash, role) "
        "VALUES ('ana', '', 'owner') RETURNING id) "
        "INSERT INTO webhooks.sessions (token_hash, user_id, seen_at) "
        "SELECT t, id, now() - make_interval(mins => m) FROM u, "
        "(VALUES ('\\x01'::bytea, 1), ('\\x02', 31)) AS s (t, m)")  # fmt: skip

    assert maintenance.expire_sessions(connection) == 1


def test_a_job_runs_where_its_lease_is_held(
    connection: psycopg.Connection, settings: Settings
) -> None:
    """A second scheduler leaves the job alone until the first one's lease has ended."""
    runs: list[int] = []
    job = Job("count", 60, lambda *_: runs.append(1) or len(runs))
    first, second = uuid4(), uuid4()

    assert run_job(settings, first, job) == 1
    assert run_job(settings, second, job) is None
    assert run_job(settings, first, job) == 2

    connection.execute("UPDATE webhooks.job_leases SET leased_until = now()")
    assert run_job(settings, second, job) == 3


def test_a_job_survives_a_database_that_is_away(settings: Settings) -> None:
    """The scheduler goes on; the job is tried again at its next time."""
    away = replace(settings, database_url="postgresql://nobody@127.0.0.1:1/none")
    assert run_job(away, uuid4(), JOBS[0]) is None


def test_the_scheduler_stops_on_sigterm(settings: Settings, connection: psycopg.Connection) -> None:
    """As a process: it runs its jobs at start and ends by itself when told to."""
    env = {**os.environ, "DATABASE_URL": settings.database_url}
    process = subprocess.Popen([sys.executable, "-m", "webhooks", "scheduler"], env=env)
    try:
        for _ in range(200):
            if one(connection, "SELECT count(*) FROM webhooks.job_leases") == len(JOBS):
                break
            connection.execute("SELECT pg_sleep(0.05)")
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
    assert one(connection, "SELECT count(*) FROM webhooks.job_leases") == len(JOBS)
