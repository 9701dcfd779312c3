"""The head of a response, line by line: the limits and rules are the same for every transport."""

from __future__ import annotations

import re
from functools import lru_cache

from webhooks.attempt import Headers
from webhooks.transports.headers import KEPT_LINES, LONG, from_lines

MOST_HEADER_BYTES = 65_536
MOST_HEADERS = 100
MOST_INTERIM = 5

REFUSED = 0  # what a callback of libcurl answers to end the transfer: fewer bytes than it got
# What says where a body ends, and how its name begins: most lines begin otherwise.
LENGTH, CODING = b"content-length", b"transfer-encoding"
FIRST = frozenset((b"c", b"C", b"t", b"T"))
STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: [^\r\n]*)?\r?\n")

TOO_LARGE = "the response headers are larger than 64 kB"
MALFORMED = "a header line of the response is malformed"
BAD_CODING = "the response's Transfer-Encoding was not asked for"
BAD_LENGTH = "the response's Content-Length is malformed or given twice"
CLOSED_INSIDE = "the connection was closed inside the response headers"
CLOSED_BEFORE = "the connection was closed without a response"


class Head:
    """Status and headers of the final response, as far as they have come.

    ``ended``: its last line was seen. ``fault``: why it was refused, or "". ``size``: bytes
    of all lines, those of interim responses and trailers too.
    """

    __slots__ = ("ended", "fault", "interim", "lines", "size", "status")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything, for the next response."""
        self.status = self.interim = self.size = 0
        self.lines: list[bytes] = []
        self.fault = ""
        self.ended = False

    @property
    def headers(self) -> Headers:
        """The final response's headers; none before its head has ended."""
        return from_lines(self.lines[1:]) if self.ended else ()

    def feed(self, line: bytes) -> int | None:
        """Take the next line with its end; REFUSED if nothing more is wanted, else None."""
        self.size += len(line)
        if self.size > MOST_HEADER_BYTES:
            return self._refuse(TOO_LARGE)
        if self.ended:
            return None  # a trailer
        if not self.lines:
            return self._on_status_line(line)
        if line == b"\r\n" or line == b"\n":
            return self._on_last_line()
        if line[:1] == b"\r":  # libcurl takes it for the last one
            return self._refuse(MALFORMED)
        self.lines.append(line)
        if len(self.lines) > MOST_HEADERS + 1:
            return self._refuse(f"the response has more than {MOST_HEADERS} headers")
        return None

    def fold(self, line: bytes) -> int | None:
        """Take a line that goes on with the one before (RFC 9112 section 5.2), as ``feed``."""
        self.size += len(line)
        if self.size > MOST_HEADER_BYTES:
            return self._refuse(TOO_LARGE)
        self.lines[-1] = self.lines[-1].rstrip() + b" " + line.lstrip(b" \t")
        return None

    def _on_status_line(self, line: bytes) -> int | None:
        match = STATUS_LINE.fullmatch(line)
        if match is None:
            return self._refuse("the response does not begin with an HTTP/1 status line")
        self.status = int(match[1])
        self.lines.append(line)
        if self.status == 101:
            return self._refuse("the receiver switched protocols, which nobody asked for")
        if not 100 <= self.status <= 599:
            return self._refuse(f"status {self.status} is outside of 200 to 599")
        return None

    def _on_last_line(self) -> int | None:
        if self.status >= 200:
            if fault := _framing_fault(self.lines):
                return self._refuse(fault)
            self.ended = True
            return None
        self.lines = []
        self.interim += 1
        if self.interim > MOST_INTERIM:
            return self._refuse(f"the receiver sent more than {MOST_INTERIM} interim responses")
        return None

    def _refuse(self, fault: str) -> int:
        self.fault = fault
        return REFUSED


def _framing_fault(lines: list[bytes]) -> str:
    """Why two readers could see the body end in two places (RFC 9112 section 6), or ""."""
    length: bytes | None = None
    for line in lines:
        if line[:1] not in FIRST:
            continue
        name, values = _framing_kept(line) if len(line) < LONG else _framing(line)
        if name == CODING and values != {b"chunked"}:
            return BAD_CODING
        if name == LENGTH:
            (value, *others) = values
            if others or not value.isdigit() or length not in (None, value):
                return BAD_LENGTH
            length = value
    return ""


def _framing(line: bytes) -> tuple[bytes, frozenset[bytes]]:
    """A line's name, and its values if it says where the body ends."""
    name, _, value = line.partition(b":")
    name = name.lower()
    if name not in (LENGTH, CODING):
        return b"", frozenset()
    return name, frozenset(part.strip(b" \t\r\n").lower() for part in value.split(b","))


# Receivers repeat themselves, as in ``headers.from_lines``.
_framing_kept = lru_cache(KEPT_LINES)(_framing)
