"""The benchmarks' own arithmetic: a wrong quantile would make every figure wrong."""

from __future__ import annotations

import pytest

from tests.benchmarks import bench


@pytest.mark.parametrize(
    ("count", "share", "expected"),
    [
        (100, 0.5, 50),
        (100, 0.99, 99),
        (1000, 0.99, 990),
        (101, 0.99, 100),
        (3, 1.0, 3),
        (1, 0.5, 1),
    ],
)
def test_quantile_is_the_nearest_rank(count: int, share: float, expected: int) -> None:
    """The smallest value that at least this share of all are not above."""
    assert bench.quantile(list(range(count, 0, -1)), share) == expected


def test_a_table_is_aligned() -> None:
    """Each column as wide as its widest cell, figures to the right."""
    assert bench.table(["name", "ms"], [["a", 1.5], ["longer", 12]]) == (
        "name     ms\na       1.5\nlonger   12\n"
    )
