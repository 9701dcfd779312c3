"""A caller of the HTTP API for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from flask import Flask
from werkzeug.test import TestResponse

from webhooks import keys, tenants

URL = "http://127.0.0.1:8080/hook"


class Api:
    """Calls with an API key of one tenant, made if it is missing, or of all tenants (None).

    Every answer is held against what its route says that it answers.
    """

    def __init__(
        self, app: Flask, tenant: str | None = None, scopes: Iterable[str] = ("admin",)
    ) -> None:
        with app.app_context():
            found = tenants.find(tenant) or tenants.create(tenant, tenant) if tenant else None
            _, self.key = keys.create("test", found, scopes=scopes)
        self._app, self._client = app, app.test_client()

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> TestResponse:
        """``body``: bytes as they are, anything else as JSON."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = {"Authorization": f"Bearer {self.key}"}
        if data is not None:
            sent["Content-Type"] = "application/json"
        sent |= headers or {}
        answer = self._client.open(
            f"/api/v1{path}", method=method, data=data, headers={k: v for k, v in sent.items() if v}
        )
        if answer.status_code < 300 and method != "HEAD":
            self._check(answer, method, f"/api/v1{path.partition('?')[0]}")
        return answer

    def _check(self, answer: TestResponse, method: str, path: str) -> None:
        view, _ = self._app.url_map.bind("localhost").match(path, method)
        described = getattr(self._app.view_functions[view], "operation", None)
        if described is not None and described.answer is not None:
            msgspec.json.decode(answer.data, type=described.answer)

    def get(self, path: str) -> TestResponse:
        return self.call("GET", path)

    def post(self, path: str, body: Any = None, **headers: str) -> TestResponse:
        return self.call(
            "POST", path, body, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )

    def patch(self, path: str, body: Any) -> TestResponse:
        return self.call("PATCH", path, body)

    def delete(self, path: str) -> TestResponse:
        return self.call("DELETE", path)

    def endpoint(self, *event_types: str, **fields: Any) -> str:
        """The id of a new endpoint."""
        body = {"url": URL, "event_types": event_types or ["*"], **fields}
        made = self.post("/endpoints", body)
        assert made.status_code == 201, made.json
        return str(made.json["id"]) if made.json else ""

    def event(self, type: str = "invoice.paid", payload: Any = 1, **fields: Any) -> str:
        """The id of a new event."""
        made = self.post("/events", {"type": type, "payload": payload, **fields})
        assert made.status_code == 202, made.json
        return str(made.json["id"]) if made.json else ""


def errors(response: TestResponse) -> dict[str, str]:
    """The problem's errors as field and message; checks that it is a problem (RFC 9457)."""
    assert response.content_type == "application/problem+json"
    problem = response.json
    assert problem is not None
    assert {"type", "title", "status", "detail"} <= problem.keys()
    assert problem["status"] == response.status_code
    assert problem["request_id"] == response.headers["X-Request-Id"]
    return {error["field"]: error["message"] for error in problem.get("errors", [])}
