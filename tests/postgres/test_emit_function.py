"""webhooks.emit: what a producer in the same database calls."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from webhooks.db import connect


@pytest.fixture(params=["database_url", "old_database_url"], ids=["newest", "PostgreSQL 15"])
def connection(request: pytest.FixtureRequest) -> Iterator[psycopg.Connection]:
    """A connection to the newest PostgreSQL, and to the oldest that we support."""
    with connect(request.getfixturevalue(request.param), "test") as opened:
        yield opened


def subscribe(connection: psycopg.Connection, *patterns: str) -> str:
    """An endpoint of the default tenant with these patterns; answers its id."""
    row = connection.execute(
        "INSERT INTO webhooks.endpoints (tenant_id, url, timeout_s, max_in_flight) "
        "SELECT id, 'http://127.0.0.1:1/', 20, 5 FROM webhooks.tenants RETURNING tenant_id, id"
    ).fetchone()
    assert row is not None
    for pattern in patterns:
        connection.execute(
            "INSERT INTO webhooks.subscriptions (tenant_id, endpoint_id, pattern) "
            "VALUES (%s, %s, %s)", [*row, pattern])  # fmt: skip
    return str(row[1])


def emit(connection: psycopg.Connection, *arguments: object) -> object:
    marks = ", ".join(["%s"] * len(arguments))
    row = connection.execute(f"SELECT webhooks.emit({marks})", arguments).fetchone()
    assert row is not None
    return row[0]


def deliveries(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT count(*) FROM webhooks.deliveries").fetchone()
    assert row is not None
    return int(row[0])


def test_payload_is_stored_as_the_bytes_given(connection: psycopg.Connection) -> None:
    """Key order, spacing, number spelling and escapes survive (W007, W194)."""
    payload = '{"bb":1, "a":1.10,"z":1e5 ,"u":"\\u0000","n":50755254975729665}'

    emit(connection, "default", "invoice.paid", payload)

    row = connection.execute("SELECT payload FROM webhooks.events").fetchone()
    assert row == (payload.encode(),)


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("invoice.paid", True),
        ("invoice.*", True),
        ("*", True),
        ("invoice", False),
        ("invoice.paid.*", False),
        ("invoic.*", False),
        ("invoice.pai", False),
    ],
)
def test_patterns_match_whole_words(
    connection: psycopg.Connection, pattern: str, matches: bool
) -> None:
    """A pattern is the type, one of its prefixes with .*, or a star alone."""
    subscribe(connection, pattern)

    emit(connection, "default", "invoice.paid", "{}")

    assert deliveries(connection) == int(matches)


def test_an_endpoint_with_two_matching_patterns_gets_one_delivery(
    connection: psycopg.Connection,
) -> None:
    """Overlapping patterns of one endpoint never duplicate; two endpoints both get it (W149)."""
    subscribe(connection, "invoice.*", "*", "invoice.paid")
    subscribe(connection, "*")

    emit(connection, "default", "invoice.paid", "{}")

    assert deliveries(connection) == 2


def test_a_rolled_back_emit_leaves_nothing(connection: psycopg.Connection) -> None:
    """The event lives and dies with the producer's transaction (W115)."""
    subscribe(connection, "*")

    connection.execute("BEGIN")
    emit(connection, "default", "a", "{}")
    connection.execute("ROLLBACK")

    assert deliveries(connection) == 0
    assert connection.execute("SELECT 1 FROM webhooks.events").fetchone() is None


def test_same_key_and_body_answers_the_first_event(connection: psycopg.Connection) -> None:
    """An idempotency key makes the second emit a no-op with the first one's id."""
    subscribe(connection, "*")

    first = emit(connection, "default", "a", "{}", "key-1")
    again = emit(connection, "default", "a", "{}", "key-1")

    assert again == first
    assert deliveries(connection) == 1


@pytest.mark.parametrize(
    ("arguments", "state"),
    [
        (("nobody", "a", "{}"), "WH001"),
        (("default", "a..b", "{}"), "WH003"),
        (("default", "a" * 256, "{}"), "WH003"),
        (("default", "", "{}"), "WH003"),
        (("default", "a", "{"), "WH004"),
        (("default", "a", ""), "WH004"),
        (("default", "a", None), "WH004"),
        (("default", "a", "[" * 100_000), "WH004"),
        (("default", "a", "{}", " "), "WH005"),
        (("default", "a", "{}", "k" * 256), "WH005"),
        (("default", "a", "{}", "line\nbreak"), "WH005"),
    ],
)
def test_bad_input_is_refused_with_its_sqlstate(
    connection: psycopg.Connection, arguments: tuple[object, ...], state: str
) -> None:
    """Each mistake of the producer has a documented SQLSTATE, and stores nothing."""
    with pytest.raises(psycopg.DatabaseError) as raised:
        emit(connection, *arguments)

    assert raised.value.sqlstate == state
    assert connection.execute("SELECT 1 FROM webhooks.events").fetchone() is None


def test_a_key_used_with_another_body_conflicts(connection: psycopg.Connection) -> None:
    """The same key with another payload or type is WH002, never a silent drop."""
    emit(connection, "default", "a", "{}", "key-1")

    with pytest.raises(psycopg.DatabaseError) as raised:
        emit(connection, "default", "a", "{ }", "key-1")

    assert raised.value.sqlstate == "WH002"


def test_a_missing_partition_is_made_by_the_emit(connection: psycopg.Connection) -> None:
    """With every event partition gone, an emit makes today's and loses nothing (W137)."""
    partitions = connection.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits "
        "WHERE inhparent = 'webhooks.events'::regclass").fetchall()  # fmt: skip
    for (name,) in partitions:
        connection.execute(f"DROP TABLE {name}")

    emit(connection, "default", "a", "{}")

    assert connection.execute("SELECT count(*) FROM webhooks.events").fetchone() == (1,)


def test_ids_carry_their_time(connection: psycopg.Connection) -> None:
    """uuid7 is version 7, variant 10, and within a second of the database's clock (RFC 9562)."""
    row = connection.execute(
        "SELECT id::text, abs(extract(epoch FROM clock_timestamp() - webhooks.uuid7_time(id))) "
        "FROM (SELECT webhooks.uuid7() AS id) AS made").fetchone()  # fmt: skip

    assert row is not None
    assert row[0][14] == "7"
    assert row[0][19] in "89ab"
    assert row[1] < 1


def test_a_producer_can_do_what_it_was_granted_and_nothing_else(
    connection: psycopg.Connection,
) -> None:
    """With USAGE and EXECUTE on emit and emit_bytes a role emits; the rest is closed to it."""
    role = f"producer_{connection.info.dbname}"
    connection.execute(f"CREATE ROLE {role}")
    try:
        connection.execute(f"GRANT USAGE ON SCHEMA webhooks TO {role}")
        connection.execute(
            f"GRANT EXECUTE ON FUNCTION webhooks.emit, webhooks.emit_bytes TO {role}"
        )
        connection.execute(f"SET ROLE {role}")
        assert emit(connection, "default", "a", "{}")
        for forbidden in (
            "SELECT webhooks.accept(gen_random_uuid(), 'x y', 'no json')",
            "SELECT webhooks.make_partitions(3)",
            "SELECT 1 FROM webhooks.events",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(forbidden)
    finally:
        connection.execute("RESET ROLE")
        connection.execute(f"DROP OWNED BY {role}")
        connection.execute(f"DROP ROLE {role}")
