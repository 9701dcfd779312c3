"""Token buckets in the database, so that a limit is the installation's, not a process's."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import psycopg

CHUNK = 1_000
# Longer than any bucket takes to fill.
KEPT = "1 day"

TAKE = """
INSERT INTO webhooks.buckets AS b (name, tokens)
VALUES (%(name)s, %(burst)s - 1)
ON CONFLICT (name) DO UPDATE
SET tokens = least(%(burst)s, b.tokens + %(per_s)s * greatest(0,
        date_part('epoch', clock_timestamp() - b.at))) - 1,
    at = clock_timestamp()
WHERE least(%(burst)s, b.tokens + %(per_s)s * greatest(0,
        date_part('epoch', clock_timestamp() - b.at))) >= 1
RETURNING tokens
"""
LEFT = """
SELECT least(%(burst)s, tokens + %(per_s)s * greatest(0,
    date_part('epoch', clock_timestamp() - at)))
FROM webhooks.buckets WHERE name = %(name)s
"""
FORGET = """
DELETE FROM webhooks.buckets WHERE name IN (
    SELECT name FROM webhooks.buckets WHERE at < now() - %s::interval LIMIT %s
    FOR UPDATE SKIP LOCKED)
"""


@dataclass(frozen=True, slots=True)
class Bucket:
    """So many at once, and so many more each ``window_s`` seconds."""

    burst: int
    window_s: float

    @property
    def per_s(self) -> float:
        return self.burst / self.window_s


@dataclass(frozen=True, slots=True)
class Taken:
    """Whether there was a token; how many whole ones are left, and seconds until the next."""

    allowed: bool
    left: int
    wait_s: float


def take(connection: psycopg.Connection, bucket: Bucket, *names: str) -> Taken:
    """Take a token out of the bucket of these names, if there is one."""
    values = _values(bucket, names)
    row = connection.execute(TAKE, values).fetchone()
    if row is not None:
        return Taken(True, int(row[0]), 0.0 if row[0] >= 1 else (1 - row[0]) / bucket.per_s)
    return Taken(False, 0, wait_s(connection, bucket, *names))


def wait_s(connection: psycopg.Connection, bucket: Bucket, *names: str) -> float:
    """Seconds until there is a token; 0: there is one. Takes none."""
    row = connection.execute(LEFT, _values(bucket, names)).fetchone()
    left = bucket.burst if row is None else row[0]
    return max(0.0, (1 - left) / bucket.per_s)


def forget_full(connection: psycopg.Connection) -> int:
    """Delete buckets that nobody has used for a day; answers how many."""
    total = 0
    while True:
        gone = connection.execute(FORGET, [KEPT, CHUNK]).rowcount
        total += gone
        if gone < CHUNK:
            return total


def _values(bucket: Bucket, names: tuple[str, ...]) -> dict[str, object]:
    """Names may be long, and anything; the row's is their hash."""
    name = hashlib.sha256("\0".join(names).encode("utf-8", "surrogatepass")).hexdigest()
    return {"name": name, "burst": float(bucket.burst), "per_s": bucket.per_s}
