"""A receiver with moods that keeps a log of its own: what came, what it answered, when."""

from __future__ import annotations

import socket
import struct
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HANG_S = 6.0
SLOW_S = 1.0
WELL_S = 0.03
MOODS = ("well", "slow", "slow", "hang", "reset", "500", "429")


@dataclass(frozen=True)
class Entry:
    """One request: ``answer`` is the status that was written, 0 if none was."""

    path: str
    event: str
    number: int
    answer: int
    at: float


class Receivers:
    """Endpoints are paths of one server; each has a mood, which may change at any time."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.moods = dict.fromkeys(names, "well")
        self.log: list[Entry] = []
        self._lock = threading.Lock()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/{name}"

    def calm(self) -> None:
        self.moods = dict.fromkeys(self.moods, "well")

    def entries(self) -> list[Entry]:
        with self._lock:
            return list(self.log)

    def note(self, entry: Entry) -> None:
        with self._lock:
            self.log.append(entry)

    def __enter__(self) -> Receivers:
        receivers = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                answer = 0
                try:
                    answer = self._answer(receivers.moods[self.path[1:]])
                except OSError:
                    self.close_connection = True
                finally:
                    receivers.note(
                        Entry(
                            self.path[1:],
                            self.headers["webhook-id"],
                            int(self.headers["webhook-attempt"]),
                            answer,
                            time.time(),
                        )
                    )

            def _answer(self, mood: str) -> int:
                if mood in ("hang", "reset"):
                    time.sleep(HANG_S if mood == "hang" else 0)
                    self._reset()
                    return 0
                time.sleep(SLOW_S if mood == "slow" else WELL_S)
                status = int(mood) if mood.isdigit() else 200
                self.send_response(status)
                if status == 429:
                    self.send_header("Retry-After", "1")
                self.send_header("Content-Length", "0")
                self.end_headers()
                self.wfile.flush()
                return status

            def _reset(self) -> None:
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.close_connection = True

            def log_message(self, *arguments: Any) -> None:
                """Quiet."""

        class Server(ThreadingHTTPServer):
            request_queue_size = 512
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Workers are killed here: their connections break."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
