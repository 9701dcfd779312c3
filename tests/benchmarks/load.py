"""A load generator that costs little: one request over and over on keep-alive connections."""

from __future__ import annotations

import selectors
import socket
import subprocess
import sys
import time


def load(port: int, request: bytes, connections: int, seconds: float) -> float:
    """Requests per second of a process of its own; fails unless every answer is a 2xx.

    Each connection sends its next request when the answer is whole.
    """
    arguments = [str(port), str(connections), str(seconds)]
    command = [sys.executable, "-m", "tests.benchmarks.load", *arguments]
    done = subprocess.run(command, input=request, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"the load generator failed: {done.stderr.decode()}")
    return float(done.stdout)


def post(path: str, key: str, body: bytes, media_type: str = "application/json") -> bytes:
    """The bytes of a POST."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: {media_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _run(port: int, request: bytes, connections: int, seconds: float) -> float:
    selector = selectors.DefaultSelector()
    for _ in range(connections):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(sock, selectors.EVENT_READ, bytearray())
        sock.sendall(request)
    done, warm_until, began = 0, time.monotonic() + seconds / 5, 0.0
    while True:
        for key, _ in selector.select():
            assert isinstance(key.fileobj, socket.socket)
            if _answered(key.fileobj, key.data):
                done += 1
                key.fileobj.sendall(request)
        now = time.monotonic()
        if not began and now >= warm_until:
            began, done = now, 0
        if began and now >= began + seconds:
            return done / (now - began)


def _answered(sock: socket.socket, buffer: bytearray) -> bool:
    """Read on; whether the answer is whole now."""
    data = sock.recv(1 << 18)
    assert data, "the server closed the connection"
    buffer += data
    head = buffer.find(b"\r\n\r\n")
    if head < 0:
        return False
    at = buffer.lower().find(b"content-length:", 0, head)
    length = int(buffer[at + 15 : buffer.find(b"\r\n", at)])
    if len(buffer) < head + 4 + length:
        return False
    assert buffer.startswith(b"HTTP/1.1 2"), bytes(buffer[:500])
    del buffer[:]
    return True


if __name__ == "__main__":
    port, connections, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    sys.stdout.write(f"{_run(port, sys.stdin.buffer.read(), connections, seconds)}\n")
