"""JSON Schemas (2020-12) of payloads: checked when saved, compiled once, nothing ever fetched.

Patterns run in time linear in their text. Payloads are parsed with numbers as they stand:
integers of any length, decimals as decimals.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from itertools import islice
from typing import Any

from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

MOST_SCHEMA_BYTES = 65_536
MOST_ERRORS = 20
LONGEST_MESSAGE = 300
REMOTE = "a schema on another address; put it into $defs of this one"


class SchemaFault(ValueError):
    """A schema cannot be used, or a JSON text cannot be read; the text says why and where."""


class Schema:
    """A compiled schema; any thread may use it."""

    def __init__(self, text: str) -> None:
        """Raises SchemaFault for what is no schema of 2020-12, or refers to another address."""
        if len(text.encode("utf-8", "surrogatepass")) > MOST_SCHEMA_BYTES:
            raise SchemaFault(f"it has more than {MOST_SCHEMA_BYTES} bytes")
        schema = parse(text)
        if not isinstance(schema, dict | bool):
            raise SchemaFault("a schema is an object, or true or false")
        try:
            self._validator = Draft202012Validator(
                schema, retriever=_refuse, pattern_options=RegexOptions(),
                validate_formats=False,
            )  # fmt: skip
        except (ValidationError, ValueError, RecursionError) as error:
            raise SchemaFault(_explain(error)) from error

    def errors(self, payload: bytes | str) -> list[tuple[str, str]]:
        """What is wrong with a payload: JSON pointers (RFC 6901) and why, at most MOST_ERRORS.

        Raises SchemaFault when it cannot be read.
        """
        instance = parse(payload)
        try:
            found = islice(self._validator.iter_errors(instance), MOST_ERRORS)
            return [(_pointer(error.instance_path), _short(error.message)) for error in found]
        except (ValidationError, ValueError, RecursionError) as error:
            raise SchemaFault(_explain(error)) from error


def parse(text: bytes | str) -> Any:
    """JSON with its numbers as they stand; SchemaFault says what is wrong."""
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=_no_constant)
    except RecursionError as error:
        raise SchemaFault("lists and objects are nested too deeply") from error
    except ValueError as error:  # a number of more than 4,300 digits is one, too
        raise SchemaFault(f"it cannot be read: {error}") from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _refuse(address: str) -> None:
    raise ValueError(f"{address[:100]!r}: {REMOTE}")


def _pointer(path: list[str | int]) -> str:
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)


def _short(message: str) -> str:
    return message if len(message) <= LONGEST_MESSAGE else f"{message[: LONGEST_MESSAGE - 1]}…"


def _explain(error: Exception) -> str:
    """The first line of the library's text, and where in the schema."""
    if not isinstance(error, ValidationError):
        return _short(str(error) or "lists and objects are nested too deeply")
    where = _pointer(list(error.instance_path))
    text = error.message
    if "registry" in text or "retriev" in text or "offline" in text.lower():
        text = f"it refers to {REMOTE}"
    return _short(f"{where}: {text}" if where else text)


def pointers(errors: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Errors as fields of a request: ``payload`` and the pointer."""
    return ((f"payload{pointer}", message) for pointer, message in errors)
