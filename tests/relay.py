"""A relay in front of a database that can keep the answer to one COMMIT to itself.

with Relay(database_url, "settler") as relay:
    ...  # connect to relay.url
    relay.lost.wait(10)  # the settler's COMMIT is done, and nobody told it
    relay.cut()  # its connection breaks
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

from psycopg.conninfo import conninfo_to_dict

CHUNK = 65_536
COMMIT = b"COMMIT\x00"


class Relay:
    """Passes every byte on, except what answers the first COMMIT of the connections whose
    application_name ends in ``loop``; that one hangs until ``cut``.
    """

    def __init__(self, url: str, loop: str) -> None:
        self._server = {key: str(value) for key, value in conninfo_to_dict(url).items()}
        self._name = f"webhooks {loop}\x00".encode()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._cut = threading.Event()
        self.lost = threading.Event()
        port = self._listener.getsockname()[1]
        user, database = self._server["user"], self._server["dbname"]
        self.url = f"postgresql://{user}@127.0.0.1:{port}/{database}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cut()
        self._listener.close()

    def cut(self) -> None:
        """End the connection that waits for its answer."""
        self._cut.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = self._connect()
                losing = threading.Event()
                for work in (self._pass_questions, self._pass_answers):
                    threading.Thread(
                        target=work, args=(client, server, losing), daemon=True
                    ).start()

    def _connect(self) -> socket.socket:
        host, port = self._server.get("host", "127.0.0.1"), self._server.get("port", "5432")
        if not host.startswith("/"):
            return socket.create_connection((host, int(port)))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{host}/.s.PGSQL.{port}")
        return server

    def _pass_questions(
        self, client: socket.socket, server: socket.socket, losing: threading.Event
    ) -> None:
        chosen = False
        with contextlib.suppress(OSError):
            while data := client.recv(CHUNK):
                chosen = chosen or self._name in data
                if chosen and COMMIT in data and not self.lost.is_set():
                    losing.set()
                server.sendall(data)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def _pass_answers(
        self, client: socket.socket, server: socket.socket, losing: threading.Event
    ) -> None:
        with client, server, contextlib.suppress(OSError):
            while data := server.recv(CHUNK):
                if losing.is_set():
                    self.lost.set()
                    self._cut.wait()
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(data)
