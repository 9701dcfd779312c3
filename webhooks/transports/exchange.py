"""One request and its response on one libcurl easy handle, which then takes the next."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pycurl

from webhooks.addresses import NOT_ALLOWED, Url
from webhooks.attempt import ErrorClass, Timings
from webhooks.transports.base import (
    IDLE_CONNECTION_S,
    MOST_BODY_BYTES,
    OLDEST_CONNECTION_S,
    ONLY_THE_FIRST,
    Request,
    Response,
)
from webhooks.transports.curl_faults import fault_of
from webhooks.transports.curl_proxy import proxy_fault, through
from webhooks.transports.head import CLOSED_BEFORE, CLOSED_INSIDE, REFUSED, Head
from webhooks.transports.headers import to_lines
from webhooks.transports.proxy import Proxy, authority
from webhooks.transports.sockets import Lent

PROCEED, ABORT = 0, 1  # CURL_PREREQFUNC_OK and CURL_PREREQFUNC_ABORT


class Exchange:
    """An easy handle with its options and callbacks, and what they saw of one response."""

    __slots__ = (
        "_addresses", "_allows", "_begun", "_body", "_body_bytes", "_ca_pem", "_connect_ms",
        "_dialled", "_dns_s", "_fresh", "_head", "_host", "_method", "_no_socket", "_opened",
        "_peer", "_posts", "_proxy", "_refused", "_started", "_text", "_truncated", "easy",
        "request",
    )  # fmt: skip

    def __init__(
        self,
        allows: Callable[[str], bool],
        opened: Callable[[], None],
        ca_file: str,
        proxy: Proxy | None = None,
    ) -> None:
        self._allows = allows
        self._proxy = proxy
        self._opened = opened
        self._text = self._host = ""
        self._addresses: tuple[str, ...] = ()
        self._ca_pem: str | None = None
        self._connect_ms = 0
        self._method = "POST"
        self._fresh = False
        self._peer: str | None = None
        self._head = Head()
        self._no_socket = ""
        self._body: list[bytes] = []
        self.easy = pycurl.Curl()
        self.easy.exchange = self
        self._set_up(ca_file)

    def prepare(
        self, request: Request, url: Url, addresses: tuple[str, ...], started: float, now: float
    ) -> None:
        """Take a request on; ``addresses`` are what its host's name stands for.

        ``started`` and ``now`` are readings of time.monotonic(). Raises what pycurl
        raises, or ValueError, when the request cannot be sent.
        """
        self.request, self._started, self._dns_s = request, started, now - started
        self._posts = 0
        self._refused = False
        self._peer = None
        self._forget_response()
        easy = self.easy
        easy.setopt(pycurl.HTTPHEADER, to_lines(request.headers))
        easy.setopt(pycurl.POSTFIELDS, request.body)
        if request.method != self._method:
            easy.setopt(pycurl.CUSTOMREQUEST, request.method)
            self._method = request.method
        connect_ms = max(1, int(request.connect_timeout_s * 1000))
        if connect_ms != self._connect_ms:
            easy.setopt(pycurl.CONNECTTIMEOUT_MS, connect_ms)
            self._connect_ms = connect_ms
        if url.text != self._text or addresses != self._addresses:
            self._aim(url, addresses)
        if request.ca_pem != self._ca_pem:
            self._trust(request.ca_pem)
        self._start_clock(now)

    def prepare_again(self, now: float) -> None:
        """Take the same request on once more, on a new connection."""
        self._forget_response()
        self._fresh = True
        self.easy.setopt(pycurl.FRESH_CONNECT, 1)
        self._start_clock(now)

    def may_repeat(self, code: int) -> bool:
        """Whether a kept-alive connection died under the request before any answer.

        libcurl would repeat the POST by itself up to five times, each time on the next
        kept-alive connection (seen with 8.23: six copies reached a receiver that closes
        on each). We stop it before the second copy and repeat once, on a new connection.
        An answer has begun for libcurl when its status line is complete, not with its
        first byte; after that nothing is repeated. Nor is it on a new connection.
        """
        return code == pycurl.E_ABORTED_BY_CALLBACK and self._posts == 1 and not self._refused

    def response(self, code: int, text: str, now: float) -> Response:
        """The response, after libcurl ended with ``code`` (0: without an error)."""
        error, detail = self._verdict(code, text)
        return Response(
            request=self.request,
            error=error,
            detail=detail,
            started=self._started,
            finished=now,
            status_code=self._head.status or None,
            headers=self._head.headers,
            body=b"".join(self._body)[:MOST_BODY_BYTES],
            truncated=self._truncated,
            peer=self._peer,
            timings=self._timings(now),
        )

    def is_clean(self, code: int) -> bool:
        """Whether the handle may take another request: the response came in whole.

        libcurl keeps more of one that broke off than it should: after a head that ends
        inside a folded line, 8.23 misreads the next response on the same handle.
        """
        return code == 0 and self._head.ended

    def discard(self) -> None:
        """Let go of the handle too."""
        self.easy.close()
        self.easy.exchange = None

    def release(self) -> None:
        """Let go of the request, keep the handle for the next one."""
        if self._fresh:
            self._fresh = False
            self.easy.setopt(pycurl.FRESH_CONNECT, 0)
        del self.request
        self._head.reset()
        self._body = []

    def _set_up(self, ca_file: str) -> None:
        options: dict[int, Any] = {
            pycurl.NOSIGNAL: 1,
            pycurl.PROTOCOLS: pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS,
            pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_1_1,
            pycurl.FOLLOWLOCATION: 0,
            pycurl.PATH_AS_IS: 1,
            pycurl.PROXY: "",
            pycurl.NOPROXY: "*",
            pycurl.NETRC: pycurl.NETRC_IGNORED,
            pycurl.USERAGENT: "",
            pycurl.SSL_VERIFYPEER: 1,
            pycurl.SSL_VERIFYHOST: 2,
            pycurl.SSLVERSION: pycurl.SSLVERSION_TLSv1_2,
            # A file, not bytes: libcurl keeps only a parsed file for the next connection.
            pycurl.CAINFO: ca_file,
            pycurl.MAXAGE_CONN: IDLE_CONNECTION_S,
            pycurl.MAXLIFETIME_CONN: OLDEST_CONNECTION_S,
            pycurl.OPENSOCKETFUNCTION: self._on_open_socket,
            pycurl.PREREQFUNCTION: self._on_send,
            pycurl.HEADERFUNCTION: self._head.feed,
            pycurl.WRITEFUNCTION: self._on_body,
        }
        if self._proxy is not None:
            options |= through(self._proxy)
        for option, value in options.items():
            self.easy.setopt(option, value)

    def _aim(self, url: Url, addresses: tuple[str, ...]) -> None:
        self._text = ""
        self.easy.setopt(pycurl.URL, url.text)
        if self._proxy is not None:
            target = authority(url.host, addresses, url.port)
            self.easy.setopt(pycurl.CONNECT_TO, [f"{url.host}:{url.port}:{target}"])
        else:
            # The plus lets the pinned answer age out of libcurl's cache like any other.
            pins = [f"+{url.host}:{url.port}:{','.join(map(_bracket, addresses))}"]
            self.easy.setopt(pycurl.RESOLVE, [] if url.literal else pins)
        self._text, self._addresses, self._host = url.text, addresses, url.host

    def _trust(self, ca_pem: str | None) -> None:
        """Only these certificates, or the usual authorities.

        Both at once would be parsed for each connection, and kept as long as it (6 ms and
        1.3 MB with libcurl 8.23). Requests share a connection only if they trust the same.
        """
        if ca_pem is None:
            self.easy.unsetopt(pycurl.CAINFO_BLOB)
        else:
            self.easy.setopt(pycurl.CAINFO_BLOB, ca_pem.encode() or b"\n")
        self._ca_pem = ca_pem

    def _start_clock(self, now: float) -> None:
        self._begun = now
        left = self._started + self.request.timeout_s - now
        self.easy.setopt(pycurl.TIMEOUT_MS, max(1, int(left * 1000)))

    def _forget_response(self) -> None:
        self._head.reset()
        self._body, self._body_bytes = [], 0
        self._no_socket = ""
        self._dialled = self._truncated = False

    # Callbacks: libcurl calls them while it works; an exception in one would be lost.

    def _on_open_socket(self, _purpose: int, address: Any) -> Any:
        """The last gate: what is refused here is never dialled. The proxy is the operator's."""
        if self._proxy is None and not self._allows(address.addr[0]):
            self._refused = True
        if self._refused:
            return pycurl.SOCKET_BAD
        self._dialled = True
        self._opened()
        try:
            return Lent(socket.socket(address.family, address.socktype, address.protocol))
        except OSError as error:
            self._no_socket = f"no socket could be opened: {error.strerror}"
            return pycurl.SOCKET_BAD

    def _on_send(self, peer: str, _local: str, _peer_port: int, _local_port: int) -> int:
        """Before the request goes out on a connection, kept alive or new."""
        if self._posts and not self._dialled:
            return ABORT
        self._posts += 1
        self._dialled = False
        self._peer = peer if self._proxy is None else (*self._addresses, self._host.strip("[]"))[0]
        return PROCEED

    def _on_body(self, chunk: bytes) -> int | None:
        self._body.append(chunk)
        self._body_bytes += len(chunk)
        if self._body_bytes > MOST_BODY_BYTES:
            self._truncated = True
            return REFUSED
        return None

    def _verdict(self, code: int, text: str) -> tuple[ErrorClass | None, str]:
        if self._refused:
            return ErrorClass.BLOCKED_ADDRESS, NOT_ALLOWED
        if self._proxy is not None and not self._posts and (fault := proxy_fault(self.easy, text)):
            return ErrorClass.PROXY, fault
        if self._head.ended:
            return None, self._note(code, text)
        if self._head.fault:
            return ErrorClass.PROTOCOL, self._head.fault
        if self._no_socket and not self._posts:
            return ErrorClass.CONNECT, self._no_socket
        if code == 0 or (code == pycurl.E_GOT_NOTHING and self._head.lines):
            return ErrorClass.PROTOCOL, CLOSED_INSIDE
        if code == pycurl.E_GOT_NOTHING:
            return ErrorClass.CONNECT, CLOSED_BEFORE
        return fault_of(code, text, self._host, own_ca=self._ca_pem is not None)

    def _note(self, code: int, text: str) -> str:
        if code == 0:
            return ""
        if self._truncated:
            return ONLY_THE_FIRST
        return f"the response body is incomplete: {self._head.fault or text}"

    def _timings(self, now: float) -> Timings:
        """Milliseconds since the attempt began; libcurl counts microseconds since its own."""
        info, offset = self.easy.getinfo, (self._begun - self._started) * 1000
        dns_ms = self._dns_s * 1000 or None
        total_ms = (now - self._started) * 1000
        first_byte = info(pycurl.STARTTRANSFER_TIME_T) if self._head.status else 0
        first_byte_ms = offset + first_byte / 1000 if first_byte else None
        if not info(pycurl.NUM_CONNECTS):
            return Timings(dns_ms=dns_ms, first_byte_ms=first_byte_ms, total_ms=total_ms)
        connect, tls = info(pycurl.CONNECT_TIME_T), info(pycurl.APPCONNECT_TIME_T)
        return Timings(
            dns_ms=dns_ms,
            connect_ms=offset + connect / 1000 if connect else None,
            tls_ms=offset + tls / 1000 if tls else None,
            first_byte_ms=first_byte_ms,
            total_ms=total_ms,
        )


def _bracket(address: str) -> str:
    return f"[{address}]" if ":" in address else address
