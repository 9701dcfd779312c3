"""docs/security.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`")


def test_every_promise_names_a_test_that_there_is() -> None:
    """A promise whose test was renamed or removed fails here."""
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = NAMED.findall(page)

    missing = [
        f"{path}::{test}"
        for path, test in named
        if not (ROOT / path).is_file() or f"def {test}" not in (ROOT / path).read_text("utf-8")
    ]

    assert missing == []
    promised = re.findall(r"^\| (\d+) \|.*`tests/", page, re.MULTILINE)
    assert promised == ["1", "2", "3", "4", "5", "7", "8", "9"]
