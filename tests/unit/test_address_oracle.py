"""Our verdicts on addresses and URLs against those of others: ssrfguard, and three parsers."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_network
from urllib.parse import urlsplit

import pytest
import ssrfguard
import urllib3
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests import curl_urls
from webhooks.addresses import AddressPolicy, Url, UrlError, parse_url

Address = IPv4Address | IPv6Address

CLOSED = AddressPolicy()
OPEN = AddressPolicy(
    allow_http=True, allow=(ip_network("127.0.0.0/8"), ip_network("10.0.0.0/8"), ip_network("::/0"))
)
ORACLE = ssrfguard.Policy()

# What we deny and ssrfguard 0.4.1 permits.
STRICTER = [ip_network(text) for text in (
    "168.63.129.16/32",  # Azure's WireServer, which no registry has
    "192.0.0.0/24",  # it opens 192.0.0.9 and 192.0.0.10, anycast services
    "192.31.196.0/24", "192.175.48.0/24", "2620:4f:8000::/48",  # AS112
    "192.52.193.0/24",  # AMT
    "2001::/23",  # it judges Teredo by the addresses inside, and opens the anycast services
    "2002::/16",  # it judges 6to4 by the address inside
    # Outside of 2000::/3, whatever it says: compatible and NAT64 addresses are judged by the
    # address inside, what is not assigned is open.
    "::/3", "4000::/2", "8000::/1",
)]  # fmt: skip
MAPPED = ip_network("::ffff:0:0/96")
# Where a table is most likely to be wrong.
NEAR = [*STRICTER, MAPPED, *(ip_network(text) for text in (
    "::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/63", "2001::/32",
    "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
    "0.0.0.0/8", "100.64.0.0/10", "198.18.0.0/15", "224.0.0.0/3",
))]  # fmt: skip

addresses = st.ip_addresses() | st.sampled_from(NEAR).flatmap(
    lambda network: st.ip_addresses(network=network)
)


def inner(address: Address) -> Address:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


@settings(max_examples=500)
@given(addresses)
def test_verdicts_are_those_of_the_oracle_or_stricter(address: Address) -> None:
    """What we allow, ssrfguard's table of the registries allows; what only it allows is listed."""
    ours, theirs = CLOSED.allows(address), ORACLE.permits_address(address)
    assert theirs or not ours
    if theirs and not ours:
        assert any(inner(address) in network for network in STRICTER), inner(address)


@pytest.mark.parametrize("network", STRICTER, ids=str)
def test_the_known_differences_are_real(network: ssrfguard.Block) -> None:
    """Each listed network holds an address on which the two differ: none is listed for nothing."""
    sample = {
        "192.0.0.0/24": "192.0.0.9",
        "2001::/23": "2001:1::1",
        "2002::/16": "2002:101:101::1",
        "::/3": "64:ff9b::101:101",
    }.get(str(network), str(network[0]))  # type: ignore[index]
    assert ORACLE.permits_address(sample)
    assert not CLOSED.allows(sample)


def spelled(address: Address) -> st.SearchStrategy[str]:
    """The ways to write an address that are still one to ``ipaddress``."""
    texts = [str(address), address.exploded, address.exploded.upper(), str(address).upper()]
    if isinstance(address, IPv4Address):
        high, low = int(address) >> 16, int(address) & 0xFFFF
        texts += [
            f"::ffff:{address}",
            f"0:0:0:0:0:FFFF:{high:x}:{low:04x}",
            f"::FFFF:{high:X}:{low:x}",
        ]
        texts += [f"0000:0000:0000:0000:0000:ffff:{address}"]
    return st.sampled_from(texts)


@settings(max_examples=200)
@given(addresses.flatmap(lambda address: st.tuples(st.just(address), spelled(address))))
def test_a_spelling_changes_no_verdict(case: tuple[Address, str]) -> None:
    """However an address is written, it is judged alike, and as ssrfguard judges the spelling."""
    address, text = case
    assert CLOSED.allows(text) is CLOSED.allows(address)
    if CLOSED.allows(text):
        assert ORACLE.permits_address(text)


def odd_spellings(address: IPv4Address) -> list[str]:
    """What inet_aton, and so getaddrinfo, would take for the address; we take none of it."""
    number = int(address)
    a, b, c, d = address.packed
    return [
        str(number), hex(number), f"0{number:o}", f"0x{number:X}", f"{a}.{number & 0xFFFFFF}",
        f"{a}.{b}.{number & 0xFFFF}", f"0x{a:x}.{b}.{c}.{d}", f"{a}.0{b:o}.{c}.{d}",
        f"{a:03}.{b:03}.{c:03}.{d:03}", f"0{a:o}.0{b:o}.0{c:o}.0{d:o}", f"{a}.{b}.{c}.0x{d:x}",
    ]  # fmt: skip


@settings(max_examples=100)
@given(st.data())
def test_odd_numbers_are_never_a_host(data: st.DataObject) -> None:
    """Octal, hexadecimal, short and padded forms: refused even where everything is open."""
    address = data.draw(st.ip_addresses(v=4))
    host = data.draw(st.sampled_from(odd_spellings(address)))
    assume(host != str(address))
    everything = AddressPolicy(allow_http=True, allow=(ip_network("0.0.0.0/0"),))
    for written in (host, f"{host}."):
        with pytest.raises(UrlError, match="ends in a number"):
            parse_url(f"http://{written}/", everything)


