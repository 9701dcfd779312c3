"""endpoints: made, changed, paused, resumed and deleted, with their lanes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from flask import Flask

from tests.api import URL
from tests.endpoints import create, lane
from tests.queue import claim, emit, one, register, statuses
from webhooks import endpoints, tenants
from webhooks.db import EVER_SINCE
from webhooks.secrets import Keyring, Place
from webhooks.settings import Settings


@pytest.fixture
def context(app: Flask) -> Iterator[Flask]:
    """The app, in its context."""
    with app.app_context():
        yield app


def test_an_endpoint_comes_with_all_that_delivering_needs(
    context: Flask, connection: psycopg.Connection
) -> None:
    """Lane in the tenant's shard, subscriptions, and a secret encrypted in its place."""
    endpoint, secret = create(context, event_types=["invoice.*", "a", "invoice.*"])

    row = connection.execute(
        "SELECT id, tenant_id, endpoint_id, ciphertext, valid_until = 'infinity' "
        "FROM webhooks.signing_secrets"
    ).fetchone()
    assert row is not None
    assert row[2] == endpoint.id
    assert row[4] is True
    assert secret[6:] not in row[3]
    keyring: Keyring = context.extensions["webhooks_keyring"]
    place = Place("signing_secrets", row[1], row[0], "ciphertext")
    assert keyring.decrypt(place, row[3]) == secret.encode()
    assert [s.pattern for s in endpoint.subscriptions] == ["a", "invoice.*"]
    made = lane(connection)
    assert (made["endpoint_id"], made["open"], made["deleted"]) == (endpoint.id, True, False)
    assert made["shard"] == one(connection, "SELECT webhooks.shard_of(id) FROM webhooks.tenants")
    assert made["max_in_flight"] == endpoint.max_in_flight == 50
    assert endpoint.timeout_s == 20


def test_two_endpoints_never_share_a_secret(context: Flask) -> None:
    """Each secret is 32 random bytes of its own (S11)."""
    assert len({create(context)[1] for _ in range(20)}) == 20


def test_a_claim_finds_the_new_endpoint(context: Flask, connection: psycopg.Connection) -> None:
    """What is made here is what the engine reads."""
    endpoint, _ = create(context, timeout_s=7.5, retry_policy={"delays_s": [1, 2]})
    emit(connection)

    (found,) = claim(connection, register(connection))

    assert found.target is not None
    assert (found.target.url, found.target.timeout_s) == (URL, 7.5)
    assert found.target.retry_policy == {"delays_s": [1, 2]}
    assert found.endpoint_id == endpoint.id


BAD: list[tuple[str, Any, str]] = [
    ("url", "", "url"),
    ("url", "ftp://example.com/", "url"),
    ("url", "http://10.0.0.1/", "url"),
    ("url", "https://user:pw@example.com/", "url"),
    ("url", "https://example.com/\0", "url"),
    ("url", "https://example.com/" + "x" * 10_000, "url"),
    ("event_types", [], "event_types"),
    ("event_types", [f"a{n}" for n in range(101)], "event_types"),
    ("event_types", ["a", ""], "event_types[1]"),
    ("event_types", ["a*"], "event_types[0]"),
    ("event_types", ["*.a"], "event_types[0]"),
    ("event_types", ["a..b"], "event_types[0]"),
    ("event_types", ["a\n"], "event_types[0]"),
    ("event_types", ["é"], "event_types[0]"),
    ("event_types", ["x" * 256], "event_types[0]"),
    ("description", "x" * 501, "description"),
    ("description", "a\0b", "description"),
    ("max_in_flight", 0, "max_in_flight"),
    ("max_in_flight", 1001, "max_in_flight"),
    ("max_in_flight", 10**30, "max_in_flight"),
    ("max_in_flight", 1.5, "max_in_flight"),
    ("max_in_flight", True, "max_in_flight"),
    ("timeout_s", 0.5, "timeout_s"),
    ("timeout_s", 61, "timeout_s"),
    ("timeout_s", float("nan"), "timeout_s"),
    ("timeout_s", float("inf"), "timeout_s"),
    ("rate_limit", {}, "rate_limit.per_second"),
    ("rate_limit", {"per_second": 0}, "rate_limit.per_second"),
    ("rate_limit", {"per_second": 1e-300}, "rate_limit.per_second"),
    ("rate_limit", {"per_second": float("nan")}, "rate_limit.per_second"),
    ("rate_limit", {"per_second": float("inf")}, "rate_limit.per_second"),
    ("rate_limit", {"per_second": 100_001}, "rate_limit.per_second"),
    ("rate_limit", {"per_second": True}, "rate_limit.per_second"),
    ("rate_limit", {"per_second": "5"}, "rate_limit.per_second"),
    ("rate_limit", {"per_second": 5, "burst": 0}, "rate_limit.burst"),
    ("rate_limit", {"per_second": 5, "burst": 2.5}, "rate_limit.burst"),
    ("rate_limit", {"per_second": 5, "burst": 10**5000}, "rate_limit.burst"),
    ("rate_limit", {"per_second": 1000, "burst": 49}, "rate_limit.burst"),
    ("rate_limit", {"per_second": 5, "per_minute": 1}, "rate_limit.per_minute"),
    ("retry_policy", {"base_s": -1}, "retry_policy.base_s"),
    ("retry_policy", {"attempts": 101}, "retry_policy.attempts"),
    ("retry_policy", {"delays_s": "x"}, "retry_policy.delays_s"),
    ("retry_policy", {"delays_s": [1, None]}, "retry_policy.delays_s[1]"),
    ("retry_policy", {"bas_s": 1}, "retry_policy.bas_s"),
    ("retry_policy", {"base_s": "x" * 10_000}, "retry_policy.base_s"),
]


