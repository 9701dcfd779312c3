"""Durations in buckets that grow by a constant factor, so that counts of many can be added.

Each bucket is a third wider than the one before, from 1 ms to over a minute: a quantile is
right within a seventh. Pure.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

FACTOR = 4 / 3
# Upper bounds in ms; what is longer is in one bucket more.
BOUNDS_MS = tuple(FACTOR**n for n in range(40))
BUCKETS = len(BOUNDS_MS) + 1


def bucket(duration_ms: float) -> int:
    """The index of the bucket that a duration lies in."""
    return bisect_left(BOUNDS_MS, duration_ms)


def quantile(counts: Sequence[int], share: float) -> float | None:
    """The duration in ms below which that share of the counted lies, or None: there are none.

    The middle of its bucket, as factors go; what is past the last bound is that bound.
    """
    rank = math.ceil(sum(counts) * share)
    if rank <= 0:
        return None
    seen = 0
    for index, count in enumerate(counts):
        seen += count
        if seen >= rank:
            return BOUNDS_MS[min(index, len(BOUNDS_MS) - 1)] / math.sqrt(FACTOR)
    return None