HOSTS = [
    "example.com", "EXAMPLE.com.", "a-b.example", "xn--bcher-kva.example", "b\u00fccher.example",
    "127.0.0.1", "10.0.0.1", "[::1]", "[::ffff:7f00:1]", "[2606:4700::1111]", "localhost",
    "127.1", "0x7f.1", "%6c.example", "\u2460\u2461\u2466.\u24ea.\u24ea.\u2460",
    "127\u30020\u30020\u30021", "a..b", "-a.example", "a_b.example", "1.1.1.1.", "[::1%25lo]",
    "example.com%00.good.example", "[::]",
]  # fmt: skip
AUTHORITIES = ["", "@", "user@", "user:pw@", ":@", "\\@", "a@b@"]
PORTS = [
    ":", ":443", ":80", ":8443", ":0443", ":65536", ":0", ":+1", ":9000", ":\uff19", ":1:2",
    ":5432",
]  # fmt: skip
PATHS = [
    "", "/", "/a/../b", "/%2e%2e/", "/a%7Eb", "//x", "/;p", "/\\", "/\u00fc", "/@", "/a b",
    "/[x]", "/%", "/%zz", "/{id}|`^", "/.", "/./a",
]  # fmt: skip
QUERIES = ["", "?", "?a=1&b=%2f", "?@", "?//x/", "?x#y", "#", "?\u00fc", "??", "?'\""]
SCHEMES = ["https://", "http://", "HTTPS://", "https:/", "https:", "//", "hTTp://", "ftp://", ""]

# Anything that somebody may type or try, and what is mostly accepted.
hostile = st.builds(
    "{}{}{}{}{}{}".format, st.sampled_from(SCHEMES), st.just("") | st.sampled_from(AUTHORITIES),
    st.sampled_from(HOSTS) | st.text(max_size=8), st.just("") | st.sampled_from(PORTS),
    st.sampled_from(PATHS) | st.text(max_size=6).map("/{}".format), st.sampled_from(QUERIES),
)  # fmt: skip
plain = st.builds(
    "{}{}{}/{}?{}".format, st.sampled_from(["https://", "http://"]),
    st.sampled_from(HOSTS[:10]), st.sampled_from(["", ":443", ":8443", ":9000"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\\#?"), max_size=8),
    st.text(st.characters(codec="ascii", exclude_characters="\\#"), max_size=8),
)  # fmt: skip
urls = hostile | plain


def accepted(text: str, policy: AddressPolicy) -> Url | None:
    try:
        return parse_url(text, policy)
    except UrlError:
        return None


@settings(max_examples=600)
@given(urls | st.text())
def test_all_parsers_read_the_same(text: str) -> None:
    """A URL or a refusal; what is accepted is one host and port to whoever may dial it."""
    url = accepted(text, OPEN)
    if url is None:
        return
    split = urlsplit(url.text)
    other = urllib3.util.parse_url(url.text)
    by_curl = curl_urls.read(url.text)

    assert (split.scheme, split.hostname, split.port or default(url)) == (
        url.scheme, url.host, url.port,
    )  # fmt: skip
    assert (other.scheme, str(other.host).strip("[]"), other.port or default(url)) == (
        url.scheme, url.host, url.port,
    )  # fmt: skip
    assert by_curl[:3] == (url.scheme, f"[{url.host}]" if ":" in url.host else url.host, url.port)
    assert url.text.endswith(by_curl[3])
    assert split.username is split.password is None


# What we refuse and ssrfguard 0.4.1 accepts, by our reason.
STRICTER_URLS = (
    "http:// is not allowed",  # until the operator says so
    "port 80 is not allowed; use 443",  # its list of ports is one for both schemes
    "is not allowed; give a host name",  # any literal address, and names that are never public
    "ends in a number",  # it takes 0x7f.1 for a name, and looks at what that stands for
    "fragment", "2048", "U+", "has no domain", "is not a valid name", "malformed", "ambiguous",
)  # fmt: skip


@settings(max_examples=500, derandomize=True)
@given(urls)
def test_url_verdicts_are_those_of_the_oracle_or_stricter(text: str) -> None:
    """ssrfguard reads alike what we accept; what only it accepts is refused for a known reason."""
    verdict = judged(text)
    if isinstance(verdict, UrlError):
        known = any(reason in str(verdict) for reason in STRICTER_URLS)
        assert known or oracle_reads(text, 443) is None, verdict
        return
    for spelling in (text, verdict.text):
        assert oracle_reads(spelling, verdict.port) == (
            verdict.scheme, verdict.host, verdict.port,
        )  # fmt: skip


def judged(text: str) -> Url | UrlError:
    try:
        return parse_url(text, CLOSED)
    except UrlError as error:
        return error


def oracle_reads(text: str, port: int) -> tuple[str, str, int] | None:
    """Scheme, host without its final dot, and port; None if ssrfguard refuses the URL."""
    try:
        target = ssrfguard.Policy(allowed_ports=frozenset({80, port})).check_url(text)
    except ssrfguard.BlockedURLError:
        return None
    return target.scheme, target.host.removesuffix("."), target.port


def default(url: Url) -> int:
    return 443 if url.scheme == "https" else 80