def test_a_bad_value_is_refused_by_create_and_by_update(
    context: Flask, settings: Settings, connection: psycopg.Connection
) -> None:
    """Both take the same values; the error names the field and stays short (W029, W038)."""
    endpoint, _ = create(context)

    for name, value, field in BAD:
        with pytest.raises(endpoints.EndpointError) as created:
            create(context, **{name: value})
        with pytest.raises(endpoints.EndpointError) as updated:
            endpoints.update(endpoint, settings, actor="ada", **{name: value})
        assert (created.value.field, updated.value.field) == (field, field)
        assert len(created.value.message) < 300

    assert one(connection, "SELECT count(*) FROM webhooks.endpoints") == 1
    assert one(connection, "SELECT count(*) FROM webhooks.audit_log") == 1


def test_an_update_changes_what_it_names_alone(
    context: Flask, settings: Settings, connection: psycopg.Connection
) -> None:
    """The lane's cap follows; subscriptions that stay keep their rows; the secret stays (W174)."""
    endpoint, _ = create(context, event_types=["a", "b"], description="d")
    secret = "SELECT ciphertext FROM webhooks.signing_secrets"
    kept = "SELECT id FROM webhooks.subscriptions WHERE pattern = 'b'"
    before = one(connection, secret), one(connection, kept)

    endpoints.update(endpoint, settings, actor="bob", max_in_flight=7, event_types=["c", "b"])

    assert (one(connection, secret), one(connection, kept)) == before
    assert lane(connection)["max_in_flight"] == endpoint.max_in_flight == 7
    assert [s.pattern for s in endpoint.subscriptions] == ["b", "c"]
    assert (endpoint.url, endpoint.description) == (URL, "d")
    assert endpoint.updated_at > endpoint.created_at


def test_an_update_that_changes_nothing_leaves_no_trace(
    context: Flask, settings: Settings, connection: psycopg.Connection
) -> None:
    """Neither an audit entry nor another time, and the row is not kept locked."""
    endpoint, _ = create(context, event_types=["b", "a"], retry_policy={"attempts": 3})
    before = endpoint.updated_at

    endpoints.update(
        endpoint,
        settings,
        actor="bob",
        url=URL,
        event_types=["a", "b"],
        description="",
        retry_policy={"attempts": 3},
        timeout_s=20,
    )

    assert endpoint.updated_at == before
    assert one(connection, "SELECT count(*) FROM webhooks.audit_log") == 1
    connection.execute("SELECT FROM webhooks.endpoints FOR UPDATE NOWAIT")


def test_a_retry_policy_can_be_taken_back(context: Flask, settings: Settings) -> None:
    """None is the installation's policy again."""
    endpoint, _ = create(context, retry_policy={"attempts": 3})

    endpoints.update(endpoint, settings, actor="ada", retry_policy=None)

    assert endpoint.retry_policy is None


def test_concurrent_updates_of_event_types_do_not_collide(
    app: Flask, settings: Settings, connection: psycopg.Connection
) -> None:
    """Each sees what the one before it left; the last one wins whole."""
    with app.app_context():
        endpoint_id = create(app)[0].id
    barrier = threading.Barrier(4, timeout=20)

    def update(n: int) -> None:
        with app.app_context():
            found = endpoints.find(None, endpoint_id)
            assert found is not None
            assert [s.pattern for s in found.subscriptions] == ["*"]
            barrier.wait()
            endpoints.update(found, settings, actor="ada", event_types=["new", f"own{n}"])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(update, range(4)))

    assert one(connection, "SELECT count(*) FROM webhooks.subscriptions") == 2


