"""Responses that no list holds: the listed ones, cut, spliced and spoilt at random."""

from __future__ import annotations

from random import Random

from tests.conformance.answers import ANSWERS
from tests.conformance.framings import NOTED, REFUSED, TAKEN

LONGEST_SEED = 3_000
SPOILT_BYTES = 200
# What is kept of a status line: without it every one would be refused for the same reason.
STATUS_LINE_BYTES = 14

_listed = [data for data, *_ in (*ANSWERS.values(), *TAKEN.values(), *NOTED.values())]
SEEDS = [data for data in (*_listed, *REFUSED.values()) if len(data) < LONGEST_SEED]
GOOD = [data for data, *_ in TAKEN.values() if len(data) < LONGEST_SEED]
TOKENS = (
    b"\r\n", b"\n", b"\r", b"\0", b":", b" ", b"\t", b",", b";", b"-", b"\x0b", b"\x1b", b"\x85",
    b"\xff", b"0", b"1", b"5\r\nhello\r\n", b"0\r\n\r\n", b"\r\n\r\n", b" \r\n", b"chunked",
    b"gzip", b"204", b"304", b"101", b"HTTP/1.0 ", b"HTTP/2 200\r\n", b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 E\r\nX: y\r\n\r\n", b"Content-Length: 2\r\n",
    b"Content-Length: 5\r\n", b"Content-Length: 99999999999999999999\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: identity\r\n", b"Location: /\r\n",
    b"Connection: close\r\n", b"Connection: keep-alive\r\n", b"Content-Encoding: gzip\r\n",
    b"Set-Cookie: a=b\r\n", b"Trailer: x\r\n", b"Retry-After: 5\r\n",
)  # fmt: skip


def spoilt(random: Random) -> bytes:
    """One of them with one to four faults: cut, doubled, spliced, a byte or a token put in."""
    data = random.choice(GOOD if random.random() < 0.7 else SEEDS)
    for _ in range(random.randint(1, 4)):
        data = _spoil(random, data)
    return data


def _spoil(random: Random, data: bytes) -> bytes:
    first = 0 if random.random() < 0.25 else min(len(data), STATUS_LINE_BYTES)
    start = random.randint(first, max(first, min(len(data), SPOILT_BYTES)))
    end = min(len(data), start + random.randint(1, 8))
    how = random.randrange(6)
    if how == 0:
        return data[:start] + data[end:]
    if how == 1:
        return data[:end] + data[start:]
    if how == 2:
        return data[:start] + bytes([random.randrange(256)]) + data[start + 1 :]
    if how == 3:
        other = random.choice(SEEDS)
        return data[:start] + other[random.randint(0, len(other)) :]
    return data[:start] + random.choice(TOKENS) + data[start:]
