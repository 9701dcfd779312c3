"""Where a response's head and body end: responses that are odd, and how each is read."""

from __future__ import annotations

from tests.transports import OK

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
TWO = b"Content-Length: 2\r\n\r\nok"

# A response, and the body that is taken from it; its status is 200.
TAKEN = {
    "folded header": (HEAD + b"X: 1\r\n  more\r\n" + TWO, b"ok"),
    "leading blank": (HEAD + b" X: 1\r\n" + TWO, b"ok"),
    "8-bit name": (HEAD + b"X\xff: 1\r\n" + TWO, b"ok"),
    "escape in a value": (HEAD + b"X: \x1b[31mred\r\n" + TWO, b"ok"),
    "bare line feeds": (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", b"ok"),
    "no reason": (b"HTTP/1.1 200\r\n" + TWO, b"ok"),
    "interim 199": (b"HTTP/1.1 199 x\r\n\r\n" + OK, b"ok"),
    "the same length twice": (HEAD + b"Content-Length: 2\r\n" + TWO, b"ok"),
    "the same length in a list": (HEAD + b"Content-Length: 2, 2\r\n\r\nok", b"ok"),
    "30 digits": (HEAD + b"Content-Length: " + b"9" * 30 + b"\r\n\r\nok", b"ok"),
    "5,000 digits": (HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\nok", b"ok"),
    "chunked and a length": (
        HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"ok",
    ),
    "CHUNKED": (HEAD + b"Transfer-Encoding: CHUNKED\r\n\r\n2\r\nok\r\n0\r\n\r\n", b"ok"),
    "chunk extension": (CHUNKED + b"2;a=b\r\nok\r\n0\r\n\r\n", b"ok"),
    "17 digits of a size": (CHUNKED + b"0" * 16 + b"2\r\nok\r\n0\r\n\r\n", b"ok"),
    "bytes behind a size": (CHUNKED + b"2\xea\r\nok\r\n0 z\r\n\r\n", b"ok"),
    "returns behind a chunk": (CHUNKED + b"2\r\nok\r\r\n0\r\n\r\n", b"ok"),
    "colon in the folded line": (HEAD + b"X\r\n : 1\r\n" + TWO, b"ok"),
    "trailer": (CHUNKED + b"2\r\nok\r\n0\r\nX: 1\r\n\r\n", b"ok"),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\n\r\nok", b"ok"),
    "HTTP/1.0 chunked": (
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"ok",
    ),
    "more than announced": (HEAD + TWO + b"EXTRA", b"ok"),
    "charset of no kind": (HEAD + b"Content-Type: text/plain; charset=banana\r\n" + TWO, b"ok"),
    "charset cut": (HEAD + b"Content-Type: text/plain; charset=utf-16\r\n" + TWO, b"ok"),
}
# A response whose body is not as announced, and what is taken of it.
NOTED = {
    "size with 0x": (CHUNKED + b"0x2\r\nok\r\n0\r\n\r\n", b""),
    "negative size": (CHUNKED + b"-2\r\nok\r\n0\r\n\r\n", b""),
    "size with _": (CHUNKED + b"0_2\r\nok\r\n0\r\n\r\n", b""),
    "huge size": (CHUNKED + b"F" * 20 + b"\r\nok", b""),
    "18 digits of a size": (CHUNKED + b"0" * 17 + b"2\r\nok\r\n0\r\n\r\n", b""),
    "size beyond 2^63": (CHUNKED + b"8" + b"0" * 15 + b"\r\nok", b""),
    "trailer without a colon": (CHUNKED + b"2\r\nok\r\n0\r\nX\r\n\r\n", b"ok"),
    "NUL in a trailer": (CHUNKED + b"2\r\nok\r\n0\r\nX: \0\r\n\r\n", b"ok"),
    "no size": (CHUNKED + b"\r\n2\r\nok\r\n0\r\n\r\n", b""),
    "chunk too long": (CHUNKED + b"2\r\nokXX0\r\n\r\n", b"ok"),
    "cut before the last chunk": (CHUNKED + b"2\r\nok\r\n", b"ok"),
    "cut in the trailers": (CHUNKED + b"2\r\nok\r\n0\r\nX: 1\r\n", b"ok"),
}
REFUSED = {
    "no colon": HEAD + b"X: 1\r\nnocolon\r\n" + TWO,
    "NUL in a name": HEAD + b"X\0: 1\r\n" + TWO,
    "NUL in a folded line": HEAD + b"X: 1\r\n \0\r\n" + TWO,
    "bare carriage return": HEAD + b"X: a\rb\r\n" + TWO,
    "NUL in the status line": b"HTTP/1.1 200 O\0K\r\n" + TWO,
    "length of letters": HEAD + b"Content-Length: abc\r\n\r\nok",
    "negative length": HEAD + b"Content-Length: -5\r\n\r\nok",
    "length with a plus": HEAD + b"Content-Length: +2\r\n\r\nok",
    "empty length": HEAD + b"Content-Length: \r\n\r\nok",
    "length and more": HEAD + b"Content-Length: 2x\r\n\r\nok",
    "two lengths in a list": HEAD + b"Content-Length: 2, 3\r\n\r\nok",
    "two spellings of a length": HEAD + b"Content-Length: 2, 02\r\n\r\nok",
    "a length and a huge one": HEAD + b"Content-Length: " + b"9" * 30 + b"\r\n" + TWO,
    "a huge length and more": HEAD + b"Content-Length: " + b"9" * 30 + b"x\r\n\r\nok",
    "8-bit coding": HEAD + b"Transfer-Encoding: chunked\xd4\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "identity": HEAD + b"Transfer-Encoding: identity\r\n" + TWO,
    "a line that begins with a return": CHUNKED[:-2] + b"\rX: 1\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "length in other digits": HEAD + b"Content-Length: \xef\xbc\x92\r\n\r\nok",
    "gzip": HEAD + b"Transfer-Encoding: gzip\r\n\r\nok",
    "gzip, chunked": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "chunked, gzip": HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "a blank line first": b"\r\nHTTP/1.1 200 OK\r\n" + TWO,
    "a tab in the status line": b"HTTP/1.1\t200 OK\r\n" + TWO,
    "two blanks in it": b"HTTP/1.1  200 OK\r\n" + TWO,
    "no blank in it": b"HTTP/1.1 200OK\r\n" + TWO,
    "HTTP/1.2": b"HTTP/1.2 200 OK\r\n" + TWO,
    "small letters": b"http/1.1 200 OK\r\n" + TWO,
    "cut interim": b"HTTP/1.1 100 Continue\r\nX",
    "cut interim after a line": b"HTTP/1.1 103 Early Hints\r\nX: 1\r\n",
}
