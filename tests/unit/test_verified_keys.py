"""The short memory of API keys that were verified."""

from __future__ import annotations

from uuid import UUID

import pytest

from webhooks import verified_keys
from webhooks.keys import Credential
from webhooks.verified_keys import VerifiedKeys

CREDENTIAL = Credential(UUID(int=1), "ci", "AAAAAAAA", False, UUID(int=2), "acme")


@pytest.fixture
def clock() -> list[float]:
    """Seconds that the test sets."""
    return [100.0]


@pytest.fixture
def kept(clock: list[float]) -> VerifiedKeys:
    return VerifiedKeys(lambda: clock[0])


def test_a_key_is_remembered_for_two_seconds(kept: VerifiedKeys, clock: list[float]) -> None:
    """So a revoked one is refused at most that much later."""
    kept.put("key", CREDENTIAL, asked=clock[0])

    clock[0] += 1.99
    assert kept.get("key") == CREDENTIAL
    clock[0] += 0.01
    assert kept.get("key") is None


def test_the_time_counts_from_the_question(kept: VerifiedKeys, clock: list[float]) -> None:
    """A database that took a second to answer does not lengthen a revoked key's life."""
    clock[0] += 1.5
    kept.put("key", CREDENTIAL, asked=clock[0] - 1.5)

    clock[0] += 0.5

    assert kept.get("key") is None


def test_only_the_whole_key_is_known(
    kept: VerifiedKeys, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither another key nor one that shares the part it is looked up by."""
    kept.put("key", CREDENTIAL, asked=clock[0])
    assert kept.get("kez") is None
    assert kept.get("") is None

    monkeypatch.setattr(verified_keys, "PREFIX_BYTES", 0)
    kept.put("key", CREDENTIAL, asked=clock[0])
    assert kept.get("key") == CREDENTIAL
    assert kept.get("kez") is None


def test_the_memory_is_bounded(kept: VerifiedKeys, clock: list[float]) -> None:
    """However many keys there are; the latest is among those kept, and no key as text."""
    for number in range(2_500):
        kept.put(f"key {number}", CREDENTIAL, asked=clock[0])

    assert len(kept._entries) <= 1_000
    assert kept.get("key 2499") == CREDENTIAL
    assert "key 2499" not in repr(kept._entries)
