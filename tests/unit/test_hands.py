"""Hands: what a process holds is sent once and settled for the newest claim."""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from webhooks.attempt import Claim, Outcome
from webhooks.dispatcher.hands import Hands

ME, REBORN = UUID(int=1), UUID(int=2)
DONE = Outcome(None)


def claim(number: int, worker_id: UUID = ME, attempt: int = 1) -> Claim:
    nobody = UUID(int=0)
    return Claim(
        UUID(int=100 + number), 0, nobody, nobody, nobody, "a", attempt, 0, 0, "schedule",
        b"{}", None, worker_id,
    )  # fmt: skip


def test_a_claim_is_held_from_put_to_settled() -> None:
    """It takes up room until its outcome is recorded, and is then forgotten."""
    hands = Hands(2)
    hands.put([claim(1)])
    taken = hands.take(ME)
    assert taken is not None
    assert (hands.room, hands.held) == (1, 1)

    hands.finish(taken.delivery_id, DONE)
    assert hands.finished(10) == [(taken, DONE)]
    assert (hands.room, hands.unsettled) == (1, 1)

    hands.settled(taken, recorded=True)
    assert (hands.room, hands.unsettled, hands.finished(10)) == (2, 0, [])


def test_a_claim_of_a_lost_incarnation_is_not_sent() -> None:
    """What was claimed under a lease that ended may be somebody else's by now."""
    hands = Hands(9)
    hands.put([claim(1), claim(2, REBORN)])

    assert hands.take(REBORN) == claim(2, REBORN)
    assert hands.take(REBORN) is None
    assert hands.held == 1


def test_a_delivery_that_is_being_sent_is_not_sent_again() -> None:
    """Claimed anew while its sending is under way, the outcome counts for the newest claim."""
    hands = Hands(9)
    hands.put([claim(1)])
    hands.take(ME)

    again = replace(claim(1), attempt=2, worker_id=REBORN)
    hands.put([again])
    assert hands.take(REBORN) is None

    hands.finish(again.delivery_id, DONE)
    assert hands.finished(10) == [(again, DONE)]


def test_an_outcome_that_was_not_recorded_passes_to_the_newer_claim() -> None:
    """The old claim's settle was refused; the answer is in hand and is not asked for twice."""
    hands = Hands(9)
    hands.put([claim(1)])
    old = hands.take(ME)
    assert old is not None
    hands.finish(old.delivery_id, DONE)
    again = replace(claim(1), attempt=2, worker_id=REBORN)
    hands.put([again])

    hands.settled(old, recorded=False)

    assert hands.finished(10) == [(again, DONE)]
    assert hands.take(REBORN) is None


def test_a_recorded_outcome_leaves_the_newer_claim_to_be_sent() -> None:
    """A retry that was claimed before its predecessor was forgotten is sent, not lost."""
    hands = Hands(9)
    hands.put([claim(1)])
    old = hands.take(ME)
    assert old is not None
    hands.finish(old.delivery_id, DONE)
    again = replace(claim(1), attempt=2)
    hands.put([again])

    hands.settled(old, recorded=True)

    assert hands.finished(10) == []
    assert hands.take(ME) == again


def test_closed_hands_take_nothing() -> None:
    """A claim that comes in after the drain began is not kept; the database gives it back."""
    hands = Hands(9)
    hands.put([claim(1)])
    hands.close()
    hands.put([claim(2)])

    assert hands.take(ME) is None
    assert hands.held == 0
