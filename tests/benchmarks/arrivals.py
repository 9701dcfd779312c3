"""A receiver that notes when each request came, by the kernel's clock.

The time is taken by the network stack as the bytes come in (SO_TIMESTAMPNS), so a
receiver that is late to read adds nothing. What a path's first word says is done:
/ok answers 200, /hang never answers. GET /log gives the arrivals since the last.
"""

from __future__ import annotations

import selectors
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import requests

from tests.stack import eventually, free_port, listens

SO_TIMESTAMPNS = 35  # Linux: as in asm-generic/socket.h; Python names it from 3.14 on
CMSG = socket.CMSG_SPACE(16)
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n\r\nok"
ID = b"webhook-id: "
EOL = b"\r"


@dataclass
class Receiver:
    """A running receiver, and what it has told of so far."""

    url: str
    arrivals: dict[str, int] = field(default_factory=dict)
    requests: int = 0

    def collect(self) -> dict[str, int]:
        """When each event first came, in ns since 1970."""
        for line in requests.get(f"{self.url}/log", timeout=30).text.splitlines():
            event, _, stamp = line.partition(" ")
            self.arrivals.setdefault(event, int(stamp))
            self.requests += 1
        return self.arrivals

    def count(self) -> int:
        """How many requests have come so far, repeats included."""
        self.collect()
        return self.requests

    def latencies_ms(self, sent: dict[str, int], within_s: float = 60) -> list[float]:
        """From emit to first byte of each event, once all have come; AssertionError if not."""
        eventually(
            lambda: sent.keys() <= self.collect().keys(), within_s, "every event has arrived"
        )
        return [(self.arrivals[event] - at) / 1e6 for event, at in sent.items()]


@contextmanager
def arrivals() -> Iterator[Receiver]:
    """Start one in a process of its own."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "tests.benchmarks.arrivals", str(port)])
    try:
        eventually(lambda: listens(port), 10, "the receiver listens")
        yield Receiver(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait()


class Peer:
    """One connection: what is not a whole request yet, and when its first byte came."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.buffer = b""
        self.stamp = 0

    def read(self) -> bytes:
        """The next whole request, or b"" (nothing, or not yet)."""
        head, mark, rest = self.buffer.partition(b"\r\n\r\n")
        if not mark or len(rest) < (length := _length(head)):
            return b""
        self.buffer = rest[length:]
        return head

    def receive(self) -> bool:
        """Take what has come; False: the other side closed."""
        data, ancillary, _, _ = self.sock.recvmsg(1 << 16, CMSG)
        if not self.buffer and ancillary:
            seconds, ns = struct.unpack("qq", ancillary[0][2][:16])
            self.stamp = seconds * 1_000_000_000 + ns
        self.buffer += data
        return bool(data)


def serve(port: int) -> None:
    """One thread; answers as the path says and keeps the arrivals until asked."""
    selector = selectors.DefaultSelector()
    listener = socket.create_server(("127.0.0.1", port), backlog=4096)
    listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)  # inherited by what it accepts
    listener.setblocking(False)
    selector.register(listener, selectors.EVENT_READ, None)
    log: list[str] = []
    while True:
        for key, _ in selector.select():
            if key.data is None:
                _accept(selector, listener)
            elif not _serve(key.data, log):
                selector.unregister(key.data.sock)
                key.data.sock.close()


def _accept(selector: selectors.BaseSelector, listener: socket.socket) -> None:
    sock, _ = listener.accept()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    selector.register(sock, selectors.EVENT_READ, Peer(sock))


def _serve(peer: Peer, log: list[str]) -> bool:
    try:
        going = peer.receive()
        while head := peer.read():
            _answer(peer, head, log)
    except ConnectionError:
        return False
    return going


def _answer(peer: Peer, head: bytes, log: list[str]) -> None:
    if head.startswith(b"GET /log"):
        text = "\n".join(log).encode()
        log.clear()
        peer.sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text))
        return
    _, found, rest = head.partition(ID)
    if found:
        log.append(f"{rest.split(EOL, 1)[0].decode()} {peer.stamp}")
    if not head.startswith(b"POST /hang"):
        peer.sock.sendall(ANSWER)


def _length(head: bytes) -> int:
    lowered = head.lower()
    at = lowered.find(b"content-length:")
    return int(lowered[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0


if __name__ == "__main__":
    serve(int(sys.argv[1]))
