"""The egress proxy: whom an operator makes all deliveries go through. HTTP CONNECT alone.

It is given the address that our own policy has checked, never the name: whatever it would
resolve itself plays no part. What it refuses is not the endpoint's answer (W046).
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True, slots=True, repr=False)
class Proxy:
    """Where it listens, and what it wants to know us by."""

    host: str
    port: int
    username: str | None = None
    password: str = ""

    @classmethod
    def parse(cls, text: str) -> Proxy | None:
        """The proxy of ``WEBHOOKS_EGRESS_PROXY``, which has been checked; None: there is none."""
        if not text:
            return None
        url = urlsplit(text)
        username = None if url.username is None else unquote(url.username)
        return cls(url.hostname or "", url.port or 0, username, unquote(url.password or ""))

    @property
    def address(self) -> str:
        """Host and port as they stand in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def connect(self, authority: str) -> bytes:
        """The request that opens a tunnel to ``authority`` (RFC 9110 section 9.3.6)."""
        lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
        if self.username is not None:
            pair = f"{self.username}:{self.password}".encode()
            lines.append(f"Proxy-Authorization: Basic {base64.b64encode(pair).decode()}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def authority(host: str, addresses: tuple[str, ...], port: int) -> str:
    """Where the tunnel leads: the first address that was checked, or the literal itself."""
    target = addresses[0] if addresses else host
    return (
        f"[{target}]:{port}" if ":" in target and not target.startswith("[") else f"{target}:{port}"
    )


def answered(status: int) -> str:
    """What went wrong, for people: the proxy's own refusal."""
    return f"the egress proxy answered {status}, and opened no connection to the endpoint"


def unreachable(why: str) -> str:
    """The same, if it could not be reached or did not speak HTTP."""
    return f"the egress proxy could not be used: {why}"
