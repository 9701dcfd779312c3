"""The Python client against a faked HTTP API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import requests
import responses

from webhooks import client as client_module
from webhooks.client import Client, WebhooksError

BASE = "https://hooks.example.com"
EVENTS = f"{BASE}/api/v1/events"
ENDPOINTS = f"{BASE}/api/v1/endpoints"
ACCEPTED = {"id": "evt_1", "deliveries": 2, "duplicate": False}
PROBLEM = {"type": "urn:x", "title": "No", "status": 422, "detail": "type: it is missing"}


@pytest.fixture
def api() -> Iterator[responses.RequestsMock]:
    """Answers instead of the network; every answer that is set up must be asked for."""
    with responses.RequestsMock() as mock:
        yield mock


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits between tries, which then take no time."""
    found: list[float] = []
    monkeypatch.setattr(client_module.time, "sleep", found.append)
    return found


@pytest.fixture
def client() -> Client:
    return Client(BASE + "/", "whk_live_x")


def sent(api: responses.RequestsMock, number: int = -1) -> bytes:
    body = api.calls[number].request.body
    assert isinstance(body, bytes)
    return body


def test_emit_sends_the_event_with_the_key(api: responses.RequestsMock, client: Client) -> None:
    """The API key goes in the Authorization header and nowhere else."""
    api.post(EVENTS, json=ACCEPTED, status=202)

    answer = client.emit("invoice.paid", {"id": 1, "name": "Zoë"}, tenant="acme")

    assert answer == ACCEPTED
    request = api.calls[0].request
    assert request.headers["Authorization"] == "Bearer whk_live_x"
    assert request.headers["Content-Type"] == "application/json"
    assert "whk_live" not in str(request.url)
    body = json.loads(sent(api))
    assert UUID(body.pop("idempotency_key")).version == 4
    assert body == {
        "type": "invoice.paid",
        "tenant": "acme",
        "payload": {"id": 1, "name": "Zoë"},
    }


@pytest.mark.parametrize(
    "payload",
    [b'{"bb":1, "a":1.10,"u":"\\u0000"}', '{"a": 1E400, "é": 12345678901234567890}', "null", b"1 "],
)
def test_json_text_is_spliced_in_byte_for_byte(
    api: responses.RequestsMock, client: Client, payload: bytes | str
) -> None:
    """bytes and str are JSON already and are not serialised again."""
    api.post(EVENTS, json=ACCEPTED, status=202)

    client.emit("a", payload)

    raw = payload if isinstance(payload, bytes) else payload.encode()
    assert sent(api).endswith(b',"payload":' + raw + b"}")


@pytest.mark.parametrize(
    "payload",
    [
        '1,"tenant":"other"',
        "1}",
        "",
        " ",
        "{",
        "hello",
        b"\xff",
        b'"\xff"',
        "[" * 100_000,
        float("nan"),
        {"a": float("inf")},
    ],
    ids=lambda payload: repr(payload)[:20],
)
def test_what_is_not_one_json_value_is_not_sent(client: Client, payload: Any) -> None:
    """A payload cannot smuggle other fields into the event."""
    with pytest.raises(ValueError, match=r"payload|JSON"):
        client.emit("a", payload)


def test_the_given_idempotency_key_is_sent(api: responses.RequestsMock, client: Client) -> None:
    """The caller's own key makes a retry of the whole program safe too."""
    api.post(EVENTS, json=ACCEPTED, status=202)

    client.emit("a", 1, idempotency_key="order 5")

    assert json.loads(sent(api))["idempotency_key"] == "order 5"


@pytest.mark.parametrize(
    "failure", [requests.ConnectionError("reset"), requests.ReadTimeout("slow")]
)
def test_emit_asks_again_with_the_same_key(
    api: responses.RequestsMock, client: Client, waits: list[float], failure: Exception
) -> None:
    """A lost connection or answer, then 503, then 202: one event, the same bytes each time."""
    api.post(EVENTS, body=failure)
    api.post(EVENTS, status=503, headers={"Retry-After": "5"}, json={})
    api.post(EVENTS, json=ACCEPTED, status=202)

    assert client.emit("a", 1) == ACCEPTED

    assert len({sent(api, n) for n in range(3)}) == 1
    assert waits[0] <= 0.2
    assert waits[1] == 5


def test_an_absurd_retry_after_is_bounded(
    api: responses.RequestsMock, client: Client, waits: list[float]
) -> None:
    """A date or a year is not waited for inside a call."""
    api.post(EVENTS, status=503, headers={"Retry-After": "31536000"})
    api.post(EVENTS, status=503, headers={"Retry-After": "Wed, 21 Oct 2099 07:28:00 GMT"})
    api.post(EVENTS, json=ACCEPTED, status=202)

    client.emit("a", 1)

    assert waits[0] == 10
    assert waits[1] <= 0.4


def test_emit_gives_up_after_three_tries(
    api: responses.RequestsMock, client: Client, waits: list[float]
) -> None:
    """The error tells that there was no answer, or the last one."""
    api.post(EVENTS, body=requests.ConnectionError("refused"))

    with pytest.raises(WebhooksError, match="refused") as raised:
        client.emit("a", 1)

    assert raised.value.status is None
    assert len(api.calls) == 3
    assert len(waits) == 2


