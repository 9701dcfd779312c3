"""Hands: what a process holds is sent once and settled for the newest claim."""

from __future__ import annotations

import itertools
from uuid import UUID

import pytest
from msgspec.structs import replace

from webhooks.attempt import Claim, ErrorClass, Outcome
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
    """Claimed anew meanwhile: its outcome is settled as what it was sent as, else as the newest."""
    hands = Hands(9)
    hands.put([claim(1)])
    old = hands.take(ME)
    assert old is not None

    again = replace(claim(1), attempt=2, worker_id=REBORN)
    hands.put([again])
    assert hands.take(REBORN) is None

    hands.finish(again.delivery_id, DONE)
    assert hands.finished(10) == [(old, DONE)]
    hands.settled(old, recorded=False)
    assert hands.finished(10) == [(again, DONE)]
    hands.settled(again, recorded=True)
    assert (hands.held, hands.unsettled) == (0, 0)


def test_a_claim_whose_commit_was_lost_is_settled_with_the_next() -> None:
    """The same number again is the same row: recorded once, it is not sent for the second claim."""
    hands = Hands(9)
    hands.put([claim(1)])
    old = hands.take(ME)
    assert old is not None
    hands.finish(old.delivery_id, DONE)
    hands.put([claim(1)])

    hands.settled(old, recorded=True)

    assert (hands.held, hands.take(ME)) == (0, None)


def test_what_is_claimed_again_before_it_is_sent_goes_out_once_under_its_newest_claim() -> None:
    """A lease that was lost and begun anew while it waited does not leave it in nobody's hands."""
    hands = Hands(9)
    hands.put([claim(1)])
    again = replace(claim(1), attempt=2, worker_id=REBORN)
    hands.put([again])

    assert hands.take(REBORN) is again
    assert (hands.take(REBORN), hands.held) == (None, 1)


def test_a_second_outcome_of_one_attempt_is_not_heard() -> None:
    """Neither before nor after the first is settled."""
    hands = Hands(9)
    hands.put([claim(1)])
    taken = hands.take(ME)
    assert taken is not None

    hands.finish(taken.delivery_id, DONE)
    hands.finish(taken.delivery_id, Outcome(ErrorClass.INTERNAL))
    assert hands.finished(10) == [(taken, DONE)]
    hands.settled(taken, recorded=True)
    hands.settled(taken, recorded=True)
    hands.finish(taken.delivery_id, DONE)

    assert (hands.held, hands.unsettled) == (0, 0)


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


def of(endpoint: int, numbers: range) -> list[Claim]:
    """Claims of one endpoint."""
    return [replace(claim(n), endpoint_id=UUID(int=endpoint)) for n in numbers]


def test_one_endpoint_may_hold_half_of_the_room_that_is_left() -> None:
    """A third of everything when it is alone, and at least one whoever holds none."""
    hands = Hands(900)
    assert hands.shares()(UUID(int=1), 1) == 300

    hands.put(of(1, range(300)))

    assert hands.shares()(UUID(int=1), 1) == 0
    assert hands.shares()(UUID(int=2), 1) == 200
    hands.put(of(2, range(300, 899)))
    assert hands.shares()(UUID(int=3), 50) == 1


def test_a_hundred_endpoints_that_hang_leave_room_for_others() -> None:
    """However often they ask for more, a tenth of the room stays."""
    hands, numbers = Hands(1000), itertools.count()
    for _ in range(20):
        share = hands.shares()
        for endpoint in range(1, 101):
            first = next(numbers) * 1000
            hands.put(of(endpoint, range(first, first + share(UUID(int=endpoint), 100))))

    assert hands.room >= 90
    assert hands.shares()(UUID(int=200), 10) == hands.room // 12


@pytest.mark.parametrize(("capacity", "most"), [(1, 1), (2, 1), (3, 2), (4, 3), (8, 7)])
def test_a_small_worker_leaves_one_place_to_others(capacity: int, most: int) -> None:
    """One endpoint alone holds all but one, in however many claims; the last is another's."""
    hands = Hands(capacity)
    for first in range(0, 10 * capacity, 10):
        wanted = hands.shares()(UUID(int=1), 1)
        hands.put(of(1, range(first, first + wanted)))

    assert hands.held == most
    assert hands.shares()(UUID(int=2), 1) == 1


def test_a_small_worker_shares_with_all_who_ask() -> None:
    """Two that ask at once get as much each; from 24 on it is a third for one alone."""
    share = Hands(8).shares()

    assert [share(UUID(int=n), 2) for n in (1, 2)] == [3, 3]
    assert [Hands(n).shares()(UUID(int=1), 1) for n in (16, 24, 27)] == [8, 8, 9]


def test_slow_endpoints_together_get_half_at_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who kept an answer waiting gets nothing more while the slow hold half; others do."""
    clock = [100.0]
    monkeypatch.setattr("webhooks.dispatcher.hands.time.monotonic", lambda: clock[0])
    hands = Hands(100)
    hands.put(of(1, range(30)))
    hands.put(of(2, range(100, 125)))
    while hands.take(ME):
        pass
    share = hands.shares()
    assert (share(UUID(int=1), 1), share(UUID(int=3), 1)) == (0, 15)

    clock[0] += 3
    share = hands.shares()
    assert (share(UUID(int=1), 1), share(UUID(int=2), 1), share(UUID(int=3), 1)) == (0, 0, 15)


def test_slowness_is_remembered_until_a_quick_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five that were slow get no more once they hold half; a quick answer clears a name."""
    clock = [100.0]
    monkeypatch.setattr("webhooks.dispatcher.hands.time.monotonic", lambda: clock[0])
    hands = Hands(20)
    five = [UUID(int=n) for n in range(1, 6)]

    def answer(endpoint: int, seconds: float) -> None:
        hands.put(of(endpoint, range(999, 1000)))
        clock[0] += 5  # it waits for us
        taken = hands.take(ME)
        assert taken is not None
        started = clock[0]
        clock[0] += seconds
        hands.finish(taken.delivery_id, Outcome(None, started=started, finished=clock[0]))
        clock[0] += 5  # it waits for the database
        hands.settled(taken, recorded=True)

    for endpoint in range(1, 6):
        answer(endpoint, 3)
    for endpoint in range(1, 6):
        hands.put(of(endpoint, range(endpoint * 10, endpoint * 10 + 2)))
    share = hands.shares()
    assert [share(endpoint, 1) for endpoint in five] == [0] * 5
    assert share(UUID(int=6), 1) == 3

    while hands.take(ME):
        pass
    answer(1, 0.5)
    assert [hands.shares()(endpoint, 1) for endpoint in five] == [2] * 5


def test_slowness_is_forgotten_after_five_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint that nothing was sent to for so long starts anew."""
    clock = [100.0]
    monkeypatch.setattr("webhooks.dispatcher.hands.time.monotonic", lambda: clock[0])
    hands = Hands(2)
    hands.put(of(1, range(1)))
    taken = hands.take(ME)
    assert taken is not None
    hands.finish(taken.delivery_id, Outcome(None, started=100, finished=103))
    hands.settled(taken, recorded=True)
    assert UUID(int=1) in hands._slow_ones()

    clock[0] += 301

    assert UUID(int=1) not in hands._slow_ones()
