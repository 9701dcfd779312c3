"""A tunnel through the egress proxy, opened on a socket that is connected to it."""

from __future__ import annotations

import re
import socket

from webhooks.transports.proxy import Proxy, answered, unreachable

MOST_HEAD_BYTES = 16_384
STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[ \r]")


class ProxyFault(Exception):
    """The proxy opened no tunnel. No OSError or HTTPError: urllib3 would try again after one."""


def open_tunnel(connected: socket.socket, proxy: Proxy, authority: str) -> None:
    """Ask for a tunnel and read the answer's head, byte by byte: what follows is the endpoint's.

    Raises ProxyFault, or OSError when the connection fails.
    """
    connected.sendall(proxy.connect(authority))
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = connected.recv(1)
        if not byte or len(head) >= MOST_HEAD_BYTES:
            raise ProxyFault(unreachable("it closed the connection, or does not speak HTTP"))
        head += byte
    status = STATUS.match(head)
    if status is None:
        raise ProxyFault(unreachable("it does not speak HTTP"))
    if not status[1].startswith(b"2"):
        raise ProxyFault(answered(int(status[1])))
