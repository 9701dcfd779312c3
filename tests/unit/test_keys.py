"""API keys: the text's form. What the database does with them: tests/postgres/test_keys.py."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from uuid import UUID

import pytest

from webhooks import keys

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def test_a_key_has_its_documented_form() -> None:
    """Prefix, public id of 8, secret of 43, checksum of 6, all base62."""
    public_id, text = keys.generate()

    assert re.fullmatch(r"whk_live_[0-9A-Za-z]{8}_[0-9A-Za-z]{49}", text)
    assert text.split("_")[2] == public_id


def test_the_checksum_is_the_crc_32_of_what_stands_before_it() -> None:
    """A secret scanner can confirm a key without asking us."""
    _, text = keys.generate()

    number = 0
    for digit in text[-6:]:
        number = number * 62 + DIGITS.index(digit)

    assert number == zlib.crc32(text[:-6].encode())


def test_no_two_keys_are_alike() -> None:
    """Public id and secret are random."""
    made = [keys.generate() for _ in range(200)]

    assert len({public_id for public_id, _ in made}) == 200
    assert len({text[18:] for _, text in made}) == 200


def test_a_key_tells_its_public_id() -> None:
    """What is looked up is read from the key itself."""
    public_id, text = keys.generate()

    assert keys.public_id_of(text) == public_id


DAMAGE: dict[str, Callable[[str], str]] = {
    "empty": lambda text: "",
    "cut": lambda text: text[:-1],
    "too long": lambda text: text + "A",
    "line end": lambda text: text + "\n",
    "another prefix": lambda text: text.replace("live", "test"),
    "secret": lambda text: text[:20] + ("A" if text[20] != "A" else "B") + text[21:],
    "checksum": lambda text: text[:-1] + ("A" if text[-1] != "A" else "B"),
    "not ASCII": lambda text: text[:20] + "é" + text[21:],
    "NUL": lambda text: text[:20] + "\0" + text[21:],
    "long": lambda text: text * 1000,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_key_is_known_by_its_form(damage: str) -> None:
    """A typing mistake or a cut is refused without a look into the database."""
    _, text = keys.generate()

    assert keys.public_id_of(DAMAGE[damage](text)) is None


def test_the_actor_tells_keys_of_one_name_apart() -> None:
    """The audit log names the key so that it can be found, and holds nothing secret."""
    public_id, text = keys.generate()
    who = keys.Credential(
        key_id=UUID(int=1),
        name="billing",
        public_id=public_id,
        all_tenants=False,
        tenant_id=UUID(int=2),
        tenant_key="acme",
    )

    assert who.actor == f"API key billing ({public_id})"
    assert text[18:] not in who.actor
    assert who.only_tenant == UUID(int=2)