def test_the_lane_follows_the_rate_limit(
    context: Flask, settings: Settings, connection: psycopg.Connection
) -> None:
    """Its columns are the endpoint's; a new rate counts from now on, another change does not."""
    endpoint, _ = create(context, rate_limit={"per_second": 2.5})
    assert (endpoint.rate_limit, endpoint.rate_burst) == (2.5, 3)
    assert (lane(connection)["rate_limit"], lane(connection)["rate_burst"]) == (2.5, 3)
    connection.execute("UPDATE webhooks.lanes SET rate_open_at = now() + interval '1 hour'")
    ahead = lane(connection)["rate_open_at"]

    endpoints.update(endpoint, settings, actor="ada", max_in_flight=7)
    assert lane(connection)["rate_open_at"] == ahead
    endpoints.update(endpoint, settings, actor="ada", rate_limit={"per_second": 2.5, "burst": 9})

    now = lane(connection)
    assert (now["rate_limit"], now["rate_burst"], now["rate_open_at"]) == (2.5, 9, EVER_SINCE)
    assert now["max_in_flight"] == 7
    endpoints.update(endpoint, settings, actor="ada", rate_limit=None)
    assert (lane(connection)["rate_limit"], lane(connection)["rate_burst"]) == (None, None)


@pytest.mark.parametrize(("per_second", "burst"), [(0.001, 1), (1, 1), (19.5, 20), (1000, 1000)])
def test_a_burst_defaults_to_one_second(context: Flask, per_second: float, burst: int) -> None:
    """Rounded up, at least one."""
    endpoint, _ = create(context, rate_limit={"per_second": per_second})

    assert endpoint.rate_burst == burst


def test_the_least_burst_is_a_twentieth_of_a_second(context: Flask) -> None:
    """As much as falls due between two looks of a worker: 50 of 1,000 a second."""
    endpoint, _ = create(context, rate_limit={"per_second": 1000, "burst": 50})

    assert endpoint.rate_burst == 50


def test_a_deleted_endpoint_leaves_a_tombstone_and_its_history(
    context: Flask, connection: psycopg.Connection
) -> None:
    """What waits is cancelled with the reason, in flight ends as usual, rows stay (W150, W119)."""
    endpoint, _ = create(context, max_in_flight=1)
    emit(connection, 3)
    claim(connection, register(connection))

    endpoints.delete(endpoint, actor="ada")

    assert statuses(connection) == {"in_flight": 1, "cancelled": 2}
    assert one(
        connection, "SELECT DISTINCT reason FROM webhooks.deliveries WHERE status='cancelled'"
    )
    assert endpoints.find(None, endpoint.id) is None
    closed = lane(connection)
    assert (closed["open"], closed["deleted"]) == (False, True)
    emit(connection)
    assert sum(statuses(connection).values()) == 3


def test_a_deleted_endpoint_stays_as_it_is(
    context: Flask, settings: Settings, connection: psycopg.Connection
) -> None:
    """Whoever still holds it can neither reopen its lane nor change it."""
    endpoint, _ = create(context)
    endpoints.delete(endpoint, actor="ada")
    before = lane(connection)
    deleted_at = endpoint.deleted_at

    endpoints.resume(endpoint, actor="bob")
    endpoints.pause(endpoint, actor="bob")
    endpoints.update(endpoint, settings, actor="bob", description="x")
    endpoints.delete(endpoint, actor="bob")

    assert lane(connection) == before
    assert (endpoint.deleted_at, endpoint.description) == (deleted_at, "")
    actors = connection.execute("SELECT DISTINCT actor FROM webhooks.audit_log").fetchall()
    assert actors == [("ada",)]


def test_an_endpoint_is_found_by_its_tenant_alone(context: Flask) -> None:
    """Another tenant's id finds nothing; None looks at all tenants (W158)."""
    acme = tenants.create("acme", "Acme")
    endpoint, _ = create(context, "acme")
    default = tenants.find("default")

    assert default is not None
    assert endpoints.find(acme.id, endpoint.id) == endpoint
    assert endpoints.find(None, endpoint.id) == endpoint
    assert endpoints.find(default.id, endpoint.id) is None


def test_every_change_is_in_the_audit_log_without_a_secret(
    context: Flask, settings: Settings, connection: psycopg.Connection
) -> None:
    """Who changed what from what to what; a URL's query may be a token and stays out (W152)."""
    endpoint, secret = create(context, url=f"{URL}?token=canary")

    endpoints.update(endpoint, settings, actor="bob", description="new", url=f"{URL}2?t=canary")
    endpoints.pause(endpoint, actor="eve")
    endpoints.pause(endpoint, actor="eve")
    endpoints.resume(endpoint, actor="eve")
    endpoints.delete(endpoint, actor="ada")

    rows = connection.execute(
        "SELECT actor, action, detail FROM webhooks.audit_log ORDER BY id"
    ).fetchall()
    assert [row[:2] for row in rows] == [
        ("ada", "endpoint.create"),
        ("bob", "endpoint.update"),
        ("eve", "endpoint.pause"),
        ("eve", "endpoint.resume"),
        ("ada", "endpoint.delete"),
    ]
    assert rows[1][2] == {"description": ["", "new"], "url": [URL, f"{URL}2"]}
    assert "canary" not in str(rows)
    assert secret not in str(rows)
