"""Which addresses `webhooks up` listens on."""

from __future__ import annotations

import socket
from ipaddress import ip_address

LOCAL = "127.0.0.1"
TRIES = 100
HIGHEST = 65_535


class PortError(RuntimeError):
    """An address cannot be listened on; the text says why and what to do."""


def check(host: str, port: int) -> None:
    """Raise PortError unless ``host:port`` can be listened on now."""
    family, address = _resolve(host)[0]
    try:
        _bind(family, address, port)
    except OSError as error:
        raise PortError(
            f"--port {port}: {host} port {port} cannot be listened on "
            f"({error.strerror}); stop what uses it or give another --port"
        ) from error


def next_free(port: int) -> int:
    """The first port from ``port`` on that this machine itself can listen on."""
    for candidate in range(port, min(port + TRIES, HIGHEST + 1)):
        try:
            return _bind(socket.AF_INET, LOCAL, candidate)
        except OSError:
            continue
    return _bind(socket.AF_INET, LOCAL, 0)


def is_loopback(host: str) -> bool:
    """Whether the host is reached from this machine alone; PortError if it is unknown."""
    return all(ip_address(address).is_loopback for _, address in _resolve(host))


def bracketed(host: str) -> str:
    """The host as it stands before a colon and a port."""
    return f"[{host}]" if ":" in host else host


def to_visit(host: str) -> str:
    """The host that a browser on this machine opens: a wildcard is no address to visit."""
    return {"0.0.0.0": LOCAL, "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound


def _resolve(host: str) -> list[tuple[socket.AddressFamily, str]]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise PortError(
            f"--host {host!r} is no address of this machine; give 127.0.0.1, or 0.0.0.0 for all"
        ) from error
    return [(family, str(address[0]).partition("%")[0]) for family, _, _, _, address in found]


def _bind(family: socket.AddressFamily, address: str, port: int) -> int:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As gunicorn does; connections that have ended do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((address, port))
        probe.listen(1)
        bound: int = probe.getsockname()[1]
    return bound
