"""A small client of the HTTP API: emit events, manage endpoints.

    client = Client("https://hooks.example.com", "whk_live_…")
    client.emit("invoice.paid", {"id": 1, "amount": "12.50"})

Errors are WebhooksError. What can be sent twice without harm is retried.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import msgspec
import requests
from requests.auth import AuthBase

TRIES = 3
FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 10.0

_value = msgspec.json.Decoder(msgspec.Raw)


class WebhooksError(Exception):
    """The API refused, or could not be reached.

    ``status`` is the HTTP status, or None when there was no answer; ``problem`` the
    answer's problem details (RFC 9457), or an empty dict.
    """

    def __init__(self, message: str, status: int | None, problem: dict[str, Any]) -> None:
        super().__init__(message)
        self.status = status
        self.problem = problem


class Client:
    """A connection to one installation. Not to be shared between threads."""

    def __init__(self, base_url: str, api_key: str, timeout_s: float = 10) -> None:
        self._url = base_url.rstrip("/") + "/api/v1"
        self._timeout_s = timeout_s
        self._session = requests.Session()
        self._session.auth = _Bearer(api_key)

    def emit(
        self,
        type: str,
        payload: Any,
        *,
        tenant: str | None = None,
        idempotency_key: str | None = None,
    ) -> dict[str, Any]:
        """Emit an event; answers ``{"id", "deliveries", "duplicate"}`` once it is durable.

        ``payload`` is any JSON value, or JSON text as bytes or str, which is kept byte for
        byte. Without a key one is made, so that a lost answer is safely asked for again.
        Raises WebhooksError, or ValueError when the payload is not JSON.
        """
        body = _event(type, payload, tenant, idempotency_key)
        return self._json("POST", "/events", body, repeatable=True)

    def emit_many(self, events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Emit up to 1,000 events, each a mapping of ``emit``'s arguments by name.

        Answers one dict each, in order: ``status`` 202 with what ``emit`` answers, or
        another ``status`` with ``errors``.
        """
        bodies = [
            _event(e["type"], e["payload"], e.get("tenant"), e.get("idempotency_key"))
            for e in events
        ]
        body = b"[" + b",".join(bodies) + b"]"
        answers: list[dict[str, Any]] = self._json("POST", "/events/batch", body, repeatable=True)[
            "data"
        ]
        return answers

    def create_endpoint(
        self, url: str, event_types: Iterable[str], **fields: Any
    ) -> dict[str, Any]:
        """Add an endpoint; its ``secret`` is in this answer only.

        ``fields``: description, tenant, max_in_flight, rate_limit, timeout_s, retry_policy.
        """
        body = {"url": url, "event_types": list(event_types), **fields}
        return self._json("POST", "/endpoints", _dump(body))

    def list_endpoints(self, *, tenant: str | None = None) -> Iterator[dict[str, Any]]:
        """Every endpoint, newest first, fetched page by page."""
        parameters = {} if tenant is None else {"tenant": tenant}
        while True:
            page = self._json("GET", "/endpoints", parameters=parameters, repeatable=True)
            yield from page["data"]
            if page["next"] is None:
                return
            parameters = {**parameters, "cursor": page["next"]}

    def get_endpoint(self, endpoint_id: str) -> dict[str, Any]:
        """One endpoint."""
        return self._json("GET", _endpoint(endpoint_id), repeatable=True)

    def update_endpoint(self, endpoint_id: str, **fields: Any) -> dict[str, Any]:
        """Change the fields given, ``status`` ("active", "paused", "disabled") among them.

        ``release`` says what is sent of what was held, where the status becomes active.
        """
        return self._json("PATCH", _endpoint(endpoint_id), _dump(fields), repeatable=True)

    def delete_endpoint(self, endpoint_id: str) -> None:
        """Remove an endpoint; what waits for it is cancelled."""
        self._send("DELETE", _endpoint(endpoint_id))

    def _json(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        parameters: Mapping[str, str] | None = None,
        repeatable: bool = False,
    ) -> dict[str, Any]:
        response = self._send(method, path, body, parameters=parameters, repeatable=repeatable)
        try:
            found: dict[str, Any] = response.json()
        except ValueError as error:
            raise WebhooksError("the answer is not JSON", response.status_code, {}) from error
        return found

    def _send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        parameters: Mapping[str, str] | None = None,
        repeatable: bool = False,
    ) -> requests.Response:
        tries = TRIES if repeatable else 1
        for number in range(1, tries + 1):
            try:
                response = self._session.request(
                    method,
                    self._url + path,
                    params=parameters,
                    data=body,
                    headers={"Content-Type": "application/json"} if body is not None else {},
                    timeout=self._timeout_s,
                    allow_redirects=False,
                )
            except requests.RequestException as error:
                if number == tries or not _is_transient(error):
                    raise WebhooksError(f"{method} {path}: {error}", None, {}) from error
                wait = 0.0
            else:
                if response.status_code != 503 or number == tries:
                    return _checked(response)
                wait = _retry_after(response)
            time.sleep(max(wait, FIRST_WAIT_S * 2 ** (number - 1) * random.uniform(0.5, 1)))  # noqa: S311 - jitter
        raise AssertionError("unreachable")


class _Bearer(AuthBase):
    """A function of the request, so that requests does not look into a netrc file."""

    def __init__(self, api_key: str) -> None:
        self._header = f"Bearer {api_key}"

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = self._header
        return request


def _event(type: str, payload: Any, tenant: str | None, idempotency_key: str | None) -> bytes:
    """The event's JSON with the payload's own bytes spliced in."""
    key = str(uuid.uuid4()) if idempotency_key is None else idempotency_key
    fields = {"type": type, "idempotency_key": key}
    if tenant is not None:
        fields["tenant"] = tenant
    return _dump(fields)[:-1] + b',"payload":' + _payload(payload) + b"}"


def _payload(payload: Any) -> bytes:
    if isinstance(payload, str):
        payload = payload.encode()
    if not isinstance(payload, bytes):
        return _dump(payload)
    try:
        # Exactly one JSON value: more would become other fields of the event.
        _value.decode(payload)
        payload.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"payload: not JSON in UTF-8: {error}") from error
    return payload


def _dump(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode()


def _endpoint(endpoint_id: str) -> str:
    return f"/endpoints/{quote(endpoint_id, safe='')}"


def _is_transient(error: requests.RequestException) -> bool:
    return isinstance(
        error,
        requests.ConnectionError | requests.Timeout | requests.exceptions.ChunkedEncodingError,
    )


def _retry_after(response: requests.Response) -> float:
    """Seconds that the answer asks to wait, at most LONGEST_WAIT_S; 0 when it does not."""
    text = response.headers.get("Retry-After", "")
    return min(float(text), LONGEST_WAIT_S) if text.isascii() and text.isdigit() else 0.0


def _checked(response: requests.Response) -> requests.Response:
    if 200 <= response.status_code < 300:
        return response
    try:
        problem = response.json()
    except ValueError:
        problem = {}
    if not isinstance(problem, dict):
        problem = {}
    detail = problem.get("detail") or response.reason
    raise WebhooksError(f"{response.status_code}: {detail}", response.status_code, problem)
