"""The local receiver: what it keeps, how it judges signatures, how it answers."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from http.client import HTTPConnection
from typing import Any

import pytest
import standardwebhooks

from webhooks.receiver import Behaviour, Receiver

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(range(1, 33))).decode()
BODY = b'{"id": 1.10}'


class Client:
    """One keep-alive connection to a receiver."""

    def __init__(self, receiver: Receiver) -> None:
        self.connection = HTTPConnection("127.0.0.1", receiver.server_port, timeout=10)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any]:
        self.connection.request(method, path, body, headers or {})
        answer = self.connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None

    def requests(self) -> list[dict[str, Any]]:
        status, value = self.ask("GET", "/requests")
        assert status == 200
        assert value.keys() == {"data"}
        data: list[dict[str, Any]] = value["data"]
        return data


@pytest.fixture
def lines() -> list[str]:
    """What the receiver printed."""
    return []


@pytest.fixture
def receiver(lines: list[str]) -> Iterator[Receiver]:
    """A running receiver without a secret."""
    with Receiver("127.0.0.1", 0, Behaviour(), report=lines.append) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def client(receiver: Receiver) -> Iterator[Client]:
    """A connection to the receiver."""
    made = Client(receiver)
    yield made
    made.connection.close()


def signed(secret: str, body: bytes = BODY, *, age: timedelta = timedelta(0)) -> dict[str, str]:
    """Headers as the public Standard Webhooks package makes them, as of now less ``age``."""
    at = datetime.now(UTC) - age
    return {
        "webhook-id": "evt_1",
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": standardwebhooks.Webhook(secret).sign("evt_1", at, body.decode()),
        "webhook-event-type": "invoice.paid",
    }


def test_requests_are_listed_oldest_first(client: Client) -> None:
    """GET /requests has exactly the documented fields, in order of arrival."""
    before = datetime.now(UTC)
    client.ask("POST", "/a?x=1", BODY, {"X-One": "1"})
    client.ask("PUT", "/b", "é".encode())

    first, second = client.requests()

    assert first.keys() == {"method", "path", "headers", "body", "signature", "received_at"}
    assert (first["method"], first["path"], first["body"]) == ("POST", "/a?x=1", BODY.decode())
    assert first["headers"]["X-One"] == "1"
    assert before <= datetime.fromisoformat(first["received_at"]) <= datetime.now(UTC)
    assert (second["method"], second["path"], second["body"]) == ("PUT", "/b", "é")


def test_looking_and_steering_are_no_deliveries(client: Client) -> None:
    """The receiver's own pages never show up among the requests."""
    client.ask("GET", "/behaviour")
    client.ask("PUT", "/behaviour", b"{}")
    client.requests()

    assert client.requests() == []


def test_requests_can_be_forgotten(client: Client) -> None:
    """DELETE /requests empties the list."""
    client.ask("POST", "/", BODY)

    assert client.ask("DELETE", "/requests") == (204, None)

    assert client.requests() == []


def test_only_the_newest_are_kept(receiver: Receiver, client: Client) -> None:
    """Ten thousand requests are kept, and the oldest go first."""
    for number in range(10_002):
        receiver.record("POST", f"/{number}", {}, b"")

    found = client.requests()

    assert len(found) == 10_000
    assert (found[0]["path"], found[-1]["path"]) == ("/2", "/10001")


@pytest.mark.parametrize(
    ("secrets", "sign", "verdict", "status"),
    [
        ([], partial(signed, OTHER), "unknown", 200),
        ([], dict, "unknown", 200),
        ([SECRET], partial(signed, SECRET), "valid", 200),
        ([OTHER, SECRET], partial(signed, SECRET), "valid", 200),
        ([SECRET], partial(signed, OTHER), "invalid", 401),
        ([SECRET], partial(signed, SECRET, b'{"id": 1.1}'), "invalid", 401),
        ([SECRET], partial(signed, SECRET, age=timedelta(minutes=6)), "invalid", 401),
        ([SECRET], dict, "invalid", 401),
        ([SECRET], partial(dict, {"webhook-signature": "v1,\xe9"}), "invalid", 401),
    ],
)
def test_signatures_are_judged_only_with_a_secret(
    receiver: Receiver,
    client: Client,
    secrets: list[str],
    sign: Callable[[], dict[str, str]],
    verdict: str,
    status: int,
) -> None:
    """Valid, invalid (answered 401) or, without a secret, unknown."""
    receiver.secrets = secrets

    answered, _ = client.ask("POST", "/", BODY, sign())

    assert answered == status
    assert [request["signature"] for request in client.requests()] == [verdict]


