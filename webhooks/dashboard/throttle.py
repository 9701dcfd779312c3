"""A limit on failed sign-ins, of the whole installation."""

from __future__ import annotations

from webhooks import buckets
from webhooks.buckets import Bucket
from webhooks.web_database import psycopg_connection

WINDOW_S = 300.0
# Failures in the window: of one name from one address, and of one address.
PER_NAME = Bucket(10, WINDOW_S)
PER_ADDRESS = Bucket(50, WINDOW_S)
LONGEST_NAME = 100


def wait_s(username: str, address: str) -> float:
    """Seconds until this name may be tried again from this address; 0: now."""
    with psycopg_connection() as connection:
        return max(
            buckets.wait_s(connection, PER_NAME, "sign-in", _folded(username), address),
            buckets.wait_s(connection, PER_ADDRESS, "sign-in", address),
        )


def failed(username: str, address: str) -> None:
    """Count a failure."""
    with psycopg_connection() as connection:
        buckets.take(connection, PER_NAME, "sign-in", _folded(username), address)
        buckets.take(connection, PER_ADDRESS, "sign-in", address)


def _folded(username: str) -> str:
    return username.strip().casefold()[:LONGEST_NAME]
