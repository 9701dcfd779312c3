"""Pace: how soon a worker looks for work again."""

from __future__ import annotations

from uuid import UUID

import pytest

from webhooks.deliveries import NO_CURSOR, Batch
from webhooks.dispatcher.pace import Pace

NOTHING = Batch((), NO_CURSOR)
CONTENDED = Batch((), NO_CURSOR, contended=True)


def part(*, wrapped: bool = False) -> Batch:
    """A look at a part of very many lanes, none of them open."""
    return Batch((), NO_CURSOR, wrapped=wrapped, ended=False)


def pauses(*batches: Batch, took_s: float = 0.0, crowded: bool = False) -> list[float]:
    pace = Pace()
    return [pace.pause(batch, took_s, crowded=crowded) for batch in batches]


def test_a_worker_that_finds_nothing_looks_more_rarely() -> None:
    """From 75 ms to a quarter of a second, closed and full lanes beside it or not."""
    waits = pauses(*[NOTHING] * 8)

    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (pytest.approx(0.075), 0.25)


def test_a_lane_that_opens_soon_is_not_slept_through() -> None:
    """The pause ends when the first closed lane opens."""
    pace = Pace()
    for _ in range(9):
        pace.pause(NOTHING, 0.0, crowded=False)

    soon = Batch((), NO_CURSOR, opens_in_s=0.1)

    assert pace.pause(soon, 0.0, crowded=False) == 0.1


def test_another_worker_s_lanes_are_asked_for_again_at_once() -> None:
    """But not for ever: a lane that somebody holds for minutes must not cost a processor."""
    waits = pauses(*[CONTENDED] * 30)

    assert max(waits[:20]) < 0.01
    assert min(waits[20:]) > 0.07


def test_a_round_over_very_many_lanes_goes_on_at_once_and_ends() -> None:
    """Until every lane was seen, which the second passage over the end tells for sure."""
    waits = pauses(part(), part(wrapped=True), part(), part(wrapped=True), part())

    assert [wait < 0.01 for wait in waits] == [True, True, True, False, True]


def test_a_round_that_costs_much_is_followed_by_a_longer_rest() -> None:
    """A hundred thousand closed lanes take a quarter of the time at most, and never 2 s."""
    dear = pauses(part(), part(wrapped=True), part(), part(wrapped=True), took_s=0.1)
    dearer = pauses(part(), part(wrapped=True), part(), part(wrapped=True), took_s=10)

    assert (dear[-1], dearer[-1]) == (pytest.approx(1.2), 2.0)


def test_orphans_are_worth_another_look() -> None:
    """Only some are cancelled at a time."""
    orphans = Batch((), NO_CURSOR, orphans=((1, UUID(int=1)),))

    assert pauses(orphans, orphans) == [0.025, 0.025]


def test_a_crowded_worker_waits_for_room() -> None:
    """A settle brings it, and wakes the claimer."""
    assert pauses(NOTHING, NOTHING, crowded=True) == [0.1, 0.1]
