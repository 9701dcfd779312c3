"""A local receiver for trying things out: shows, verifies and answers deliveries.

``GET /requests`` tells what came in, ``DELETE /requests`` forgets it, ``GET`` and
``PUT /behaviour`` show and change how it answers. Everything else is a delivery.
"""

from __future__ import annotations

import json
import random
import socketserver
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from typing import Any, cast

from webhooks.logs import CONTROL
from webhooks.signing import SignatureError, verify

MOST_REQUESTS = 10_000
LARGEST_BODY = 8 * 1024 * 1024
MOST_DIGITS = 20
IDLE_TIMEOUT_S = 120
LONGEST_DELAY_S = 300.0
SHOWN_CHARACTERS = 100
WITHOUT_BODY = (204, 205, 304)

CONTROLS = ("/requests", "/behaviour")


class BehaviourError(ValueError):
    """A field of a behaviour is wrong; the text names it, its value and the remedy."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How deliveries are answered: ``status`` after ``delay`` seconds, or 500 by chance."""

    status: int = 200
    delay: float = 0.0
    fail_rate: float = 0.0

    def changed(self, fields: Any) -> Behaviour:
        """The same with some fields changed; BehaviourError names one that is wrong."""
        if not isinstance(fields, dict):
            raise BehaviourError("give a JSON object with status, delay or fail_rate")
        unknown = fields.keys() - asdict(self).keys()
        if unknown:
            raise BehaviourError(f"{min(unknown)[:80]}: give status, delay or fail_rate")
        behaviour = replace(self, **fields)
        _check("status", behaviour.status, 200, 599, (int,))
        _check("delay", behaviour.delay, 0, LONGEST_DELAY_S, (int, float))
        _check("fail_rate", behaviour.fail_rate, 0, 1, (int, float))
        return behaviour


def _check(name: str, value: Any, low: float, high: float, kinds: tuple[type, ...]) -> None:
    if type(value) not in kinds or not low <= value <= high:  # isinstance would take a bool
        kind = "a whole number" if kinds == (int,) else "a number"
        raise BehaviourError(f"{name}: {str(value)[:80]} is not {kind} from {low:g} to {high:g}")


@dataclass(frozen=True, slots=True)
class Received:
    """One delivery as it came in. ``signature`` is valid, invalid or unknown (no secret)."""

    method: str
    path: str
    headers: dict[str, str]
    body: str
    signature: str
    received_at: str


