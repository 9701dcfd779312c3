"""What bad input gets: an error that names the field and the remedy."""

from __future__ import annotations


class FieldError(ValueError):
    """A field is wrong: ``field`` names it, ``message`` gives its value and the remedy."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message
