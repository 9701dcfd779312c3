"""Users, their passwords and their sessions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import psycopg
import pytest
from argon2 import PasswordHasher, extract_parameters
from flask import Flask

from webhooks import users
from webhooks.users import UserError

PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def context(app: Flask) -> Iterator[None]:
    with app.app_context():
        yield


def age(connection: psycopg.Connection, column: str, minutes: int) -> None:
    """Make every session older."""
    connection.execute(
        f"UPDATE webhooks.sessions SET {column} = now() - make_interval(mins => %s)", [minutes]
    )


def count(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT count(*) FROM webhooks.sessions").fetchone()
    assert row is not None
    return int(row[0])


def test_the_first_user_is_the_owner_and_later_ones_are_viewers() -> None:
    """Nobody has to name a role at the start, and nobody gets more than needed after it."""
    assert users.create("ana", PASSWORD).role == "owner"
    assert users.create("ben", PASSWORD).role == "viewer"
    assert users.create("cem", PASSWORD, "developer").role == "developer"


@pytest.mark.parametrize(
    ("username", "password", "role", "field"),
    [
        ("", PASSWORD, None, "username"),
        ("   ", PASSWORD, None, "username"),
        ("a" * 101, PASSWORD, None, "username"),
        ("a\nb", PASSWORD, None, "username"),
        ("a\0b", PASSWORD, None, "username"),
        ("ana", "1234567", None, "password"),
        ("ana", "x" * 1025, None, "password"),
        ("ana", PASSWORD, "king", "role"),
    ],
)
def test_bad_values_name_their_field(
    username: str, password: str, role: str | None, field: str
) -> None:
    """What cannot be taken is refused with the field's name, and nobody is stored."""
    with pytest.raises(UserError) as caught:
        users.create(username, password, role)

    assert field == caught.value.field
    assert users.find(username) is None


def test_lengths_at_the_limit_are_taken() -> None:
    """100 characters of name, and 8 and 1024 of password, are allowed."""
    users.create("a" * 100, "12345678")
    users.create("b", "x" * 1024)

    assert users.authenticate("a" * 100, "12345678") is not None
    assert users.authenticate("b", "x" * 1024) is not None
    assert users.authenticate("b", "x" * 1023) is None
    assert users.authenticate("b", "x" * 1025) is None


def test_a_name_is_taken_once() -> None:
    """The second user of a name is refused; the first keeps their password."""
    users.create("ana", PASSWORD)

    with pytest.raises(UserError, match="taken"):
        users.create("ana", "another password")

    assert users.authenticate("ana", PASSWORD) is not None


def test_the_stored_hash_is_argon2id_with_owasps_minimum() -> None:
    """19 MiB, two passes, one lane (OWASP Password Storage Cheat Sheet)."""
    stored = users.create("ana", PASSWORD).password_hash

    parameters = extract_parameters(stored)
    assert stored.startswith("$argon2id$")
    assert (
        parameters.memory_cost,
        parameters.time_cost,
        parameters.parallelism,
    ) == (19456, 2, 1)


@pytest.mark.parametrize("username", ["ana", "ANA", "nobody", "", "a\0b", "x" * 5000])
def test_a_wrong_password_or_name_opens_nothing(username: str) -> None:
    """Whatever is wrong, the answer is the same."""
    users.create("ana", PASSWORD)

    assert users.authenticate(username, "wrong password") is None


