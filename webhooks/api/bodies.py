"""Reading requests and writing answers: strict JSON in, predictable JSON out."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
from flask import Response, current_app, request
from werkzeug.exceptions import RequestEntityTooLarge

from webhooks.api.problems import FieldError, Problem
from webhooks.db import FOREVER
from webhooks.settings import Settings

T = TypeVar("T")

# RFC 3339 in UTC, as ``timestamp`` writes it.
Timestamp: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]

JSON = "application/json"
ENVELOPE_BYTES = 65_536
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*?)`")
_PATH = re.compile(r" - at `\$\.?(.*)`$", re.DOTALL)
_LONE_SURROGATE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]"
)
_WORDS = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


class Malformed(ValueError):
    """The bytes are not JSON in UTF-8; the text says where."""


class Invalid(ValueError):
    """The JSON does not have the fields that are expected."""

    def __init__(self, error: FieldError) -> None:
        super().__init__(f"{error.field}: {error.message}")
        self.error = error


def settings() -> Settings:
    """The application's settings."""
    found: Settings = current_app.extensions["webhooks_settings"]
    return found


def read(limit: int, *media_types: str) -> bytes:
    """The request's body. Problem 415 unless it is of a media type given, 413 past the limit."""
    _check_format(media_types or (JSON,))
    # A body without a length is cut at the maximum without a word: one byte more tells.
    request.max_content_length = limit + 1
    try:
        body = request.get_data(cache=False)
    except RequestEntityTooLarge:
        body = None
    if body is None or len(body) > limit:
        raise Problem.of_field(413, "body", f"it has more than {limit} bytes")
    return body


def read_struct(decoder: msgspec.json.Decoder[T], limit: int = ENVELOPE_BYTES) -> T:
    """The request's JSON object as a struct; Problem 400, 413, 415 or 422 otherwise."""
    try:
        return decode(decoder, read(limit))
    except Malformed as error:
        raise Problem.of_field(400, "body", str(error)) from error
    except Invalid as error:
        raise Problem(422, errors=[error.error]) from error


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decode JSON; raises Malformed or Invalid, and nothing else whatever the bytes are."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Invalid(_field_error(str(error), decoder.type)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(_malformed(body, str(error))) from error
    except RecursionError as error:
        raise Invalid(FieldError("body", "lists and objects are nested too deeply")) from error


def refuse_idempotency_key(remedy: str) -> None:
    """Problem 422 for the header Idempotency-Key: nobody may trust in what is ignored."""
    if "Idempotency-Key" in request.headers:
        raise Problem.of_field(422, "Idempotency-Key", remedy)


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(msgspec.json.encode(value), status, headers, content_type=JSON)


def timestamp(at: datetime | None) -> str | None:
    """RFC 3339 in UTC with microseconds; None for never and for forever."""
    return None if at is None or at == FOREVER else rfc3339(at)


def rfc3339(at: datetime) -> str:
    """The same of a time that there is."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def suggestion(name: str, known: Iterable[str]) -> str:
    """The nearest known name, or all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"give one of {', '.join(names)}"


def _check_format(media_types: tuple[str, ...]) -> None:
    charset = request.mimetype_params.get("charset", "utf-8").lower()
    if request.mimetype not in media_types or charset not in ("utf-8", "utf8"):
        given = request.headers.get("Content-Type", "")
        raise Problem.of_field(
            415, "Content-Type", f"{given[:80]!r} is not {' or '.join(media_types)} in UTF-8"
        )
    encoding = request.headers.get("Content-Encoding", "identity").lower()
    if encoding != "identity":
        raise Problem.of_field(
            415, "Content-Encoding", f"{encoding[:80]!r} is not supported; send the body as it is"
        )


def _malformed(body: bytes, text: str) -> str:
    if not body.strip():
        return "it is empty; send a JSON object"
    if body.startswith(BYTE_ORDER_MARK):
        return "it begins with a byte order mark; send UTF-8 without one"
    if _LONE_SURROGATE.search(body):
        return "it has half of a surrogate pair, such as \\ud800 alone; escape both halves"
    return f"it is not JSON in UTF-8: {text}"


def _field_error(text: str, expected: Any) -> FieldError:
    path = _PATH.search(text)
    # Of an object with any keys it does not say which value it was.
    field = path[1].replace("[...]", "") if path else ""
    message = text[: path.start()] if path else text
    if unknown := _UNKNOWN.match(message):
        fields = getattr(expected, "__struct_encode_fields__", ())
        return FieldError(
            unknown[1][:80], f"there is no such field; {suggestion(unknown[1], fields)}"
        )
    if missing := _MISSING.match(message):
        return FieldError(missing[1], "it is missing")
    return FieldError(field[:80] or "body", _translated(message))


def _translated(message: str) -> str:
    """``Expected `int | null`, got `str` `` in words that do not need Python."""

    def words(match: re.Match[str]) -> str:
        return " or ".join(_WORDS.get(kind, kind) for kind in match[1].split(" | "))

    return re.sub(r"`([^`]*)`", words, message[0].lower() + message[1:])
