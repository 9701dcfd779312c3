"""Retry policy: how long to wait, and when to stop."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections import Counter
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhooks.attempt import ErrorClass, Outcome
from webhooks.backoff import (
    Policy,
    PolicyError,
    Source,
    delay,
    describe,
    duration,
    in_force,
    ladder,
)
from webhooks.settings import Settings

FAILED = Outcome(ErrorClass.HTTP_5XX, status_code=500)
DEFAULT = Policy.from_settings(Settings())


def seconds(policy: Policy, tries: int, outcome: Outcome = FAILED, jitter: float = 0.0) -> float:
    wait = delay(policy, tries, outcome, jitter)
    assert wait is not None
    return wait.total_seconds()


def test_default_ladder() -> None:
    """10 s, times 4, at most a day: 10 attempts over about 2.6 days (W087)."""
    waits = [seconds(DEFAULT, tries) for tries in range(1, 10)]

    assert waits == [10, 40, 160, 640, 2560, 10_240, 40_960, 86_400, 86_400]
    assert delay(DEFAULT, 10, FAILED, 0.0) is None
    assert list(accumulate(waits))[-1] / 86_400 == pytest.approx(2.63, abs=0.01)


def test_explicit_ladder() -> None:
    """Delays given one by one: one more attempt than delays."""
    policy = Policy.parse({"delays_s": [0, 5, 300.5]})

    assert [seconds(policy, tries) for tries in (1, 2, 3)] == [0, 5, 300.5]
    assert delay(policy, 4, FAILED, 0.0) is None
    assert delay(Policy.parse({"delays_s": []}), 1, FAILED, 0.0) is None


@pytest.mark.parametrize("jitter", [-1.0, -0.5, 0.0, 0.5, 1.0])
def test_jitter_is_a_fifth_either_way(jitter: float) -> None:
    """The random part scales the wait by 0.8 to 1.2."""
    assert seconds(DEFAULT, 3, jitter=jitter) == pytest.approx(160 * (1 + 0.2 * jitter))


def test_jitter_spreads_what_failed_together() -> None:
    """500 deliveries that fail in one second do not come back in one second (W086)."""
    source = random.Random(7)
    waits = [seconds(DEFAULT, 4, jitter=source.uniform(-1, 1)) for _ in range(500)]

    assert statistics.stdev(waits) > 50
    assert max(Counter(int(wait) for wait in waits).values()) < 50


@pytest.mark.parametrize("tries", [16, 47, 64, 99])
@pytest.mark.parametrize("factor", [1.0, 4.0, 5.0, 100.0])
def test_many_tries_wait_for_the_cap(tries: int, factor: float) -> None:
    """No power overflows: the wait is the cap (W084)."""
    policy = Policy(base_s=86_400.0, factor=factor, attempts=100)
    assert seconds(policy, tries) == 86_400


@pytest.mark.parametrize("tries", [10, 16, 1025, 100_000])
def test_used_up_tries_stop(tries: int) -> None:
    """At and beyond the policy's attempts there is no next try (W084)."""
    assert delay(DEFAULT, tries, FAILED, 0.0) is None


@pytest.mark.parametrize("error", list(ErrorClass))
def test_what_is_final_stops_and_the_rest_is_retried(error: ErrorClass) -> None:
    """invalid_url and internal are final, every other failure follows the ladder."""
    final = error in (ErrorClass.INVALID_URL, ErrorClass.INTERNAL)
    assert (delay(DEFAULT, 1, Outcome(error), 0.0) is None) is final


def test_410_is_final() -> None:
    """Gone is gone (W075)."""
    assert delay(DEFAULT, 1, Outcome(ErrorClass.HTTP_4XX, status_code=410), 0.0) is None
    assert delay(DEFAULT, 1, Outcome(ErrorClass.HTTP_4XX, status_code=404), 0.0) is not None


@pytest.mark.parametrize(
    ("asked", "waited"),
    [
        (0.0, 10.0),
        (5.0, 10.0),
        (120.0, 120.0),
        (86_400.0, 86_400.0),
        (-5.0, 10.0),
        (math.nan, 10.0),
        (1e300, 604_800.0),
        (math.inf, 604_800.0),
    ],
)
def test_retry_after_is_the_least_that_is_waited(asked: float, waited: float) -> None:
    """A receiver may ask for more time than the ladder gives, not for less, nor for ever."""
    outcome = Outcome(ErrorClass.HTTP_5XX, status_code=503, retry_after_s=asked)
    assert seconds(DEFAULT, 1, outcome) == waited


