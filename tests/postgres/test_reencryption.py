"""Every stored secret moves to the keyring's first key, whatever happens meanwhile."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest
from click.testing import CliRunner, Result

from tests.queue import make_endpoints, one
from webhooks import cli
from webhooks.reencryption import BATCH, reencrypt
from webhooks.secrets import Keyring, Place, SecretError

OLD, NEW = Keyring.generate("old"), Keyring.generate("new")
BOTH = Keyring.parse(f"{NEW},{OLD}")

Secrets = dict[Place, bytes]


def fill(connection: psycopg.Connection, count: int, keyring: Keyring) -> Secrets:
    """So many endpoints, each with a signing secret of its own and custom headers."""
    tenant = one(connection, "SELECT id FROM webhooks.tenants WHERE key = 'default'")
    made: Secrets = {}
    with connection.transaction(), connection.cursor() as cursor:
        for n, endpoint_id in enumerate(sorted(make_endpoints(connection, count))):
            signing = Place("signing_secrets", tenant, UUID(int=n + 1), "ciphertext")
            headers = Place("endpoints", tenant, endpoint_id, "headers")
            made |= {signing: f"whsec_{n}".encode(), headers: f"headers {n}".encode()}
            cursor.execute(
                "INSERT INTO webhooks.signing_secrets (id, tenant_id, endpoint_id, ciphertext) "
                "VALUES (%s, %s, %s, %s)",
                [signing.row_id, tenant, endpoint_id, keyring.encrypt(signing, made[signing])],
            )
            cursor.execute(
                "UPDATE webhooks.endpoints SET headers = %s WHERE id = %s",
                [keyring.encrypt(headers, made[headers]), endpoint_id],
            )
    return made


def read(connection: psycopg.Connection, keyring: Keyring, places: Secrets) -> Secrets:
    """What the places hold, by this keyring; without what it cannot decrypt."""
    found: Secrets = {}
    for place in places:
        stored = one(
            connection,
            f"SELECT {place.column} FROM webhooks.{place.table} WHERE id = %s",
            place.row_id,
        )
        try:
            found[place] = keyring.decrypt(place, stored)
        except SecretError:
            continue
    return found


def run(database_url: str, keyring: str, *arguments: str) -> Result:
    env = {"DATABASE_URL": database_url, "WEBHOOKS_KEYRING": keyring}
    return CliRunner().invoke(cli.main, ["secrets", *arguments], env=env)


def test_all_secrets_are_the_same_under_the_first_key(
    connection: psycopg.Connection, database_url: str
) -> None:
    """After a rotation the new key alone decrypts everything, and the old one may go (W183)."""
    made = fill(connection, BATCH + 1, Keyring.parse(OLD))

    result = run(database_url, f"{NEW},{OLD}", "rotate")

    assert result.exit_code == 0, result.output
    assert read(connection, Keyring.parse(NEW), made) == made
    assert f"{2 * BATCH + 2} encrypted anew, with the key new." in result.stdout
    assert "old encrypts nothing any more: remove it" in result.stdout
    audit = connection.execute("SELECT actor, action, object, detail FROM webhooks.audit_log")
    assert audit.fetchall() == [
        ("command line", "keyring.rotate", "new", {"secrets": 2 * BATCH + 2})
    ]


def test_a_dry_run_writes_nothing(connection: psycopg.Connection, database_url: str) -> None:
    """It decrypts and counts, and nothing else."""
    made = fill(connection, 2, Keyring.parse(OLD))

    result = run(database_url, f"{NEW},{OLD}", "rotate", "--dry-run")

    assert (result.exit_code, result.stdout.splitlines()[0]) == (
        0, "4 would be encrypted anew, with the key new.",
    )  # fmt: skip
    assert read(connection, Keyring.parse(OLD), made) == made
    assert one(connection, "SELECT count(*) FROM webhooks.audit_log") == 0


def test_a_run_that_was_stopped_is_taken_up(connection: psycopg.Connection) -> None:
    """What is done stays done: the next run does the rest, the one after that nothing."""
    made = fill(connection, BATCH + 1, Keyring.parse(OLD))
    first = reencrypt(connection, BOTH)

    assert next(first).renewed == BATCH
    first.close()
    assert len(read(connection, Keyring.parse(NEW), made)) == BATCH
    assert sum(batch.renewed for batch in reencrypt(connection, BOTH)) == BATCH + 2
    assert list(reencrypt(connection, BOTH)) == []
    assert read(connection, Keyring.parse(NEW), made) == made


def test_a_secret_that_was_changed_meanwhile_is_kept(
    connection: psycopg.Connection, database_url: str
) -> None:
    """Between reading and writing somebody stores another one: his stays, old key or new."""
    made = fill(connection, 2, Keyring.parse(OLD))
    changed = min(made, key=lambda place: (place.table != "signing_secrets", place.row_id))
    theirs = Keyring.parse(OLD).encrypt(changed, b"whsec_theirs")

    class Meddling(Keyring):
        def encrypt(self, place: Place, plaintext: bytes) -> str:
            with psycopg.connect(database_url, autocommit=True) as other:
                other.execute(
                    "UPDATE webhooks.signing_secrets SET ciphertext = %s WHERE id = %s",
                    [theirs, changed.row_id],
                )
            return super().encrypt(place, plaintext)

    batches = list(reencrypt(connection, Meddling.parse(f"{NEW},{OLD}")))

    assert [(batch.column.table, batch.renewed) for batch in batches] == [
        ("signing_secrets", 1), ("endpoints", 2),
    ]  # fmt: skip
    assert read(connection, BOTH, made) == made | {changed: b"whsec_theirs"}


def test_what_cannot_be_read_is_left_and_named(
    connection: psycopg.Connection, database_url: str
) -> None:
    """Damaged ones and those of a missing key stay as they are; the others are renewed."""
    fill(connection, 3, Keyring.parse(OLD))
    damaged = UUID(int=1)
    connection.execute(
        "UPDATE webhooks.signing_secrets SET ciphertext = CASE WHEN id = %s "
        "THEN 'v1:old:AAAAAAAAAAAAAAAA:AAAA' ELSE 'v1:gone:AAAAAAAAAAAAAAAA:AAAA' END "
        "WHERE id < %s",
        [damaged, UUID(int=3)],
    )

    result = run(database_url, f"{NEW},{OLD}", "rotate")

    assert result.exit_code == 1
    assert "4 encrypted anew" in result.stdout
    assert "gone is not in WEBHOOKS_KEYRING: deliveries that need it wait" in result.stdout
    assert result.stderr.splitlines() == [
        f"damaged, left as it is; give its endpoint a new one: signing_secrets {damaged}"
    ]


@pytest.mark.parametrize(
    ("keyring", "code", "rows", "advice"),
    [
        (OLD, 0, [["old", "first", "2", "2"]], ""),
        (
            f"{NEW},{OLD}", 0,
            [["new", "first", "0", "0"], ["old", "older", "2", "2"]],
            "run `webhooks secrets rotate`",
        ),
        (
            f"{OLD},{NEW}", 0,
            [["old", "first", "2", "2"], ["new", "older", "0", "0"]],
            "new encrypts nothing any more",
        ),
        (NEW, 1, [["new", "first", "0", "0"], ["old", "missing", "2", "2"]], "put it back"),
    ],
    ids=["one key", "not yet", "done", "missing"],
)  # fmt: skip
def test_status_counts_what_each_key_encrypted(
    connection: psycopg.Connection, database_url: str, keyring: str, code: int, rows: Any,
    advice: str,
) -> None:  # fmt: skip
    """By place, with what is to be done; a missing key is the exit code."""
    fill(connection, 2, Keyring.parse(OLD))

    result = run(database_url, keyring, "status")

    head, *table = result.stdout.splitlines()
    assert head.split() == ["KEY", "ROLE", "SIGNING", "SECRETS", "CUSTOM", "HEADERS"]
    assert [line.split() for line in table[: len(rows)]] == rows
    assert advice in " ".join(table[len(rows) :])
    assert result.exit_code == code


def test_a_secret_in_plain_text_is_not_shown(
    connection: psycopg.Connection, database_url: str
) -> None:
    """Whatever stands in the column: it is counted as damaged, and nothing of it is printed."""
    fill(connection, 1, Keyring.parse(OLD))
    connection.execute("UPDATE webhooks.signing_secrets SET ciphertext = 'whsec:canary:a:b'")

    result = run(database_url, OLD, "status")

    assert result.exit_code == 1
    assert ["?", "damaged", "1", "0"] in [line.split() for line in result.stdout.splitlines()]
    assert "canary" not in result.output


def test_a_keyring_is_needed(database_url: str) -> None:
    """Without one the command says which setting is missing."""
    result = run(database_url, "", "rotate")

    assert (result.exit_code, result.stdout) == (2, "")
    assert "WEBHOOKS_KEYRING is not set" in result.stderr
