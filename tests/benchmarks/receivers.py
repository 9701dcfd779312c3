"""A receiver that is not the bottleneck: nginx where installed, else a minimal one."""

from __future__ import annotations

import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.stack import eventually, free_port, listens

NGINX = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    keepalive_requests 100000000;
    keepalive_timeout 300s;
    client_body_temp_path {folder}/body;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{ return 200 "ok"; }}
    }}
}}
"""
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n\r\nok"


@contextmanager
def receiver() -> Iterator[tuple[str, str]]:
    """Answers 200 to anything: its URL, and its name for the report."""
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="webhooks-bench-") as folder:
        if nginx:
            config = Path(folder) / "nginx.conf"
            config.write_text(NGINX.format(folder=folder, port=port))
            command = [nginx, "-c", str(config), "-p", folder]
        else:
            command = [sys.executable, "-m", "tests.benchmarks.receivers", str(port)]
        process = subprocess.Popen(command)
        try:
            eventually(lambda: listens(port), 10, "the receiver listens")
            yield f"http://127.0.0.1:{port}/hook", "nginx" if nginx else "minimal"
        finally:
            process.terminate()
            process.wait()


def serve(port: int) -> None:
    """One thread, no parsing beyond where a request ends."""
    selector = selectors.DefaultSelector()
    listener = socket.create_server(("127.0.0.1", port), backlog=4096)
    listener.setblocking(False)
    selector.register(listener, selectors.EVENT_READ, None)
    buffers: dict[socket.socket, bytearray] = {}
    while True:
        for key, _ in selector.select():
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            if sock is listener:
                accepted, _ = listener.accept()
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                buffers[accepted] = bytearray()
                selector.register(accepted, selectors.EVENT_READ, None)
                continue
            data = sock.recv(1 << 16)
            if not data:
                selector.unregister(sock)
                del buffers[sock]
                sock.close()
                continue
            buffers[sock] += data
            sock.sendall(ANSWER * _requests(buffers[sock]))


def _requests(buffer: bytearray) -> int:
    """Cut whole requests off the front of a buffer; answers how many."""
    count = 0
    while (end := buffer.find(b"\r\n\r\n")) >= 0:
        head = bytes(buffer[:end]).lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n")[0]) if at >= 0 else 0
        if len(buffer) < end + 4 + length:
            break
        del buffer[: end + 4 + length]
        count += 1
    return count


if __name__ == "__main__":
    serve(int(sys.argv[1]))