class Receiver(ThreadingHTTPServer):
    """The server. ``report`` gets one line for each delivery.

    Raises OSError when the address cannot be bound.
    """

    daemon_threads = True
    request_queue_size = 1024

    def __init__(
        self,
        host: str,
        port: int,
        behaviour: Behaviour,
        secrets: Sequence[str] = (),
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.address_family = AF_INET6 if ":" in host else AF_INET
        self.behaviour = behaviour
        self.secrets = list(secrets)
        self.report = report
        self._requests: deque[Received] = deque(maxlen=MOST_REQUESTS)
        self._lock = threading.Lock()
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        # Not HTTPServer's: that looks the host's full name up, which may take seconds.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    @property
    def requests(self) -> list[Received]:
        """What came in, oldest first; the newest ten thousand."""
        with self._lock:
            return list(self._requests)

    def forget(self) -> None:
        """Forget what came in."""
        with self._lock:
            self._requests.clear()

    def record(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Received:
        """Keep a delivery, with the verdict on its signature."""
        received = Received(
            method,
            path,
            _joined(headers),
            body.decode("utf-8", "replace"),
            self._verdict(headers, body),
            datetime.now(UTC).isoformat(),
        )
        with self._lock:
            self._requests.append(received)
        return received

    def status_for(self, received: Received) -> int:
        """What to answer: 401 to a wrong signature, else as the behaviour says."""
        if received.signature == "invalid":
            return 401
        failing = random.random() < self.behaviour.fail_rate  # noqa: S311 - chance, not a secret
        return 500 if failing else self.behaviour.status

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Senders that hang up are everyday here; anything else is shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def _verdict(self, headers: Mapping[str, str], body: bytes) -> str:
        if not self.secrets:
            return "unknown"
        try:
            verify(self.secrets, headers, body, int(time.time()))
        except SignatureError:
            return "invalid"
        return "valid"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "webhooks-receiver"
    sys_version = ""
    timeout = IDLE_TIMEOUT_S
    # Headers and body are two writes; the second must not wait for the first's ACK.
    disable_nagle_algorithm = True

    def _handle(self) -> None:
        body = self._read_body()
        if body is None:
            return
        path = self.path.partition("?")[0]
        if path in CONTROLS and self.command in ("GET", "PUT", "DELETE"):
            self._control(path, body)
        else:
            self._receive(body)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _handle

    def _read_body(self) -> bytes | None:
        refusal = self._refusal()
        if refusal:
            self.close_connection = True
            self._answer(refusal[0], {"error": refusal[1]})
            return None
        length = int(self.headers.get("content-length", "0"))
        body = self.rfile.read(length)
        if len(body) < length:  # the sender gave up
            self.close_connection = True
            return None
        return body

    def _refusal(self) -> tuple[int, str] | None:
        length = self.headers.get("content-length", "0")
        if "transfer-encoding" in self.headers:
            return 411, "send the body with a Content-Length"
        if not (length.isascii() and length.isdigit()):
            return 400, "Content-Length is not a whole number"
        if len(length) > MOST_DIGITS or int(length) > LARGEST_BODY:
            return 413, f"the body has more than {LARGEST_BODY} bytes"
        return None

    def _control(self, path: str, body: bytes) -> None:
        match self.command, path:
            case "GET", "/requests":
                self._answer(200, {"data": [asdict(received) for received in self.ours.requests]})
            case "DELETE", "/requests":
                self.ours.forget()
                self._answer(204)
            case "GET", "/behaviour":
                self._answer(200, asdict(self.ours.behaviour))
            case "PUT", "/behaviour":
                self._change(body)
            case _:
                self._answer(405, {"error": f"{self.command} is not for {path}"})

    def _change(self, body: bytes) -> None:
        try:
            self.ours.behaviour = self.ours.behaviour.changed(json.loads(body))
        except BehaviourError as error:
            self._answer(422, {"error": str(error)})
        except (ValueError, RecursionError):
            self._answer(400, {"error": "the body is not JSON"})
        else:
            self._answer(200, asdict(self.ours.behaviour))

    def _receive(self, body: bytes) -> None:
        headers = cast(Mapping[str, str], self.headers)
        received = self.ours.record(self.command, self.path, headers, body)
        time.sleep(self.ours.behaviour.delay)
        status = self.ours.status_for(received)
        self.ours.report(_line(received, status))
        self._answer(status, {"received": True})

    @property
    def ours(self) -> Receiver:
        return cast(Receiver, self.server)

    def _answer(self, status: int, value: Any = None) -> None:
        body = b"" if value is None or status in WITHOUT_BODY else json.dumps(value).encode()
        self.send_response(status)
        if status not in WITHOUT_BODY:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: each delivery is reported with its verdict instead."""


def _joined(headers: Mapping[str, str]) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in headers.items():
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined


def _line(received: Received, status: int) -> str:
    headers = {name.lower(): value for name, value in received.headers.items()}
    at = datetime.fromisoformat(received.received_at).strftime("%H:%M:%S.%f")[:-3]
    verdict = received.signature
    if verdict == "unknown":
        verdict += f" ({_cut(headers.get('webhook-signature', 'none'))})"
    parts = (
        at, received.method, received.path, headers.get("webhook-event-type", "-"),
        headers.get("webhook-id", "-"), f"signature {verdict}", f"-> {status}", _cut(received.body),
    )  # fmt: skip
    return CONTROL.sub(lambda found: repr(found[0])[1:-1], " ".join(parts))


def _cut(text: str) -> str:
    return text[:SHOWN_CHARACTERS] + "…" * (len(text) > SHOWN_CHARACTERS)
