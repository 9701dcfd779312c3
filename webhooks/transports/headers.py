"""Header lines, to a receiver and from it."""

from __future__ import annotations

import re
from functools import lru_cache

from webhooks.attempt import Headers

# RFC 9110 section 5: a token, and visible ASCII with blanks inside only.
LINE = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?"
LINES = re.compile(rf"(?:{LINE}\n)*")
# libcurl's own: a bare name leaves it out. No asking for 100-continue either.
LEFT_OUT = ["Accept:", "Content-Type:", "Expect:"]
KEPT_LINES = 4_096
LONG = 256


def to_lines(headers: Headers) -> list[str]:
    """Lines for libcurl, which sends them as they stand."""
    return checked_lines(headers) + LEFT_OUT


def checked_lines(headers: Headers) -> list[str]:
    """Lines without their ends.

    ValueError for one that could end early, be two, or be read in two ways.
    """
    lines = [f"{name}: {value}" for name, value in headers]
    text = "\n".join((*lines, ""))
    if text.count("\n") != len(lines) or not LINES.fullmatch(text):
        bad = next(name for name, value in headers if not re.fullmatch(LINE, f"{name}: {value}"))
        raise ValueError(f"the header {bad[:60]!r} is malformed, in its name or its value")
    return lines


def from_lines(lines: list[bytes]) -> Headers:
    """Names and values, as ISO 8859-1 (RFC 9110 section 5.5), without the blanks around."""
    return tuple([_split_kept(line) if len(line) < LONG else _split(line) for line in lines])


def _split(line: bytes) -> tuple[str, str]:
    name, _, value = line.decode("iso-8859-1").partition(":")
    return name, value.strip(" \t\r\n")


# A receiver sends most of its lines again and again. Long ones, which a hostile one could
# fill the memory with, are not kept.
_split_kept = lru_cache(KEPT_LINES)(_split)