@given(
    st.floats(0.01, 604_800), st.floats(1, 100), st.floats(0.01, 604_800), st.integers(1, 100),
    st.integers(1, 200), st.floats(-1, 1),
)  # fmt: skip
def test_every_policy_waits_within_its_bounds(
    base_s: float, factor: float, cap_s: float, attempts: int, tries: int, jitter: float
) -> None:
    """Any policy that parses gives a wait within the cap and its jitter, or stops."""
    policy = Policy.parse(
        {"base_s": base_s, "factor": factor, "cap_s": cap_s, "attempts": attempts}
    )
    wait = delay(policy, tries, FAILED, jitter)

    assert (wait is None) is (tries >= attempts)
    assert wait is None or timedelta(0) < wait <= timedelta(seconds=cap_s * 1.2 + 1e-5)


def test_settings_give_the_installations_policy() -> None:
    """The four settings are the four fields."""
    settings = Settings(retry_base_s=1.5, retry_factor=2.0, retry_cap_s=9.0, retry_attempts=4)
    policy = Policy.from_settings(settings)

    assert [seconds(policy, tries) for tries in (1, 2, 3)] == [1.5, 3, 6]
    assert delay(policy, 4, FAILED, 0.0) is None


def test_missing_fields_have_defaults() -> None:
    """An endpoint that sets one field keeps the rest."""
    assert Policy.parse({}) == Policy()
    assert Policy.parse({"attempts": 3}) == Policy(attempts=3)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"base_s": 0}, "base_s"),
        ({"base_s": -1}, "base_s"),
        ({"base_s": 604_801}, "base_s"),
        ({"base_s": "10"}, "base_s"),
        ({"base_s": True}, "base_s"),
        ({"base_s": None}, "base_s"),
        ({"base_s": float("nan")}, "base_s"),
        ({"factor": 0.99}, "factor"),
        ({"factor": float("inf")}, "factor"),
        ({"cap_s": 10**30}, "cap_s"),
        ({"attempts": 0}, "attempts"),
        ({"attempts": 101}, "attempts"),
        ({"attempts": 2.5}, "attempts"),
        ({"attempts": []}, "attempts"),
        ({"tries": 3}, "tries"),
        ({"delays_s": 5}, "delays_s"),
        ({"delays_s": [1] * 100}, "delays_s"),
        ({"delays_s": [1, -1]}, "delays_s[1]"),
        ({"delays_s": ["x"]}, "delays_s[0]"),
        ({"delays_s": [1], "attempts": 2}, "delays_s"),
    ],
)
def test_wrong_policy_names_the_field(value: dict[str, Any], field: str) -> None:
    """The error begins with the field and says what to give."""
    with pytest.raises(PolicyError) as caught:
        Policy.parse(value)

    assert str(caught.value).startswith(f"{field}: ")
    assert len(str(caught.value)) > len(field) + 15


@pytest.mark.parametrize(
    "number",
    [10**5000, -(10**5000), [10**5000], math.nan, math.inf, True, "9"],
    ids=["huge", "hugely negative", "list", "nan", "infinity", "true", "text"],
)
@pytest.mark.parametrize("name", ["base_s", "factor", "cap_s", "attempts", "delays_s"])
def test_a_number_that_is_none_is_named_shortly(name: str, number: object) -> None:
    """Not even one that Python refuses to print breaks the message (W197)."""
    with pytest.raises(PolicyError) as caught:
        Policy.parse({name: [number] if name == "delays_s" else number})

    assert caught.value.field.partition("[")[0] == name
    assert len(caught.value.message) < 200


def test_the_ladder_lists_every_attempt() -> None:
    """Number, wait before it, time since the first: the default's, computed by hand."""
    rungs = [(r.attempt, r.wait_s, r.elapsed_s) for r in ladder(DEFAULT)]

    assert rungs[:4] == [(1, 0, 0), (2, 10, 10), (3, 40, 50), (4, 160, 210)]
    assert rungs[-2:] == [(9, 86_400, 141_010), (10, 86_400, 227_410)]
    assert [r.wait_s for r in ladder(Policy.parse({"delays_s": [7, 0]}))] == [0, 7, 0]
    assert len(ladder(Policy(attempts=1))) == 1