@pytest.mark.parametrize("status", [400, 401, 409, 413, 422, 500, 502])
def test_a_refusal_is_an_error_with_its_problem(
    api: responses.RequestsMock, client: Client, status: int
) -> None:
    """It is not asked again: the answer would be the same."""
    api.post(EVENTS, status=status, json=PROBLEM)

    with pytest.raises(WebhooksError, match="type: it is missing") as raised:
        client.emit("a", 1)

    assert (raised.value.status, raised.value.problem) == (status, PROBLEM)
    assert len(api.calls) == 1


@pytest.mark.parametrize("body", ["", "<html>", "[]", "null"])
def test_an_error_without_a_problem_is_an_error_all_the_same(
    api: responses.RequestsMock, client: Client, body: str
) -> None:
    """A proxy's own error page breaks nothing."""
    api.post(EVENTS, status=502, body=body)

    with pytest.raises(WebhooksError) as raised:
        client.emit("a", 1)

    assert (raised.value.status, raised.value.problem) == (502, {})


def test_a_redirect_is_an_error(api: responses.RequestsMock, client: Client) -> None:
    """A POST is never turned into a GET, and the key goes to no other host."""
    api.post(EVENTS, status=302, headers={"Location": "https://elsewhere.example/"})

    with pytest.raises(WebhooksError) as raised:
        client.emit("a", 1)

    assert raised.value.status == 302


def test_an_answer_that_is_not_json_is_an_error(
    api: responses.RequestsMock, client: Client
) -> None:
    """Whatever answered was not the API."""
    api.post(EVENTS, status=200, body="<html>")

    with pytest.raises(WebhooksError, match="not JSON"):
        client.emit("a", 1)


def test_emit_many_sends_one_batch(api: responses.RequestsMock, client: Client) -> None:
    """Each event is what emit would send, payload bytes and own key included."""
    answers = [{"status": 202, **ACCEPTED}, {"status": 422, "errors": []}]
    api.post(f"{EVENTS}/batch", json={"data": answers})

    found = client.emit_many(
        [
            {"type": "a", "payload": b'{ "a" : 1.10 }', "tenant": "acme"},
            {"type": "b", "payload": [1], "idempotency_key": "k"},
        ]
    )

    assert found == answers
    assert b'"payload":{ "a" : 1.10 }}' in sent(api)
    first, second = json.loads(sent(api))
    assert UUID(first["idempotency_key"])
    assert first["tenant"] == "acme"
    assert second == {"type": "b", "payload": [1], "idempotency_key": "k"}


def test_an_endpoint_is_made_once(
    api: responses.RequestsMock, client: Client, waits: list[float]
) -> None:
    """Making one is not asked again by itself: there could be two."""
    api.post(ENDPOINTS, status=503, json=PROBLEM)

    with pytest.raises(WebhooksError):
        client.create_endpoint("https://example.com/", ["*"], description="d")

    assert len(api.calls) == 1
    assert json.loads(sent(api)) == {
        "url": "https://example.com/",
        "event_types": ["*"],
        "description": "d",
    }
    assert waits == []


def test_endpoints_are_listed_page_by_page(api: responses.RequestsMock, client: Client) -> None:
    """The iterator follows ``next`` to its end and keeps the filter."""
    match = responses.matchers.query_param_matcher
    api.get(
        ENDPOINTS,
        json={"data": [{"id": "ep_2"}], "next": "c+/="},
        match=[match({"tenant": "acme"})],
    )
    api.get(
        ENDPOINTS,
        json={"data": [{"id": "ep_1"}], "next": None},
        match=[match({"tenant": "acme", "cursor": "c+/="})],
    )

    assert [e["id"] for e in client.list_endpoints(tenant="acme")] == ["ep_2", "ep_1"]


def test_an_endpoint_is_read_changed_and_deleted(
    api: responses.RequestsMock, client: Client
) -> None:
    """The id is quoted: it cannot lead to another route."""
    api.get(f"{ENDPOINTS}/ep_1", json={"id": "ep_1"})
    api.patch(f"{ENDPOINTS}/ep_1", json={"id": "ep_1", "status": "paused"})
    api.delete(f"{ENDPOINTS}/ep_1", status=204)
    api.get(f"{ENDPOINTS}/..%2Fevents", status=404, json=PROBLEM)

    assert client.get_endpoint("ep_1") == {"id": "ep_1"}
    assert client.update_endpoint("ep_1", status="paused")["status"] == "paused"
    client.delete_endpoint("ep_1")
    with pytest.raises(WebhooksError):
        client.get_endpoint("../events")

    assert json.loads(sent(api, 1)) == {"status": "paused"}


def test_a_netrc_file_does_not_replace_the_key(
    api: responses.RequestsMock,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """requests would otherwise prefer the file's password over the header."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine hooks.example.com login a password b")
    monkeypatch.setenv("NETRC", str(netrc))
    api.get(f"{ENDPOINTS}/ep_1", json={})

    client.get_endpoint("ep_1")

    assert api.calls[0].request.headers["Authorization"] == "Bearer whk_live_x"