def test_behaviour_changes_at_run_time(client: Client) -> None:
    """PUT /behaviour takes effect with the next request and keeps what it does not name."""
    assert client.ask("GET", "/behaviour") == (200, {"status": 200, "delay": 0, "fail_rate": 0})

    changed = client.ask("PUT", "/behaviour", b'{"status": 503}')
    assert changed == (200, {"status": 503, "delay": 0, "fail_rate": 0})
    assert client.ask("POST", "/", BODY)[0] == 503

    client.ask("PUT", "/behaviour", b'{"fail_rate": 1}')
    assert client.ask("POST", "/", BODY)[0] == 500
    assert client.ask("GET", "/behaviour")[1] == {"status": 503, "delay": 0, "fail_rate": 1}


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        (b'{"status": 199}', 422, "status"),
        (b'{"status": "200"}', 422, "status"),
        (b'{"status": true}', 422, "status"),
        (b'{"delay": -1}', 422, "delay"),
        (b'{"delay": NaN}', 422, "delay"),
        (b'{"fail_rate": 1.5}', 422, "fail_rate"),
        (b'{"fail-rate": 1}', 422, "fail-rate"),
        (b"[]", 422, "object"),
        (b"{", 400, "JSON"),
        (b"\xff", 400, "JSON"),
        (b"[" * 100_000, 400, "JSON"),
    ],
)
def test_wrong_behaviour_changes_nothing(
    client: Client, body: bytes, status: int, named: str
) -> None:
    """The answer names what is wrong."""
    answered, value = client.ask("PUT", "/behaviour", body)

    assert answered == status
    assert named in value["error"]
    assert client.ask("GET", "/behaviour")[1] == {"status": 200, "delay": 0, "fail_rate": 0}


def test_an_answer_without_a_body_keeps_the_connection_in_step(client: Client) -> None:
    """204 and 304 have no body, HEAD neither; the next answer on the connection is its own."""
    for status in (204, 304):
        client.ask("PUT", "/behaviour", json.dumps({"status": status}).encode())
        assert client.ask("POST", "/", BODY) == (status, None)
    client.ask("PUT", "/behaviour", b'{"status": 200}')
    assert client.ask("HEAD", "/") == (200, None)

    assert len(client.requests()) == 3


def test_large_and_chunked_bodies_are_refused(client: Client) -> None:
    """More than 8 MiB is 413 and no length is 411, without reading them."""
    assert client.ask("POST", "/", b"", {"Content-Length": str(8 * 1024 * 1024 + 1)})[0] == 413
    assert client.ask("POST", "/", b"", {"Content-Length": "1" * 5000})[0] == 413
    assert client.ask("POST", "/", b"", {"Content-Length": "+1"})[0] == 400
    assert client.ask("POST", "/", None, {"Transfer-Encoding": "chunked"})[0] == 411

    assert client.requests() == []


def test_a_sender_that_hangs_up_is_no_request(
    receiver: Receiver, client: Client, capfd: pytest.CaptureFixture[str]
) -> None:
    """Half a body is forgotten, quietly."""
    with socket.create_connection(("127.0.0.1", receiver.server_port)) as sender:
        sender.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
        sender.shutdown(socket.SHUT_WR)
        assert sender.recv(1) == b""

    assert client.requests() == []
    assert capfd.readouterr().err == ""


def test_each_request_is_one_line(client: Client, lines: list[str]) -> None:
    """Type, id, verdict, answer and a short body; nothing in them can forge a second line."""
    client.ask("POST", "/in", BODY, signed(SECRET))
    client.ask("POST", "/in", b"a\r\n\x1b[31mred" + b"x" * 500)

    first, second = lines
    for part in ("POST /in", "invoice.paid", "evt_1", "signature unknown", "-> 200", BODY.decode()):
        assert part in first
    assert second.isprintable()
    assert second.endswith("…")
    assert len(second) < 250


def test_a_signature_that_nobody_judges_is_shown(
    receiver: Receiver, client: Client, lines: list[str]
) -> None:
    """Without a secret the header's value stands in the line; with one, the verdict does."""
    headers = signed(SECRET)
    client.ask("POST", "/in", BODY, headers)
    client.ask("POST", "/in", BODY)
    receiver.secrets = [SECRET]
    client.ask("POST", "/in", BODY, headers)

    assert f"signature unknown ({headers['webhook-signature']}) ->" in lines[0]
    assert "signature unknown (none) ->" in lines[1]
    assert "signature valid ->" in lines[2]


def test_repeated_headers_are_joined(client: Client) -> None:
    """A header that came twice is shown with both values (RFC 9110, 5.3)."""
    client.connection.putrequest("POST", "/")
    client.connection.putheader("X-Two", "1")
    client.connection.putheader("X-Two", "2")
    client.connection.putheader("Content-Length", "0")
    client.connection.endheaders()
    client.connection.getresponse().read()

    assert client.requests()[0]["headers"]["X-Two"] == "1, 2"


def test_the_delay_comes_before_the_answer(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer waits as long as the behaviour says."""
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    client.ask("PUT", "/behaviour", b'{"delay": 2.5}')

    client.ask("POST", "/", BODY)

    assert waits == [2.5]
