"""The scheduler: which maintenance function runs how often.

Any number of schedulers may run; each job runs on the one that holds its lease. Nothing
that a delivery needs waits for it.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID, uuid4

import psycopg
from apscheduler.schedulers.background import BackgroundScheduler

from webhooks import buckets, maintenance, partitions, payloads, retention
from webhooks.db import connect
from webhooks.settings import Settings

log = logging.getLogger(__name__)

ENDING = {signal.SIGTERM, signal.SIGINT}

# A row, not a session lock: that would not survive a pooler in transaction mode.
TAKE_LEASE = """
INSERT INTO webhooks.job_leases AS l (job, holder, leased_until)
VALUES (%(job)s, %(holder)s, now() + make_interval(secs => %(seconds)s))
ON CONFLICT (job) DO UPDATE
SET holder = excluded.holder, leased_until = excluded.leased_until
WHERE l.leased_until <= now() OR l.holder = excluded.holder
"""


@dataclass(frozen=True, slots=True)
class Job:
    """A maintenance function and its interval in seconds, which is also its lease."""

    name: str
    seconds: int
    run: Callable[[psycopg.Connection, Settings], int]


JOBS = (
    Job("make_partitions", 600, lambda connection, _: partitions.make_partitions(connection)),
    Job("expire_idempotency_keys", 300, lambda c, _: maintenance.expire_idempotency_keys(c)),
    Job("expire_sessions", 300, lambda c, _: maintenance.expire_sessions(c)),
    Job("forget_buckets", 3_600, lambda connection, _: buckets.forget_full(connection)),
    Job("expire_deliveries", 300, maintenance.expire_deliveries),
    Job("expire_payloads", 600, lambda connection, _: payloads.expire(connection)),
    Job("drop_days", 600, retention.drop_due),
    Job("drop_audit", 3_600, retention.drop_audit),
    Job("drop_counts", 3_600, retention.drop_counts),
)


def run(settings: Settings) -> None:
    """Run the jobs until SIGTERM or SIGINT; a job under way is finished first."""
    # waited for instead of handled: APScheduler fails when it is stopped in the midst of its loop
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    scheduler = BackgroundScheduler(timezone="UTC")
    holder = uuid4()
    for job in JOBS:
        scheduler.add_job(
            run_job,
            "interval",
            [settings, holder, job],
            seconds=job.seconds,
            id=job.name,
            next_run_time=datetime.now(UTC),
            max_instances=1,
            coalesce=True,
            misfire_grace_time=None,
        )
    scheduler.start()
    signal.sigwait(ENDING)
    scheduler.shutdown()


def run_job(settings: Settings, holder: UUID, job: Job) -> int | None:
    """Run one job if nobody else holds its lease; answers its count, or None."""
    try:
        with connect(settings.database_url, f"scheduler {job.name}") as connection:
            lease = {"job": job.name, "holder": holder, "seconds": job.seconds - 1}
            if connection.execute(TAKE_LEASE, lease).rowcount == 0:
                return None
            count = job.run(connection, settings)
    except psycopg.Error as error:
        log.warning("%s: database away or busy, again in %d s: %s", job.name, job.seconds, error)
        return None
    if count:
        log.info("%s: %d", job.name, count)
    return count