def test_a_steep_ladder_ends_at_the_cap() -> None:
    """Factor 5 over 50 attempts: the wait is the cap, not an overflow (W084)."""
    rungs = ladder(Policy.parse({"factor": 5, "attempts": 50}))

    assert [r.wait_s for r in rungs[1:]] == [min(10 * 5**n, 86_400) for n in range(49)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
NAMES = st.sampled_from(["base_s", "factor", "cap_s", "attempts", "delays_s"]) | st.text(max_size=5)
POLICIES = st.dictionaries(NAMES, JSON | st.floats(0, 1e6) | st.integers(0, 110), max_size=4)


@given(
    POLICIES, st.integers(1, 12) | st.integers(1, 100_000), st.floats(-1, 1),
    st.none() | st.floats(allow_nan=True, allow_infinity=True),
)  # fmt: skip
def test_no_policy_and_no_outcome_breaks_a_delay(
    given_policy: dict[str, Any], tries: int, jitter: float, retry_after_s: float | None
) -> None:
    """Whatever is given is refused by field, or its waits stay within days (W084)."""
    try:
        policy = Policy.parse(given_policy)
    except PolicyError:
        return
    failed = Outcome(ErrorClass.HTTP_5XX, status_code=503, retry_after_s=retry_after_s)

    wait = delay(policy, tries, failed, jitter)

    assert wait is None or timedelta(0) <= wait <= timedelta(days=7 * 1.2 + 0.001)
    assert wait is None or datetime(2026, 12, 1) + wait < datetime(2027, 1, 1)  # noqa: DTZ001
    assert (wait is None) is (tries >= policy.attempts)
    rungs = ladder(policy)
    assert len(rungs) == policy.attempts <= 100
    assert all(0 <= rung.wait_s <= 604_800 for rung in rungs)
    assert math.isclose(rungs[-1].elapsed_s, math.fsum(r.wait_s for r in rungs), abs_tol=1e-6)
    assert describe(policy)
    assert Policy.parse(json.loads(json.dumps(given_policy))) == policy


def test_the_nearest_policy_is_in_force() -> None:
    """The endpoint's own, else its tenant's, else the installation's."""
    own, tenant, settings = {"attempts": 2}, {"delays_s": [5]}, Settings(retry_attempts=7)

    assert in_force(own, tenant, settings) == (Policy(attempts=2), Source.ENDPOINT)
    assert in_force(None, tenant, settings) == (Policy.parse(tenant), Source.TENANT)
    assert in_force(None, None, settings) == (Policy(attempts=7), Source.INSTALLATION)


def test_a_stored_policy_that_cannot_be_read_counts_for_nothing() -> None:
    """As in the dispatcher: the installation's is followed, and no page breaks."""
    found = in_force({"attempts": "many"}, {"attempts": 3}, Settings())

    assert found == (DEFAULT, Source.INSTALLATION)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({}, "after 10 s, 40 s, 2 min 40 s … 24 h: 10 attempts over about 2.6 days"),
        ({"delays_s": [2, 4]}, "after 2 s, 4 s: 3 attempts over about 6 seconds"),
        ({"delays_s": [0.5, 3600]}, "after 0.5 s, 1 h: 3 attempts over about 60 minutes"),
        ({"delays_s": []}, "1 attempt, no retry"),
    ],
)
def test_a_ladder_in_words(policy: dict[str, Any], words: str) -> None:
    """A person reads when and for how long, not the parameters."""
    assert describe(Policy.parse(policy)) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59.4, "59.4 s"), (59.9, "1 min"), (160, "2 min 40 s"), (3599.9, "1 h"),
     (10_240, "2 h 51 min"), (86_400, "24 h"), (172_799, "2 d"), (604_800, "7 d"),
     (97_200 * 2, "2 d 6 h")],
)  # fmt: skip
def test_durations_in_words(seconds: float, words: str) -> None:
    """Two units at most, rounded."""
    assert duration(seconds) == words
