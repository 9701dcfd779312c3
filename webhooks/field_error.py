"""What bad input gets: an error that names the field and the remedy."""

from __future__ import annotations

LONGEST_ECHO = 60


class FieldError(ValueError):
    """A field is wrong: ``field`` names it, ``message`` gives its value and the remedy."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


def echo(value: object) -> str:
    """A wrong value for a message, short; repr itself refuses huge numbers and deep lists."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return f"this {type(value).__name__}"
    return text if len(text) <= LONGEST_ECHO else f"{text[: LONGEST_ECHO - 1]}…"
