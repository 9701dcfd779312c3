"""An egress proxy on a socket: opens tunnels, or refuses them as it is told."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

CHUNK = 65_536


class ConnectProxy:
    """Records what it is asked for; ``answer(head)`` is a refusal to send, or None: it connects.

    Every tunnel leads to ``target`` (None: to where it is asked for).
    """

    def __init__(
        self,
        answer: Callable[[str], bytes | None] = lambda head: None,
        target: tuple[str, int] | None = None,
    ) -> None:
        self._answer = answer
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.heads: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def asked(self) -> list[str]:
        """The request lines that it got."""
        return [head.split("\r\n", 1)[0] for head in self.heads]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                byte = client.recv(1)
                if not byte:
                    return
                head += byte
            text = head.decode("latin-1")
            self.heads.append(text)
            refusal = self._answer(text)
            if refusal is not None:
                client.sendall(refusal)
                return
            host, _, port = text.split(" ")[1].rpartition(":")
            with socket.create_connection(self._target or (host.strip("[]"), int(port))) as server:
                client.sendall(b"HTTP/1.1 200 Connection established\r\nVia: 1.1 proxy\r\n\r\n")
                back = threading.Thread(target=pass_on, args=[server, client], daemon=True)
                back.start()
                pass_on(client, server)
                back.join(5)


def pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(CHUNK):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
