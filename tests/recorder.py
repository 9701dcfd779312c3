"""A receiver that records what arrives and answers as the test says; independent of the product."""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Received:
    """One request as it came in; ``at`` is seconds since 1970."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


def verify(secret: str, request: Received) -> bool:
    """Standard Webhooks v1 from its specification, sharing no code with the product."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = b".".join(
        [request.id.encode(), request.headers["webhook-timestamp"].encode(), request.body]
    )
    digest = hmac.new(key, signed, hashlib.sha256).digest()
    expected = "v1," + base64.b64encode(digest).decode()
    return expected in request.headers["webhook-signature"].split(" ")


@dataclass
class Recorder:
    """Answers 200, or what ``answer(nth, request)`` says, after ``delay_s`` seconds.

    ``port`` 0: any that is free. ``most_at_once``: requests that it had in hand together.
    """

    answer: Callable[[int, Received], int] = lambda nth, request: 200
    delay_s: float = 0.0
    port: int = 0
    host: str = "127.0.0.1"
    requests: list[Received] = field(default_factory=list)
    most_at_once: int = 0
    _at_once: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Recorder:
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # One segment an answer: Nagle and delayed ACK would add 40 ms to each.
            wbufsize = -1
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                request = Received(self.path, dict(self.headers), body, time.time())
                status = recorder._record(request)
                time.sleep(recorder.delay_s)
                recorder._done()
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *arguments: Any) -> None:
                """Quiet."""

        class Server(ThreadingHTTPServer):
            request_queue_size = 512
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A worker that was killed drops its connections: not this test's fault."""

        self._server = Server((self.host, self.port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _record(self, request: Received) -> int:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            self.requests.append(request)
            return self.answer(len(self.requests), request)

    def _done(self) -> None:
        with self._lock:
            self._at_once -= 1

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/hook"

    def counts(self) -> Counter[str]:
        """How often each webhook-id came."""
        with self._lock:
            return Counter(request.id for request in self.requests)
