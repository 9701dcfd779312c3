"""http.client's response with bounded heads, trailers and interim responses."""

from __future__ import annotations

import contextlib
import http.client
import re
import time
from typing import Any

from webhooks.transports.head import CLOSED_BEFORE, CLOSED_INSIDE, MALFORMED, REFUSED, Head
from webhooks.transports.threaded.attempt import current

LONGEST_LINE = 65_536
# Of any version: then the whole line is waited for, and refused.
PROTOCOL = b"HTTP/"
# More digits than any size has, and than int() takes.
MOST_DIGITS = 19
# A carriage return that ends no line.
STRAY = re.compile(rb"\r(?!\n)")
# As libcurl: nothing behind the digits matters.
CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,17})(?:[^0-9A-Fa-f\n][^\n]*)?\n")
LARGEST_CHUNK = 2**63 - 1


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
        begun = self.fp.peek(1)[: len(PROTOCOL)]
        if not PROTOCOL.startswith(begun):
            self._feed(begun)

    def _line(self) -> bytes:
        """The next line; how the connection ended instead, if it did."""
        line: bytes = self.fp.readline(LONGEST_LINE + 1)
        if line.endswith(b"\n") or len(line) > LONGEST_LINE:
            return line
        self._head.size += len(line)
        if self._head.lines:
            raise HeadFault(CLOSED_INSIDE)
        if line and not PROTOCOL.startswith(line[: len(PROTOCOL)]):
            self._feed(line)
        raise http.client.RemoteDisconnected(CLOSED_BEFORE)

    def _feed(self, line: bytes) -> None:
        lines = self._head.lines
        if b"\0" in line or (lines and STRAY.search(line)):
            raise HeadFault(MALFORMED)
        folded = len(lines) > 1 and line[:1] in (b" ", b"\t")
        # Only when it is whole, folded lines and all, a header has its colon or lacks it.
        if len(lines) > 1 and not folded and b":" not in lines[-1]:
            raise HeadFault(MALFORMED)
        if (self._head.fold if folded else self._head.feed)(line) == REFUSED:
            raise HeadFault(self._head.fault)

    def _frame(self) -> None:
        """How the body ends (RFC 9112 section 6.3), and whether the connection may live on."""
        lengths = self._values("content-length")
        self.chunked, self.chunk_left = bool(self._values("transfer-encoding")), None
        self.length = None if self.chunked or not lengths else _length(lengths[0])
        if self.status in (204, 304):
            self.length = 0
        connection = self._values("connection")
        old = self._head.lines[0].startswith(b"HTTP/1.0") and "keep-alive" not in connection
        endless = self.length is None and not self.chunked
        self.will_close = endless or old or "close" in connection

    def _values(self, name: str) -> list[str]:
        found = (value for key, value in self._head.headers if key.lower() == name)
        return [part.strip().lower() for text in found for part in text.split(",")]

    def _read_next_chunk_size(self) -> int:
        """Hexadecimal digits: int() would also take a sign, 0x and underscores."""
        match = CHUNK_SIZE.fullmatch(self.fp.readline(LONGEST_LINE + 1))
        size = -1 if match is None else int(match[1], 16)
        if not 0 <= size <= LARGEST_CHUNK:
            self._close_conn()
            raise HeadFault("a chunk's size is malformed")
        return size

    def _close_conn(self) -> None:
        """Let go of the connection, once the body is read or given up."""
        if self.fp is not None and _more_has_come(self.fp):
            current().excess = True
        super()._close_conn()  # type: ignore[misc] # the stubs leave it out

    def _safe_read(self, amt: int) -> bytes:
        """What http.client reads after a chunk, in the belief that it is a line's end.

        As libcurl: any number of carriage returns, then a line feed.
        """
        while (byte := self.fp.read(1)) == b"\r":
            pass
        if byte != b"\n":
            raise HeadFault("a chunk is longer than its size")
        return b"\r\n"

    def _read_and_discard_trailer(self) -> None:
        while (line := self._line()) not in (b"\r\n", b"\n"):
            if b":" not in line or b"\0" in line or STRAY.search(line):
                raise HeadFault(MALFORMED)
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
