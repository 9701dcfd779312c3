"""Custom headers on the wire: what was accepted arrives byte for byte, what was not never leaves.

What is generated, and what is expected of the bytes, is made from RFC 9110, not from the product.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.rawserver import RawServer, replies
from tests.transports import BODY, HEADERS, OK, SETTINGS, Make, post, send
from webhooks import custom_headers
from webhooks.attempt import ErrorClass, Headers
from webhooks.custom_headers import HeaderError

OURS = HEADERS[:3]
TCHARS = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
VISIBLE = "".join(map(chr, range(0x21, 0x7F)))
# What a header may not hold, or not there: each where it could do harm.
ODD = ["\r\n", "\r\nX: y", "\n", "\r", "\0", "\x0b", "\x1f", "\x7f", "\x85", "é", "☃", "\u2028"]


def spoilt(texts: st.SearchStrategy[str], odd: list[str]) -> st.SearchStrategy[str]:
    """The same with something put in."""
    return st.builds(
        lambda text, at, bad: text[: at % (len(text) + 1)] + bad + text[at % (len(text) + 1) :],
        texts,
        st.integers(0, 255),
        st.sampled_from(odd),
    )


names = st.text(TCHARS, min_size=1, max_size=64)
values = st.builds(
    str.__add__,
    st.text(VISIBLE + " \t", max_size=80).map(str.lstrip),
    st.text(VISIBLE, min_size=1, max_size=3),
)
good = st.dictionaries(names, values, max_size=20)
bad = st.tuples(spoilt(names, [*ODD, " ", ":", "(", "\t"]), values) | st.tuples(
    names, spoilt(values, ODD) | values.map(lambda text: f"{text} ") | st.just("")
)  # fmt: skip


def accepted(headers: dict[str, str]) -> Headers | None:
    """What the product makes of them, None when it refuses."""
    try:
        checked = custom_headers.check(headers)
    except HeaderError:
        return None
    return custom_headers.check_size(tuple((name, value or "") for name, value in checked))


def head(server: RawServer, headers: Headers) -> bytes:
    """A request's first bytes with exactly these."""
    lines = [
        "POST / HTTP/1.1",
        f"Host: 127.0.0.1:{server.port}",
        *(f"{name}: {value}" for name, value in (*OURS, *headers)),
        f"Content-Length: {len(BODY)}",
    ]
    return "\r\n".join(lines).encode("ascii")


def test_what_is_accepted_arrives_byte_for_byte(make: Make) -> None:
    """Names in their case, values with every byte, in their order, each once (W153)."""
    transport = make(SETTINGS)

    @example({"x-MiXeD": 'a:b:c\t"d"', "X-a": ":", "~": "~"})
    @example({"Authorization": "Bearer x", "Accept": "*/*", "Accept-Language": "x"})
    @example({"Range": "bytes=0-1", "If-Match": '"x"', "Referer": "r", "Origin": "o", "From": "f"})
    @example({"X-A": "v" * 4096, "X-B": "w" * 4096, "X-C": "x" * 4096})
    @settings(max_examples=120, deadline=None)
    @given(good)
    def arrives(headers: dict[str, str]) -> None:
        checked = accepted(headers)
        if checked is None:  # by chance a name twice, or a reserved one
            return
        response = send(transport, post(server.url(), headers=(*OURS, *checked)))
        assert response.status_code == 200, response.detail
        assert server.requests[-1].head == head(server, tuple(headers.items()))
        assert server.requests[-1].body == BODY

    with RawServer(replies(OK)) as server:
        arrives()
        assert len(server.requests) > 50
    transport.close()


def test_what_is_malformed_never_reaches_a_socket(make: Make) -> None:
    """It is refused when it is given, and, were it stored, again before it is sent (row 56)."""
    transport = make(SETTINGS)

    @settings(max_examples=120, deadline=None)
    @given(good, bad)
    def is_refused(headers: dict[str, str], header: tuple[str, str]) -> None:
        name, value = header
        assert accepted({**headers, name: value}) is None
        response = send(transport, post(server.url(), headers=(*OURS, header)))
        assert response.error is ErrorClass.INTERNAL, response.detail

    with RawServer(replies(OK)) as server:
        is_refused()
        assert (server.requests, server.connections) == ([], 0)
    transport.close()


@pytest.mark.parametrize(
    "name", ["Host", "transfer-encoding", "CONTENT-LENGTH", "webhook-signature", "Webhook_Id"]
)
def test_a_reserved_name_is_never_accepted(name: str) -> None:
    """Transports would send some of these beside their own (row 57)."""
    assert accepted({"X-A": "1", name: "chunked"}) is None
