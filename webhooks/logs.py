"""Logging that every process shares: one line a record, on standard error."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime
from pathlib import PurePath
from traceback import extract_tb

# Line ends and terminal escapes: what came from outside must not forge or recolour a line.
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
FRAMES = 12
# A line for each step of theirs would drown ours.
NOISY = ("apscheduler", "alembic")


def setup(level: str) -> None:
    """Log records of ``level`` (debug, info, warning, error) and above."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for noisy in NOISY:
        logging.getLogger(noisy).setLevel(logging.WARNING)


class OneLine(logging.Formatter):
    """Time in UTC, level, where from, message; an exception with its frames, innermost first."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        text = f"{at} {record.levelname.lower():7} {record.name}: {record.getMessage()}"
        if record.exc_info and record.exc_info[1]:
            text = f"{text}: {describe(record.exc_info[1])}"
        return CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def describe(error: BaseException) -> str:
    """An exception, where it happened, and what led to it."""
    frames = [
        f"{PurePath(frame.filename).name}:{frame.lineno} {frame.name}"
        for frame in reversed(extract_tb(error.__traceback__))
    ]
    text = f"{type(error).__name__}: {error} [{' < '.join(frames[:FRAMES])}]"
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return f"{text}; after {describe(cause)}" if cause else text
