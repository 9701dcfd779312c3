"""http.client's response with bounded heads, trailers and interim responses."""

from __future__ import annotations

import contextlib
import http.client
import re
import time
from typing import Any

from webhooks.transports.head import CLOSED_BEFORE, CLOSED_INSIDE, REFUSED, Head
from webhooks.transports.threaded.attempt import current

LONGEST_LINE = 65_536
VERSION = b"HTTP/1."
MALFORMED = "a header line of the response is malformed"
# More digits than any size has, and than int() takes.
MOST_DIGITS = 19
# A carriage return that ends no line.
STRAY = re.compile(rb"\r(?!\n)")
CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r?\n")


class HeadFault(http.client.HTTPException):
    """The head of a response is refused; the text says why."""


class BoundedResponse(http.client.HTTPResponse):
    """Reads a head within limits, skipping a few interim responses (RFC 9110 section 15.2)."""

    _head: Head

    def begin(self) -> None:
        """Read the final head. HeadFault when it is refused, RemoteDisconnected for none."""
        if self.headers is not None:
            return
        attempt = current()
        self._head = attempt.head
        while not self._head.ended:
            if not self._head.lines:
                self._check_beginning()
            self._feed(self._line())
            if attempt.first_byte_at is None:
                attempt.first_byte_at = time.monotonic()
        self.code = self.status = self._head.status
        self.reason, self.version = "", 11
        self._frame()
        # urllib3 is told no more than where the body ends.
        self.headers = self.msg = http.client.HTTPMessage()
        if self.chunked:
            self.headers["Transfer-Encoding"] = "chunked"
        elif self.length is not None:
            self.headers["Content-Length"] = str(self.length)

    def _check_beginning(self) -> None:
        """Refuse another protocol's greeting at once: its line may never end."""
        begun = self.fp.peek(1)[: len(VERSION)]
        if not VERSION.startswith(begun):
            self._feed(begun)

    def _line(self) -> bytes:
        """The next line; how the connection ended instead, if it did."""
        line: bytes = self.fp.readline(LONGEST_LINE + 1)
        if line.endswith(b"\n") or len(line) > LONGEST_LINE:
            return line
        self._head.size += len(line)
        if self._head.lines:
            raise HeadFault(CLOSED_INSIDE)
        if line and not VERSION.startswith(line[: len(VERSION)]):
            self._feed(line)
        raise http.client.RemoteDisconnected(CLOSED_BEFORE)

    def _feed(self, line: bytes) -> None:
        lines = self._head.lines
        if len(lines) > 1 and line[:1] in (b" ", b"\t"):
            if b"\0" in line or STRAY.search(line):
                raise HeadFault(MALFORMED)
            if self._head.fold(line) == REFUSED:
                raise HeadFault(self._head.fault)
            return
        if self._head.feed(line) == REFUSED:
            raise HeadFault(self._head.fault)
        a_header = len(lines) > 1 and lines[-1] is line
        if b"\0" in line or (a_header and (b":" not in line or STRAY.search(line))):
            raise HeadFault(MALFORMED)

    def _frame(self) -> None:
        """How the body ends (RFC 9112 section 6.3), and whether the connection may live on."""
        codings = self._values("transfer-encoding")
        lengths = set(self._values("content-length"))
        if set(codings) - {"chunked"}:
            self._malformed("the response's Transfer-Encoding was not asked for")
        if len(lengths) > 1 or not all(each.isascii() and each.isdigit() for each in lengths):
            self._malformed("the response's Content-Length is malformed or given twice")
        self.chunked, self.chunk_left = bool(codings), None
        self.length = None if codings or not lengths else _length(lengths.pop())
        if self.status in (204, 304):
            self.length = 0
        connection = self._values("connection")
        old = self._head.lines[0].startswith(b"HTTP/1.0") and "keep-alive" not in connection
        endless = self.length is None and not self.chunked
        self.will_close = endless or old or "close" in connection

    def _values(self, name: str) -> list[str]:
        found = (value for key, value in self._head.headers if key.lower() == name)
        return [part.strip().lower() for text in found for part in text.split(",")]

    def _malformed(self, why: str) -> None:
        self._head.ended = False
        raise HeadFault(why)

    def _read_next_chunk_size(self) -> int:
        """Strictly by RFC 9112 section 7.1: int() would also take a sign, 0x and underscores."""
        match = CHUNK_SIZE.fullmatch(self.fp.readline(LONGEST_LINE + 1))
        if match is None:
            self._close_conn()
            raise HeadFault("a chunk's size is malformed")
        return int(match[1], 16)

    def _close_conn(self) -> None:
        """Let go of the connection, once the body is read or given up."""
        if self.fp is not None and _more_has_come(self.fp):
            current().excess = True
        super()._close_conn()  # type: ignore[misc] # the stubs leave it out

    def _safe_read(self, amt: int) -> bytes:
        """What http.client reads after a chunk, in the belief that it is a line's end."""
        data: bytes = super()._safe_read(amt)  # type: ignore[misc] # the stubs leave it out
        if data != b"\r\n":
            raise HeadFault("a chunk is longer than its size")
        return data

    def _read_and_discard_trailer(self) -> None:
        while (line := self._line()) not in (b"\r\n", b"\n"):
            if self._head.feed(line) == REFUSED:
                raise HeadFault(self._head.fault)


def _length(digits: str) -> int | None:
    """A Content-Length in bytes; None, for as long as it lasts, when no number is that long."""
    return int(digits) if len(digits) <= MOST_DIGITS else None


def _more_has_come(reader: Any) -> bool:
    """Whether bytes beyond the response are there: they would be the next one's answer."""
    connected = getattr(getattr(reader, "raw", None), "_sock", None)
    if connected is None:
        return False
    patience = connected.gettimeout()
    try:
        connected.settimeout(0)
        return bool(reader.peek(1))
    except (OSError, ValueError):
        return False
    finally:
        with contextlib.suppress(OSError):
            connected.settimeout(patience)
