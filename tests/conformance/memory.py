"""The most memory that this process held (Linux), without what it held before.

getrusage would tell the peak since the start, and even the parent's at the fork.
"""

from __future__ import annotations

from pathlib import Path

SELF = Path("/proc/self")


def forget_peak() -> int:
    """Let the peak begin anew at what is resident now: that, in kB (proc(5), clear_refs)."""
    (SELF / "clear_refs").write_text("5")
    return peak_kb()


def peak_kb() -> int:
    """The most that was resident since then."""
    lines = (SELF / "status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
