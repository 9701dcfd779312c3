"""Secrets at rest: encrypted under a keyring, bound to their place."""

from __future__ import annotations

import base64
import os
import re
from dataclasses import replace
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from webhooks.secrets import Keyring, KeyringError, Place, SecretError, UnknownKeyError, key_id_of

KEY_A, KEY_B = b"a" * 32, b"b" * 32
PLACE = Place("signing_secrets", UUID(int=1), UUID(int=2), "ciphertext")
SECRET = b"whsec_canary"


def entry(name: str, key: bytes) -> str:
    return f"{name}:{base64.b64encode(key).decode()}"


OLD = Keyring.parse(entry("old", KEY_A))
BOTH = Keyring.parse(f"{entry('new', KEY_B)}, {entry('old', KEY_A)}")


@given(st.binary())
def test_what_is_encrypted_comes_back(secret: bytes) -> None:
    """Any bytes survive the round trip."""
    assert BOTH.decrypt(PLACE, BOTH.encrypt(PLACE, secret)) == secret


def test_stored_form_is_the_documented_one() -> None:
    """v1, key id, 12-byte nonce, AES-256-GCM ciphertext; readable without our code."""
    version, key_id, nonce, sealed = BOTH.encrypt(PLACE, SECRET).split(":")

    assert (version, key_id) == ("v1", "new")
    assert len(base64.b64decode(nonce)) == 12
    context = f"signing_secrets|{UUID(int=1)}|{UUID(int=2)}|ciphertext|v1".encode()
    opened = AESGCM(KEY_B).decrypt(base64.b64decode(nonce), base64.b64decode(sealed), context)
    assert opened == SECRET


def test_nonce_is_never_used_twice() -> None:
    """The same secret encrypts to something else each time."""
    assert len({BOTH.encrypt(PLACE, SECRET) for _ in range(200)}) == 200


@pytest.mark.parametrize(
    "moved",
    [
        replace(PLACE, table="endpoints"),
        replace(PLACE, tenant_id=UUID(int=9)),
        replace(PLACE, row_id=UUID(int=9)),
        replace(PLACE, column="other"),
    ],
    ids=["table", "tenant", "row", "column"],
)
def test_ciphertext_that_was_moved_does_not_decrypt(moved: Place) -> None:
    """Another row, tenant, table or column cannot use it."""
    with pytest.raises(SecretError, match="does not decrypt"):
        BOTH.decrypt(moved, BOTH.encrypt(PLACE, SECRET))


def test_older_keys_still_decrypt_and_removed_ones_do_not() -> None:
    """Rotation: the first key encrypts, all decrypt; a missing key is named."""
    stored = OLD.encrypt(PLACE, SECRET)
    assert BOTH.decrypt(PLACE, stored) == SECRET

    alone = Keyring.parse(entry("new", KEY_B))
    with pytest.raises(UnknownKeyError, match="no key 'old' in the keyring") as caught:
        alone.decrypt(PLACE, stored)
    assert caught.value.key_id == "old"
    impostor = Keyring.parse(entry("old", KEY_B))
    with pytest.raises(SecretError, match="does not decrypt"):
        impostor.decrypt(PLACE, stored)


GOOD = OLD.encrypt(PLACE, SECRET)


@pytest.mark.parametrize(
    "stored",
    ["", "v1", "v1:old", "v1:old:", "v1:old::", "v2" + GOOD[2:], GOOD[:-4], GOOD + "AAAA",
     GOOD[:-1], "v1:old:!!!!:AAAA", "v1:old:AAAA:AAAA", "v1:old:AAAAAAAAAAAAAAAA:é",
     GOOD.replace(":", ";"), "whsec_plain", "v1:" + "k" * 5000 + ":a:b"],
    ids=[str(number) for number in range(15)],  # the texts are random
)  # fmt: skip
def test_damaged_ciphertext_is_a_secret_error(stored: str) -> None:
    """Whatever stands in the column, the error names the row and shows nothing of it."""
    with pytest.raises(SecretError, match=str(PLACE.row_id)) as caught:
        OLD.decrypt(PLACE, stored)
    assert len(str(caught.value)) < 160
    assert not isinstance(caught.value, UnknownKeyError)


def test_the_key_that_a_ciphertext_names_is_told() -> None:
    """Of anything else nothing is told: it may be a secret that somebody put there."""
    assert key_id_of(GOOD) == "old"
    for other in ("", "v1", "v1:", "v1:a.b:x:y", "whsec_plain:text", f"v1:{'k' * 33}:a:b"):
        assert key_id_of(other) is None


def test_generated_keyring_parses() -> None:
    """generate makes what parse reads, with 32 random bytes."""
    one, two = Keyring.generate("k7"), Keyring.generate("k7")

    assert one != two
    assert re.fullmatch(r"k7:[A-Za-z0-9+/]{43}=", one)
    assert Keyring.parse(one).encrypt(PLACE, b"").startswith("v1:k7:")


@pytest.mark.parametrize("separator", [",", " ", "\n", ", ", ",\n", "\t"])
def test_entries_are_split_by_commas_blanks_or_lines(separator: str) -> None:
    """A file with one key a line reads as well as a variable."""
    text = f" {entry('new', KEY_B)}{separator}{entry('old', KEY_A)}\n"
    assert Keyring.parse(text).decrypt(PLACE, GOOD) == SECRET


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not set"),
        (" \n", "not set"),
        ("canary", "entry 1"),
        (entry("k1", b"c" * 31), "entry 1"),
        (entry("k1", b"c" * 33), "entry 1"),
        (f"{entry('k1', KEY_A)} k2:canary!", "entry 2"),
        (entry("", KEY_A), "entry 1"),
        (entry("k" * 33, KEY_A), "entry 1"),
        (entry("k.1", KEY_A), "entry 1"),
        (entry("k1", KEY_A).rstrip("="), "entry 1"),
        ("k1:" + "é" * 44, "entry 1"),
        (f"{entry('k1', KEY_A)},{entry('k1', KEY_B)}", "same key id twice"),
    ],
)
def test_wrong_keyring_is_told_without_its_keys(text: str, reason: str) -> None:
    """The error says which entry and what to give, and holds no key material."""
    with pytest.raises(KeyringError, match=reason) as caught:
        Keyring.parse(text)

    message = str(caught.value)
    assert message.startswith("WEBHOOKS_KEYRING")
    assert "canary" not in message
    assert base64.b64encode(KEY_A).decode()[:8] not in message


def test_repr_of_a_keyring_shows_no_key() -> None:
    """A keyring in a traceback or log gives nothing away."""
    key = os.urandom(32)
    shown = repr(Keyring([("k1", key)]))
    assert base64.b64encode(key).decode()[:8] not in shown
    assert repr(key) not in shown


def test_derived_keys_differ_by_purpose_and_key() -> None:
    """One 32-byte key for each keyring key and purpose, the current one's first, stable."""
    sessions, csrf = BOTH.derive("sessions"), BOTH.derive("csrf")

    assert sessions == BOTH.derive("sessions")
    assert len({*sessions, *csrf, KEY_A, KEY_B}) == 6
    assert {len(key) for key in (*sessions, *csrf)} == {32}
    assert sessions[1:] == OLD.derive("sessions")
