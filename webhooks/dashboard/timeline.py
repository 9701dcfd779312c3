"""Where an attempt's time went, as parts of a bar."""

from __future__ import annotations

from dataclasses import dataclass

from webhooks.dashboard.queries import Row

WIDTH = 100.0
THINNEST = 0.6

STEPS = (
    ("dns", "DNS", "dns_ms"),
    ("connect", "Connect", "connect_ms"),
    ("tls", "TLS", "tls_ms"),
    ("wait", "First byte", "first_byte_ms"),
    ("rest", "Rest", "total_ms"),
)


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase: its duration in milliseconds, and its place in a bar 100 wide."""

    kind: str
    name: str
    duration_ms: float
    x: float
    width: float


def phases(attempt: Row) -> list[Phase]:
    """The phases an attempt reached; the columns hold when each ended, counted from the start."""
    total = attempt["total_ms"] or 0.0
    found: list[Phase] = []
    began = 0.0
    for kind, name, column in STEPS:
        ended = attempt[column]
        if ended is None or ended < began or total <= 0:
            continue
        if kind == "rest" and attempt["first_byte_ms"] is None:
            kind, name = "wait", "Waiting"
        if ended > began:
            width = max((ended - began) / total * WIDTH, THINNEST)
            x = min(began / total * WIDTH, WIDTH - THINNEST)
            found.append(Phase(kind, name, ended - began, round(x, 2), round(width, 2)))
        began = ended
    return found
