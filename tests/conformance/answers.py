"""What hostile receivers answer, and how such an attempt is to end."""

from __future__ import annotations

import gzip

from tests.rawserver import reply
from tests.transports import OK
from webhooks.attempt import ErrorClass

HEAD = b"HTTP/1.1 200 OK\r\n"
BOMB = gzip.compress(bytes(20_000_000))
PROTOCOL, REDIRECT = ErrorClass.PROTOCOL, ErrorClass.REDIRECT
HTTP_4XX, HTTP_5XX = ErrorClass.HTTP_4XX, ErrorClass.HTTP_5XX

# SECURITY.md section 3, rows 35 to 55: what the receiver sends, and the attempt's class and status.
ANSWERS: dict[str, tuple[bytes, ErrorClass | None, int | None]] = {
    "40 endless 100": (b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, PROTOCOL, 100),
    "41 103 then 200": (b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK, None, 200),
    "42 101": (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", PROTOCOL, 101),
    "43 HTTP/0.9": (b"<html>hello</html>", PROTOCOL, None),
    "43 ICY": (b"ICY 200 OK\r\n\r\n", PROTOCOL, None),
    "43 HTTP/2.0": (b"HTTP/2.0 200 OK\r\n\r\n", PROTOCOL, None),
    "43 status abc": (b"HTTP/1.1 abc\r\n\r\n", PROTOCOL, None),
    "43 status 20": (b"HTTP/1.1 20 OK\r\n\r\n", PROTOCOL, None),
    "43 status 999": (b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n", PROTOCOL, 999),
    "44 302 inward": (reply(302, b"", (("Location", "http://127.0.0.1:1/"),)), REDIRECT, 302),
    "44 302 file": (reply(302, b"", (("Location", "file:///etc/passwd"),)), REDIRECT, 302),
    "44 302 odd": (reply(302, b"", (("Location", "http://[\xff"),)), REDIRECT, 302),
    "45 302 bomb": (
        reply(302, BOMB, (("Content-Encoding", "gzip"), ("Location", "/"))),
        REDIRECT,
        302,
    ),
    "46 200 bomb": (reply(200, BOMB, (("Content-Encoding", "gzip"),)), None, 200),
    "47 1e18": (HEAD + b"Content-Length: 1000000000000000000\r\n\r\nhello", None, 200),
    "47 short": (HEAD + b"Content-Length: 100\r\n\r\nok", None, 200),
    "47 bad chunk": (HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\nok\r\n", None, 200),
    "47 bad gzip": (reply(200, b"ok", (("Content-Encoding", "gzip"),)), None, 200),
    "48 two lengths": (HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok", PROTOCOL, 200),
    "48 long line": (HEAD + b"X: " + b"a" * 70_000 + b"\r\n\r\n", PROTOCOL, 200),
    "48 120 headers": (HEAD + b"X: 1\r\n" * 120 + b"\r\n", PROTOCOL, 200),
    "49 cut head": (HEAD + b"X: 1\r\nY", PROTOCOL, 200),
    "50 odd bytes": (b"HTTP/1.1 500 <script>\x1b[31m\r\n\r\n\xff\xfe\x00<script>", HTTP_5XX, 500),
    "51 cookie": (reply(200, b"ok", (("Set-Cookie", "sid=A; Path=/"),)), None, 200),
    "52 410": (reply(410), HTTP_4XX, 410),
    "53 429": (reply(429, b"", (("Retry-After", "120"),)), HTTP_4XX, 429),
    "54 huge": (reply(503, b"", (("Retry-After", "9" * 400),)), HTTP_5XX, 503),
    "54 arabic": (
        reply(503, b"", (("Retry-After", "\xef\xbc\x91\xef\xbc\x92\xef\xbc\x90"),)),
        HTTP_5XX,
        503,
    ),
    "55 404": (reply(404), HTTP_4XX, 404),
    "55 502": (reply(502), HTTP_5XX, 502),
    "70 SSH": (b"SSH-2.0-x\r\n", PROTOCOL, None),
    "70 TLS alert": (b"\x15\x03\x01\x00\x02\x02P", PROTOCOL, None),
}
