"""Custom headers: which names and values are taken, and which are secret."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhooks import custom_headers
from webhooks.custom_headers import HeaderError, check, is_secret

CANARY = "canary-5f2b"

# RFC 9110 section 5.6.2, spelled out.
TCHARS = set("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def error_of(given: dict[str, Any]) -> HeaderError:
    with pytest.raises(HeaderError) as caught:
        check(given)
    return caught.value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Tenant", "a"),
        ("x-MiXed-CaSe", "Kept as Given"),
        ("Authorization", "Bearer abc.def"),
        ("X-A", "a:b:c"),
        ("X-A", 'a\tb  c ,;="'),
        ("!#$%&'*+.^_`|~-", "~"),
        ("n" * 64, "v" * 4096),
        ("Accept", "application/json"),
        ("X-Key", None),
    ],
)
def test_a_good_header_is_taken_as_it_is(name: str, value: str | None) -> None:
    """Names keep their case, values every byte, a colon included (W153)."""
    assert check({name: value}) == ((name, value),)


def test_the_order_is_kept() -> None:
    """They go out in the order in which they were given."""
    names = ["X-C", "X-A", "x-b"]
    assert [name for name, _ in check(dict.fromkeys(names, "v"))] == names


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-A", f"{CANARY}\r\nX-B: b"),
        ("X-A", f"{CANARY}\nX-B: b"),
        ("X-A", f"{CANARY}\r"),
        ("X-A", f"{CANARY}\0{CANARY}"),
        ("X-A", f"{CANARY}\x7f{CANARY}"),
        ("X-A", f"{CANARY}\x0b{CANARY}"),
        ("X-A", f"{CANARY}\x85{CANARY}"),
        ("X-A", f"{CANARY}☃{CANARY}"),
        ("X-A", f"{CANARY}é{CANARY}"),
        ("X-A", f"{CANARY}\ud83d{CANARY}"),
        ("X-A", f" {CANARY}"),
        ("X-A", f"{CANARY} "),
        ("X-A", f"{CANARY}\t"),
        ("X-A", ""),
        ("X-A", " "),
        ("X-A", CANARY * 500),
        ("X-A", 5),
        ("X-A", True),
        ("X-A", [CANARY]),
        ("X-A", {"value": CANARY}),
        ("", CANARY),
        ("X A", CANARY),
        ("X-A ", CANARY),
        (" X-A", CANARY),
        (f"X-A: {CANARY}", "v"),
        (f"X-A:{CANARY}\r\nX-B", "v"),
        ("X-A\r\nX-B", CANARY),
        ("X-Ä", CANARY),
        ("☃", CANARY),
        ("X(A)", CANARY),
        ("X-A\0", CANARY),
        ("n" * 65, CANARY),
    ],
)
def test_a_bad_header_is_refused_and_no_value_shown(name: str, value: Any) -> None:
    """Not a token, not visible ASCII, blanks at an edge, too long, not text (W153; rows 56).

    The error names the header and says what to do, with no part of a value, not even of one
    that was given as part of the name.
    """
    error = error_of({name: value})

    assert error.field.split(".")[0] == "headers"
    assert set(error.field.removeprefix("headers.")) <= TCHARS | set("headers")
    assert "give" in error.message
    assert CANARY not in str(error)


RESERVED = [
    "Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Upgrade", "TE",
    "Trailer", "Expect", "Proxy-Authorization", "Proxy-Connection", "Proxy", "Cookie",
    "Set-Cookie", "Accept-Encoding", "Content-Encoding", "Content-Type", "User-Agent", "Date",
    "Forwarded", "X-Forwarded-For", "X-Forwarded-Anything", "Via", "webhook-id",
    "webhook-signature", "webhook-anything", "WebHook-Request-Origin", "svix-id",
    "X-Hub-Signature-256", "X-GitHub-Event", "Stripe-Signature", "X-Shopify-Hmac-Sha256",
    "X-Slack-Signature", "Signature", "Signature-Input", "Content-Digest",
]  # fmt: skip


@pytest.mark.parametrize("name", RESERVED)
@pytest.mark.parametrize("spelt", [str, str.upper, str.lower, lambda name: name.replace("-", "_")])
def test_a_reserved_name_is_refused_in_every_spelling(name: str, spelt: Any) -> None:
    """In any case, and with underscores, which CGI and WSGI take for hyphens (W022; row 57)."""
    name = spelt(name)
    error = error_of({name: CANARY})

    assert error.field == f"headers.{name}"
    assert error.message.startswith("the name is reserved: ")
    assert CANARY not in error.message


def test_a_name_is_there_once() -> None:
    """X-A and x-a are one header to every reader (RFC 9110 section 5.1)."""
    error = error_of({"X-A": "1", "x-a": "2"})
    assert (error.field, "X-A" in error.message) == ("headers.x-a", True)


def test_there_is_a_most() -> None:
    """Twenty headers, 16 kB together (W153)."""
    assert len(check({f"X-{i}": "v" for i in range(20)})) == 20
    assert error_of({f"X-{i}": "v" for i in range(21)}).field == "headers"
    just = tuple((f"X-{i}", "v" * 4093) for i in range(4))
    assert custom_headers.check_size(just) == just
    with pytest.raises(HeaderError):
        custom_headers.check_size((*just, ("Y", "")))


@pytest.mark.parametrize(
    "name",
    ["Authorization", "X-Api-Key", "apikey", "X-TOKEN", "Client-Secret", "X-Password", "X-Auth",
     "X-Credential", "X-Signature", "X-Session", "X-My-Cookie", "x-vercel-protection-bypass"],
)  # fmt: skip
def test_a_name_that_looks_secret_is(name: str) -> None:
    """Their values are written and never read."""
    assert is_secret(name)
    assert custom_headers.shown(((name, CANARY),)) == {name: None}
    assert custom_headers.recorded(((name, CANARY),)) == ((name, "•••"),)


def test_others_are_shown() -> None:
    """What is no secret helps whoever reads a record."""
    headers = (("X-Tenant", "a"), ("Accept", "b"), ("webhook-signature", "v1,x"))
    assert custom_headers.shown(headers[:2]) == {"X-Tenant": "a", "Accept": "b"}
    assert custom_headers.recorded(headers) == headers


@given(
    st.dictionaries(
        st.text(max_size=70) | st.text("abAB-_", min_size=1, max_size=3),
        st.none() | st.text(max_size=20) | st.integers() | st.lists(st.none(), max_size=1),
        max_size=25,
    )
)
def test_whatever_is_given_is_taken_whole_or_refused(given: dict[str, Any]) -> None:
    """An error of the one kind, or headers that any reader splits in the same way."""
    try:
        checked = check(given)
    except HeaderError:
        return
    assert dict(checked) == given
    assert len({name.lower() for name in given}) == len(given) <= 20
    for name, value in checked:
        assert set(name) <= TCHARS
        assert 1 <= len(name) <= 64
        assert value is None or all(c == "\t" or 32 <= ord(c) <= 126 for c in value)
        assert value is None or value == value.strip(" \t") != ""


@given(st.lists(st.tuples(st.text(), st.text())).map(tuple))
def test_what_is_stored_reads_back(headers: tuple[tuple[str, str], ...]) -> None:
    """Whatever the text."""
    assert custom_headers.load(custom_headers.dump(headers)) == headers


@pytest.mark.parametrize(
    "stored", [b"", b"5", b"[5]", b'[["a"]]', b'{"a": 1}', b"\xff", b"[" * 9999]
)
def test_what_was_never_stored_is_refused(stored: bytes) -> None:
    """Not a crash of another kind, whatever is in the column."""
    with pytest.raises(ValueError, match="cannot be read"):
        custom_headers.load(stored)


def test_a_library_s_marker_is_no_value() -> None:
    """One transport would leave the header out, the other would send it."""
    with pytest.raises(HeaderError, match="means no header"):
        custom_headers.check({"X-Mine": "@@@SKIP_HEADER@@@"})


def test_a_token_of_ours_is_not_recorded() -> None:
    """Who reads an attempt could use it until it ends."""
    sent = (("webhook-id", "evt_1"), ("webhook-jwt", "e30.e30.c2ln"))

    assert custom_headers.recorded(sent) == (("webhook-id", "evt_1"), ("webhook-jwt", "•••"))
