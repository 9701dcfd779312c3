"""lanes: what outcomes do to an endpoint's run-time state."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from tests.queue import outcome
from webhooks import lanes
from webhooks.attempt import ErrorClass, Outcome
from webhooks.lanes import DEFAULT_RULES, Change, Lane, Rules, State, state

OK = outcome(None, 200)
REFUSED = outcome(ErrorClass.CONNECT)
BROKEN = outcome(ErrorClass.HTTP_5XX, 500)
MISSING = outcome(ErrorClass.HTTP_4XX, 404)
RULES = Rules(breaker_failures=3, breaker_first_s=30, breaker_longest_s=100)
NOW = datetime(2026, 12, 1, tzinfo=UTC)
SOON, LONG_AGO = NOW + timedelta(seconds=5), datetime.min.replace(tzinfo=UTC)
NEVER = datetime.max.replace(tzinfo=UTC)


def after(lane: Lane, outcomes: Sequence[Outcome], rules: Rules = DEFAULT_RULES) -> Lane:
    """The lane after outcomes of attempts that began just now."""
    return lanes.after(lane, outcomes, rules, time.monotonic())


def sent_ago(failure: Outcome, seconds: float) -> Outcome:
    return replace(failure, started=time.monotonic() - seconds)


@pytest.mark.parametrize("error", ["connect", "tls", "timeout", "protocol", "http_5xx"], ids=str)
def test_the_breaker_closes_after_failures_in_a_row(error: str) -> None:
    """Connection-level failures and 5xx in a row close the lane for the first wait."""
    failure = outcome(ErrorClass(error))
    before = after(Lane(), [failure] * 2, RULES)
    lane = after(before, [failure], RULES)

    assert (before.broken_s, before.close_s) == (0, None)
    assert (lane.broken_s, lane.close_s, lane.strikes) == (30, 30, 3)
    assert lane.changes == (Change.BROKEN,)
    assert lane.reason == "breaker: 3 failures in a row"


@pytest.mark.parametrize("between", [OK, MISSING, outcome(ErrorClass.REDIRECT, 302)])
def test_an_answer_between_failures_starts_the_breaker_anew(between: Outcome) -> None:
    """A success, a refusal or a redirect proves that somebody is there."""
    lane = after(Lane(), [REFUSED, REFUSED, between, REFUSED, BROKEN], RULES)

    assert (lane.strikes, lane.broken_s) == (2, 0)


def test_refusals_count_as_failures_and_never_as_strikes() -> None:
    """404 for fifty events: fifty failures, an open breaker that stays out of it (W076)."""
    lane = after(Lane(), [MISSING] * 50, RULES)

    assert (lane.failures, lane.strikes, lane.broken_s, lane.close_s) == (50, 0, 0, None)


@pytest.mark.parametrize(
    "error",
    [
        ErrorClass.BLOCKED_ADDRESS,
        ErrorClass.INTERNAL,
        ErrorClass.INVALID_URL,
        ErrorClass.DNS,
        ErrorClass.PROXY,
    ],
)
def test_what_never_reached_the_receiver_says_nothing_of_it(error: ErrorClass) -> None:
    """A refused address, a bad URL, poison and a name without an answer leave the strikes."""
    assert after(Lane(strikes=2), [outcome(error)], RULES).strikes == 2


def test_each_failed_probe_doubles_the_wait_up_to_the_longest() -> None:
    """30, 60, then the longest: 100."""
    lane, waits = Lane(strikes=3, broken_s=30), []
    for _ in range(3):
        after_probe = after(lane, [REFUSED], RULES)
        waits.append(after_probe.close_s)
        lane = Lane(strikes=after_probe.strikes, broken_s=after_probe.broken_s)

    assert waits == [60, 100, 100]


@pytest.mark.parametrize("opened_s", [-30, -0.1, 4])
def test_what_was_sent_before_the_lane_opened_is_no_probe(opened_s: float) -> None:
    """Late failures do not make it wait longer, while it is closed or after it opened again."""
    broken = Lane(strikes=3, broken_s=30, opened_s=opened_s)

    lane = after(broken, [sent_ago(REFUSED, 5)] * 5, RULES)

    assert (lane.broken_s, lane.close_s, lane.changes) == (30, None, ())


def test_a_probe_that_fails_is_a_change() -> None:
    """The audit log tells that the breaker waits for longer, once for what came together."""
    lane = after(Lane(strikes=3, broken_s=30, opened_s=4), [sent_ago(REFUSED, 1)] * 8, RULES)

    assert (lane.broken_s, lane.close_s, lane.changes) == (60, 60, (Change.STILL_BROKEN,))
    assert after(Lane(), [REFUSED] * 8, RULES).changes == (Change.BROKEN,)


def test_a_success_of_an_earlier_attempt_opens_a_lane_that_just_broke() -> None:
    """Somebody is there after all: the lane is open, and no reason is left behind."""
    lane = after(Lane(strikes=2), [REFUSED, OK], RULES)

    assert (lane.broken_s, lane.close_s, lane.reopened, lane.reason) == (0, None, True, None)
    assert lane.changes == (Change.BROKEN, Change.RECOVERED)


def test_what_breaks_again_after_a_success_stays_broken() -> None:
    """Three more failures after the success in one batch: closed, not reopened."""
    lane = after(Lane(strikes=2), [REFUSED, OK, REFUSED, REFUSED, REFUSED], RULES)

    assert (lane.broken_s, lane.close_s, lane.reopened) == (30, 30, False)


@pytest.mark.parametrize("answer", [OK, MISSING])
def test_a_probe_that_is_answered_mends_the_lane(answer: Outcome) -> None:
    """After it the lane is open at its full cap, and the log says so."""
    lane = after(Lane(strikes=5, broken_s=60, failures=5), [answer], RULES)

    assert (lane.broken_s, lane.strikes) == (0, 0)
    assert Change.RECOVERED in lane.changes


BUSY = outcome(ErrorClass.HTTP_4XX, 429, retry_after_s=120)


def test_a_receiver_that_asks_for_a_pause_is_noted_once() -> None:
    """429 closes the lane for as long as it says; the audit log is not filled by repeats."""
    lane = after(Lane(), [BUSY, BUSY], RULES)

    assert (lane.throttle_s, lane.close_s, lane.changes) == (120, None, (Change.THROTTLED,))
    assert after(Lane(noted_s=3), [BUSY], RULES).changes == ()


@pytest.mark.parametrize(("noted_s", "changes"), [(59, ()), (60, (Change.RECOVERED,))])
def test_the_end_of_a_throttle_is_noted(noted_s: float, changes: tuple[Change, ...]) -> None:
    """By the first success a minute on: a receiver that flaps makes one pair a minute."""
    lane = after(Lane(failures=1, noted_s=noted_s), [OK], RULES)

    assert lane.changes == changes
    assert after(lane, [BUSY], RULES).changes.count(Change.THROTTLED) == len(changes)


def test_retry_after_outlasts_the_breaker() -> None:
    """A broken lane whose receiver asks for two hours waits for two hours, mended or not."""
    away = outcome(ErrorClass.HTTP_5XX, 503, retry_after_s=7200)

    lane = after(Lane(strikes=2), [away], RULES)
    mended = after(lane, [OK], RULES)

    assert (lane.broken_s, lane.close_s, lane.throttle_s) == (30, 30, 7200)
    assert (mended.broken_s, mended.close_s, mended.throttle_s) == (0, None, 7200)


@pytest.mark.parametrize(("ago_s", "status"), [(61, "paused"), (59, None)])
def test_refused_addresses_of_one_look_up_count_once(ago_s: float, status: str | None) -> None:
    """Three refusals pause an endpoint, but not of the same minute, however many came."""
    refused = outcome(ErrorClass.BLOCKED_ADDRESS)

    assert after(Lane(), [refused] * 100, RULES).blocked == 1
    lane = after(Lane(blocked=2, blocked_s=ago_s), [refused] * 100, RULES)
    assert (lane.status, lane.failures) == (status, 100)


DAY = 86_400.0


@pytest.mark.parametrize(
    ("failing_s", "failures", "disabled"),
    [(5 * DAY, 19, True), (5 * DAY, 18, False), (5 * DAY - 1, 500, False)],
)
def test_an_endpoint_is_disabled_after_five_days_and_twenty_attempts(
    failing_s: float, failures: int, disabled: bool
) -> None:
    """Only failures, for long enough and often enough: both."""
    lane = after(Lane(failures=failures, failing_s=failing_s, warned=True), [MISSING])

    assert (lane.status == "disabled") is disabled


def test_the_reason_for_disabling_is_evidence() -> None:
    """It names for how long and how often."""
    lane = after(Lane(failures=41, failing_s=5.5 * DAY), [REFUSED])

    assert lane.reason == "every attempt failed for 5.5 days, 42 in a row"


@pytest.mark.parametrize(
    ("failing_s", "failures", "warned"),
    [(2.5 * DAY, 9, True), (2.5 * DAY - 1, 9, False), (2.5 * DAY, 8, False)],
)
def test_a_warning_comes_at_half_of_the_time_and_attempts(
    failing_s: float, failures: int, warned: bool
) -> None:
    """Once, and never before."""
    lane = after(Lane(failures=failures, failing_s=failing_s, strikes=-99), [REFUSED, REFUSED][:1])

    assert lane.warned is warned
    assert lane.changes.count(Change.WARNED) == int(warned)


def test_a_success_takes_the_warning_back() -> None:
    """And the audit log says so."""
    lane = after(Lane(failures=30, failing_s=3 * DAY, warned=True), [OK])

    assert (lane.warned, lane.failures, lane.changes) == (False, 0, (Change.RECOVERED,))


@pytest.mark.parametrize(
    ("status", "open_at", "rate_open_at", "broken_s", "expected"),
    [
        ("active", LONG_AGO, LONG_AGO, 0, State.OPEN),
        ("active", NOW, NOW, 0, State.OPEN),
        ("active", SOON, LONG_AGO, 0, State.THROTTLED),
        ("active", SOON, SOON, 30, State.BROKEN),
        ("active", LONG_AGO, LONG_AGO, 30, State.BROKEN),
        ("active", LONG_AGO, SOON, 0, State.RATE_LIMITED),
        ("paused", NEVER, SOON, 30, State.PAUSED),
        ("disabled", NEVER, LONG_AGO, 0, State.DISABLED),
    ],
)
def test_a_lane_has_one_state(
    status: str, open_at: datetime, rate_open_at: datetime, broken_s: float, expected: State
) -> None:
    """The endpoint's status first, then the breaker, the receiver's wish, the rate limit."""
    assert state(status, open_at, rate_open_at, broken_s, NOW) is expected


def test_our_own_faults_count_against_nobody() -> None:
    """A secret that cannot be read for days neither warns nor disables its endpoint."""
    lane = after(
        Lane(failures=19, failing_s=6 * DAY),
        [outcome(kind) for kind in (ErrorClass.INTERNAL, ErrorClass.PROXY)],
    )

    assert (lane.failures, lane.status, lane.changes) == (19, None, ())
