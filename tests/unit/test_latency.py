"""Durations in buckets: adding them up and reading quantiles."""

from __future__ import annotations

import statistics

from hypothesis import given
from hypothesis import strategies as st

from webhooks import latency

DURATIONS = st.lists(st.floats(0.8, 60_000), min_size=1, max_size=200)


def counts(durations: list[float]) -> list[int]:
    found = [0] * latency.BUCKETS
    for duration in durations:
        found[latency.bucket(duration)] += 1
    return found


@given(DURATIONS, st.sampled_from([0.01, 0.5, 0.95, 0.99, 1.0]))
def test_a_quantile_is_right_within_its_bucket(durations: list[float], share: float) -> None:
    """Against the durations themselves, put in order: within half a bucket."""
    exact = sorted(durations)[max(0, -(-len(durations) * int(share * 100) // 100) - 1)]

    found = latency.quantile(counts(durations), share)

    assert found is not None
    assert exact / 1.17 <= found <= max(exact, 1) * 1.17


@given(DURATIONS, DURATIONS)
def test_sums_of_buckets_are_the_buckets_of_both(one: list[float], other: list[float]) -> None:
    """Counts of two workers, added, are those of one that saw everything."""
    added = [a + b for a, b in zip(counts(one), counts(other), strict=True)]

    assert added == counts(one + other)


def test_nothing_has_no_quantile() -> None:
    """There is no duration to tell."""
    assert latency.quantile([0] * latency.BUCKETS, 0.5) is None
    assert latency.quantile([], 0.5) is None


def test_what_is_longer_than_all_bounds_is_counted() -> None:
    """It lies in the last bucket, however long it took."""
    assert latency.bucket(10**9) == latency.BUCKETS - 1
    assert latency.bucket(0) == 0
    assert latency.quantile(counts([10**9]), 0.5) == statistics.fmean(
        [latency.BOUNDS_MS[-1] / (4 / 3) ** 0.5]
    )
