"""Put on a process's PYTHONPATH: its wall clock is wrong by CLOCK_OFFSET_S seconds.

Python imports this module by itself at start. The monotonic clock and the system's stay right.
"""

from __future__ import annotations

import datetime
import os
import time

OFFSET_S = float(os.environ["CLOCK_OFFSET_S"])

_right = time.time
_right_ns = time.time_ns


class _Datetime(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> _Datetime:
        return cls.fromtimestamp(_right() + OFFSET_S, tz)


time.time = lambda: _right() + OFFSET_S
time.time_ns = lambda: _right_ns() + int(OFFSET_S * 1_000_000_000)
datetime.datetime = _Datetime  # type: ignore[misc]