def test_an_unknown_name_is_verified_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash is computed for an unknown name, so that its answer takes as long."""
    users.authenticate("warm", "up the dummy")
    seen: list[str] = []
    verify = PasswordHasher.verify

    def counted(self: PasswordHasher, stored: str, password: bytes) -> bool:
        seen.append(stored)
        return verify(self, stored, password)

    monkeypatch.setattr(PasswordHasher, "verify", counted)
    assert users.authenticate("nobody", PASSWORD) is None

    assert len(seen) == 1
    assert extract_parameters(seen[0]).memory_cost == 19456


def test_a_hash_of_old_parameters_is_renewed_at_sign_in(connection: psycopg.Connection) -> None:
    """When the parameters grow, each password follows at its next use."""
    users.create("ana", PASSWORD)
    weak = PasswordHasher(time_cost=1, memory_cost=8192, parallelism=1).hash(PASSWORD)
    connection.execute("UPDATE webhooks.users SET password_hash = %s", [weak])

    assert users.authenticate("ana", PASSWORD) is not None

    row = connection.execute("SELECT password_hash FROM webhooks.users").fetchone()
    assert row is not None
    assert extract_parameters(row[0]).memory_cost == 19456


def test_a_new_password_ends_every_session(connection: psycopg.Connection) -> None:
    """Whoever had the old password is signed out everywhere."""
    user = users.create("ana", PASSWORD)
    token = users.open_session(user)

    users.set_password("ana", "a better password")

    assert users.find_session(token) is None
    assert users.authenticate("ana", PASSWORD) is None
    assert users.authenticate("ana", "a better password") is not None


def test_a_new_password_for_nobody_is_refused() -> None:
    """A name that does not exist is named in the error."""
    with pytest.raises(UserError, match="does not exist"):
        users.set_password("nobody", PASSWORD)


def test_only_the_tokens_hash_is_stored(connection: psycopg.Connection) -> None:
    """A copy of the table opens no session."""
    token = users.open_session(users.create("ana", PASSWORD), address="192.0.2.1")

    row = connection.execute("SELECT token_hash, address FROM webhooks.sessions").fetchone()
    assert (hashlib.sha256(token.encode()).digest(), "192.0.2.1") == row
    assert len(token) >= 43  # 32 bytes in base64


def test_a_session_finds_its_user() -> None:
    """The token of a live session leads to who signed in."""
    token = users.open_session(users.create("ana", PASSWORD))

    session = users.find_session(token)

    assert session is not None
    assert session.user.username == "ana"
    assert users.find_session(token + "x") is None
    assert users.find_session("") is None


@pytest.mark.parametrize(
    ("column", "minutes", "alive"),
    [("seen_at", 29, True), ("seen_at", 31, False), ("created_at", 719, True),
     ("created_at", 721, False)],
)  # fmt: skip
def test_a_session_ends(
    connection: psycopg.Connection, column: str, minutes: int, alive: bool
) -> None:
    """30 minutes after its last use, and 12 hours after it began."""
    token = users.open_session(users.create("ana", PASSWORD))

    age(connection, column, minutes)

    assert alive == (users.find_session(token) is not None)


@pytest.mark.parametrize(("touch", "alive"), [(True, True), (False, False)])
def test_use_keeps_a_session_and_polling_does_not(
    connection: psycopg.Connection, touch: bool, alive: bool
) -> None:
    """A page that only polls does not keep its user signed in."""
    token = users.open_session(users.create("ana", PASSWORD))
    age(connection, "seen_at", 20)
    users.find_session(token, touch=touch)

    connection.execute("UPDATE webhooks.sessions SET seen_at = seen_at - interval '20 minutes'")

    assert alive == (users.find_session(token) is not None)


def test_signing_out_closes_one_session() -> None:
    """The other browser of the same user stays signed in."""
    user = users.create("ana", PASSWORD)
    first, second = users.open_session(user), users.open_session(user)

    users.close_session(first)

    assert users.find_session(first) is None
    assert users.find_session(second) is not None


def test_sessions_that_are_over_are_removed(connection: psycopg.Connection) -> None:
    """Each sign-in clears away what nobody can use any more."""
    user = users.create("ana", PASSWORD)
    users.open_session(user)
    age(connection, "seen_at", 31)

    users.open_session(user)

    assert count(connection) == 1


def test_the_audit_log_names_who_and_never_a_password(connection: psycopg.Connection) -> None:
    """Creation, sign-in and a new password leave entries without secrets."""
    user = users.create("ana", PASSWORD, actor="webhooks up")
    token = users.open_session(user, address="192.0.2.1")
    users.set_password("ana", "a better password")

    rows = connection.execute(
        "SELECT action, actor, object, detail::text FROM webhooks.audit_log ORDER BY id"
    ).fetchall()
    assert [row[:3] for row in rows] == [
        ("user.create", "webhooks up", "ana"),
        ("session.open", "ana", "ana"),
        ("user.password", "command line", "ana"),
    ]
    for secret in (PASSWORD, "a better password", token):
        assert secret not in str(rows)
