"""A receiver made of raw sockets: it records every byte of a request and answers by script.

    with RawServer(replies(reply(500), reply(200))) as server:
        ...  # server.url("/hook"), server.requests, server.connections

A script is a function that gets each connection (a ``Peer``) in a thread of its own.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

CHUNK = 65_536


@dataclass(frozen=True)
class Recorded:
    """One request as it came in; ``connection`` numbers the connections from 1."""

    connection: int
    head: bytes
    body: bytes

    @property
    def start_line(self) -> str:
        return self.head.split(b"\r\n", 1)[0].decode()

    @property
    def method(self) -> str:
        return self.start_line.split(" ")[0]

    @property
    def target(self) -> str:
        return self.start_line.split(" ")[1]

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Names in the case that came, in the order that came."""
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        return [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]

    def header(self, name: str) -> str | None:
        """The only header of that name; AssertionError when it is there twice."""
        found = [value for key, value in self.headers if key.lower() == name.lower()]
        assert len(found) <= 1, f"{name} came {len(found)} times"
        return found[0] if found else None


class Peer:
    """One accepted connection, from the script's side; ``stopped`` is the server's end."""

    def __init__(self, server: RawServer, sock: socket.socket, number: int) -> None:
        self._server = server
        self._sock = sock
        self._rest = b""
        self.number = number
        self.stopped = server.stopped

    def read(self) -> Recorded | None:
        """Read and record the next request; None when the client has closed."""
        while b"\r\n\r\n" not in self._rest:
            if not self._more():
                return None
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        length = int(Recorded(self.number, head, b"").header("content-length") or 0)
        while len(self._rest) < length:
            if not self._more():
                return None
        body, self._rest = self._rest[:length], self._rest[length:]
        return self._server.record(Recorded(self.number, head, body))

    def read_some(self) -> None:
        """Wait for bytes, whatever they are."""
        self._more()

    def send(self, data: bytes) -> None:
        self._sock.sendall(data)

    def drip(self, data: bytes, every_s: float) -> None:
        """Send one byte at a time until the client goes away or the server stops."""
        for byte in data:
            if self.stopped.wait(every_s):
                return
            self._sock.sendall(bytes([byte]))

    def flood(self, data: bytes, most_bytes: int = 50_000_000) -> None:
        """Send the same again and again until the client goes away."""
        for _ in range(most_bytes // len(data)):
            self._sock.sendall(data)

    def hold(self) -> None:
        """Say nothing until the client goes away or the server stops."""
        while self._more():
            pass

    def reset(self) -> None:
        """Close with a TCP reset."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def _more(self) -> bool:
        data = self._sock.recv(CHUNK)
        self._rest += data
        return bool(data)


Script = Callable[[Peer], None]


class RawServer:
    """Listens on a free port of ``host``; stops, with every connection, at the block's end."""

    def __init__(
        self, script: Script, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> None:
        self._script = script
        self._tls = tls
        self._host = host
        self._changed = threading.Condition()
        self._peers: list[Peer] = []
        self._threads: list[threading.Thread] = []
        self.stopped = threading.Event()
        self.requests: list[Recorded] = []
        self.connections = 0
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=1024)
        self.port: int = self._listener.getsockname()[1]

    def url(self, path: str = "/", host: str | None = None) -> str:
        name = host or (f"[{self._host}]" if ":" in self._host else self._host)
        return f"{'https' if self._tls else 'http'}://{name}:{self.port}{path}"

    def record(self, request: Recorded) -> Recorded:
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
        return request

    def wait_for_requests(self, count: int, timeout_s: float = 10.0) -> list[Recorded]:
        """The requests so far, once there are ``count``; AssertionError after ``timeout_s``."""
        with self._changed:
            enough = self._changed.wait_for(lambda: len(self.requests) >= count, timeout_s)
            assert enough, f"{len(self.requests)} of {count} requests came in {timeout_s} s"
            return list(self.requests)

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.stopped.set()
        # A connection of our own ends accept() on every system.
        with contextlib.suppress(OSError):
            socket.create_connection((self._host, self.port), 1).close()
        for peer in list(self._peers):
            peer.stop()
        deadline = time.monotonic() + 5
        for thread in list(self._threads):
            thread.join(max(0.0, deadline - time.monotonic()))
        self._listener.close()

    def _start(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, name="raw-server", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            sock, _ = self._listener.accept()
            if self.stopped.is_set():
                sock.close()
                return
            self.connections += 1
            self._start(functools.partial(self._serve, sock, self.connections))

    def _serve(self, sock: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError), sock:
            wrapped = self._tls.wrap_socket(sock, server_side=True) if self._tls else sock
            with wrapped:
                peer = Peer(self, wrapped, number)
                self._peers.append(peer)
                self._script(peer)


def reply(status: int = 200, body: bytes = b"", headers: Sequence[tuple[str, str]] = ()) -> bytes:
    """A well-formed response that keeps the connection."""
    lines = [f"HTTP/1.1 {status} Reply", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join((*lines, "", "")).encode("latin-1") + body


def replies(*answers: bytes) -> Script:
    """The n-th request, over all connections, gets the n-th answer; the last one from then on."""
    numbers = itertools.count()

    def script(peer: Peer) -> None:
        while peer.read() is not None:
            peer.send(answers[min(next(numbers), len(answers) - 1)])

    return script


def raw(data: bytes) -> Script:
    """Each connection gets these bytes for its first request, then it is closed."""

    def script(peer: Peer) -> None:
        peer.read()
        peer.send(data)

    return script


def silent(peer: Peer) -> None:
    """Read the request and never answer."""
    peer.read()
    peer.hold()
