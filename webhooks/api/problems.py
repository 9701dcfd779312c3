"""Problem details (RFC 9457): the one form of every error of the API.

``type`` is a stable name for programs, ``detail`` and ``errors`` are for people. A
``field`` is named as in the request: ``event_types[0]``, or ``body`` for the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from flask import Response, g
from werkzeug.exceptions import HTTPException

MEDIA_TYPE = "application/problem+json"
TYPE = "urn:webhooks:problem:"
RETRY_AFTER_S = 5

TITLES = {
    "malformed": "The request is malformed",
    "unauthorized": "An API key is needed",
    "forbidden": "The API key is not allowed to do this",
    "not-found": "There is no such resource",
    "method-not-allowed": "The resource does not support this method",
    "conflict": "The request conflicts with the present state",
    "too-large": "The request is too large",
    "unsupported-media-type": "The request's format is not supported",
    "invalid": "A value is not valid",
    "too-many-requests": "Too many requests",
    "internal": "Something went wrong here",
    "database-away": "The database does not answer",
}
KINDS = {
    400: "malformed",
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    409: "conflict",
    413: "too-large",
    415: "unsupported-media-type",
    422: "invalid",
    429: "too-many-requests",
    500: "internal",
    503: "database-away",
}


class FieldError(msgspec.Struct, frozen=True):
    """What is wrong with one field of the request."""

    field: str
    message: str


class Problem(Exception):
    """An error to answer a request with: status and either ``detail`` or field errors."""

    def __init__(
        self,
        status: int,
        detail: str = "",
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        first = f"{errors[0].field}: {errors[0].message}" if errors else ""
        super().__init__(detail or first)
        self.status = status
        self.errors = errors
        self.headers = dict(headers or {})

    @classmethod
    def of_field(cls, status: int, field: str, message: str) -> Problem:
        """A problem with one field."""
        return cls(status, errors=[FieldError(field, message)])

    def response(self) -> Response:
        """The answer, with the request's id in it for whoever asks us about it."""
        kind = KINDS.get(self.status)
        body: dict[str, Any] = {
            "type": TYPE + kind if kind else "about:blank",
            "title": TITLES[kind] if kind else HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": str(self),
            "request_id": g.request_id,
        }
        if self.errors:
            body["errors"] = self.errors
        encoded = msgspec.json.encode(body)
        return Response(encoded, self.status, self.headers, content_type=MEDIA_TYPE)


def not_found(what: str) -> Problem:
    """404 for an id that does not exist, is malformed, or belongs to another tenant."""
    return Problem(404, f"there is no {what} of this id")


def database_away() -> Problem:
    """503: nothing was stored for certain; the same request may be sent again."""
    return Problem(
        503,
        f"try again in {RETRY_AFTER_S} s, with the same idempotency key",
        headers={"Retry-After": str(RETRY_AFTER_S)},
    )


def from_http(error: HTTPException) -> Problem:
    """What the framework refused, as a problem."""
    headers = {
        name: value
        for name, value in error.get_headers()
        if name.lower() not in ("content-type", "content-length")
    }
    return Problem(error.code or 500, _detail(error), headers=headers)


def _detail(error: HTTPException) -> str:
    if error.code == 404:
        return "there is no such route; the API's routes begin with /api/v1/"
    if error.code == 500:
        return "the error was logged; quote the request_id when you report it"
    return error.description or ""
