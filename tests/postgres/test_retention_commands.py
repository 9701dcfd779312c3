"""webhooks retention, from the command line."""

from __future__ import annotations

import psycopg
import pytest

from tests.postgres.test_commands import done, refused, run
from tests.postgres.test_retention import emit_long_ago, make_days
from tests.queue import make_endpoint, one
from webhooks import ids


@pytest.fixture(autouse=True)
def _database(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)


def test_the_plan_says_what_is_kept_and_what_goes(connection: psycopg.Connection) -> None:
    """Each table's days, then the days that are due, or that nothing is."""
    assert done("retention", "plan").splitlines() == [
        "events: kept for 32 days",
        "deliveries: kept for 30 days",
        "attempts: kept for 30 days",
        "audit log: kept for 400 days",
        "Nothing is due.",
    ]
    day = make_days(connection)
    make_endpoint(connection)
    emit_long_ago(connection)

    *_, head, attempts, deliveries, events = done("retention", "plan").splitlines()

    assert head.split() == ["TABLE", "DAY", "SIZE", "STATE"]
    assert attempts.split()[:2] == ["attempts", str(day)]
    assert attempts.endswith("due")
    assert deliveries.startswith("deliveries")
    assert events.endswith("deliveries of that day have not finished")


def test_a_tenants_payload_days_are_set_and_shown(connection: psycopg.Connection) -> None:
    """A number of days, or none; anything else is refused with the remedy."""
    days = ("retention", "payload-days", "default")
    assert done(*days) == "as long as their events\n"
    assert done(*days, "7") == "7 days\n"
    assert one(connection, "SELECT payload_days FROM webhooks.tenants") == 7
    assert one(connection, "SELECT detail FROM webhooks.audit_log") == {"payload_days": [None, 7]}
    assert done(*days, "none") == "as long as their events\n"
    for wrong in ("0", "3651", "-1", "a week", "٣"):
        assert "1 to 3650, or none" in refused("retention", "payload-days", "default", "--", wrong)
    assert "does not exist" in refused("retention", "payload-days", "nobody")


def test_an_event_is_erased_by_its_id(connection: psycopg.Connection) -> None:
    """Its payload is gone; an id that is unknown or malformed is refused."""
    event_id, _ = emit_long_ago(connection)
    text = ids.encode(ids.EVENT, event_id)

    assert done("retention", "erase-event", text) == f"{text}: erased\n"

    assert one(connection, "SELECT payload FROM webhooks.events") is None
    assert "evt_" in refused("retention", "erase-event", "dlv_1")
    unknown = ids.encode(ids.EVENT, one(connection, "SELECT webhooks.uuid7()"))
    assert "does not exist" in refused("retention", "erase-event", unknown)


def test_a_tenant_is_erased_when_that_is_confirmed(connection: psycopg.Connection) -> None:
    """Not by a slip: it asks, and does nothing on a no."""
    emit_long_ago(connection)
    connection.execute("UPDATE webhooks.tenants SET created_at = now() - interval '60 days'")

    assert "payloads erased" not in run_no(connection)
    assert done("retention", "erase-tenant", "default", "--yes") == "default: 1 payloads erased\n"
    assert one(connection, "SELECT payload FROM webhooks.events") is None


def run_no(connection: psycopg.Connection) -> str:
    output = run("retention", "erase-tenant", "default", input="n\n").output
    assert one(connection, "SELECT payload FROM webhooks.events") is not None
    return output
