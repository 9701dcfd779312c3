"""Finding: what one check saw, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """OK: as it should be · WARN: it works, and will not for ever · FAIL: something is lost."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """A check's name, how it stands, what was seen with its figures, and the remedy ("": none)."""

    check: str
    level: Level
    what: str
    remedy: str = ""


def worst(findings: list[Finding]) -> Level:
    """The worst level of all; OK if there are none."""
    order = list(Level)
    return max((finding.level for finding in findings), key=order.index, default=Level.OK)


def span(seconds: float) -> str:
    """A length of time as a person says it: 4 s, 12 min, 3 h, 2 days."""
    for unit, length in (("days", 172_800), ("h", 7_200), ("min", 120)):
        if seconds >= length:
            divisor = {"days": 86_400, "h": 3_600, "min": 60}[unit]
            return f"{seconds / divisor:.0f} {unit}"
    return f"{seconds:.0f} s"
