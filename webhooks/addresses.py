"""Which URLs may be registered and which addresses may be dialled.

The standard library's ``is_global`` is not enough here (CVE-2024-4032, and it calls
multicast, NAT64 and site-local addresses global), so the table is our own.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TypeAlias
from urllib.parse import quote, urlsplit

import urllib3
from urllib3.exceptions import LocationParseError

from webhooks import address_table as table
from webhooks.hosts import UrlError as UrlError
from webhooks.hosts import check_name, encode, ends_in_number, read_v4, read_v6
from webhooks.settings import Network, Settings

Address: TypeAlias = IPv4Address | IPv6Address

# One text for every name: it tells a tenant nothing about what lies behind.
NOT_ALLOWED = "the target address is not allowed"

AUTHORITY = re.compile(r"(\[[^\[\]@]*\]|[^\[\]@:]*)(?::([0-9]{1,5}))?", re.ASCII)
ESCAPE = re.compile(r"%[0-9a-fA-F]{2}", re.ASCII)
AFTER_SCHEME = re.compile(r"(?<=[:/?])")
ASCII_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))


def blocked() -> UrlError:
    """The refusal of what a name stands for, the same whatever the reason."""
    return UrlError(NOT_ALLOWED, policy=True)


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """The operator's part of the rules: ``allow`` opens networks, ``deny`` closes them.

    ``deny_hosts`` closes names: his own, or events would come back to where they were
    emitted. ``*.example.com`` is every name below example.com, not that one itself.
    """

    allow_http: bool = False
    allow: tuple[Network, ...] = ()
    deny: tuple[Network, ...] = ()
    deny_hosts: tuple[str, ...] = ()

    @classmethod
    def from_settings(cls, settings: Settings) -> AddressPolicy:
        own = (settings.origin.lower(),) if settings.origin else ()
        names = (*settings.deny_hosts, *own)
        return cls(settings.allow_http, settings.allow_cidrs, settings.deny_cidrs, names)

    def allows(self, address: str | Address) -> bool:
        """Whether the address may be dialled. No address, or one with a scope: False."""
        found = _unwrap(address)
        if found is None or self._closed(found):
            return False
        return _inside(found, self.allow) or _is_public(found)

    def covers(self, address: str | Address) -> bool:
        """Whether the operator's allow list itself opens the address."""
        found = _unwrap(address)
        return found is not None and not self._closed(found) and _inside(found, self.allow)

    def loopback(self) -> tuple[str, ...]:
        """What ``localhost`` stands for here: the loopback addresses that are allowed."""
        return tuple(address for address in table.LOOPBACK if self.covers(address))

    def denies(self, host: str) -> bool:
        """Whether the operator closed the name, which is in lower case."""
        return any(
            host.endswith(rule[1:]) if rule.startswith("*.") else host == rule
            for rule in self.deny_hosts
        )

    def _closed(self, address: Address) -> bool:
        return _inside(address, table.METADATA) or _inside(address, self.deny)


@dataclass(frozen=True, slots=True)
class Url:
    """A URL that passed the rules. ``text`` is its one canonical form; ``literal``: an IP host."""

    text: str
    scheme: str
    host: str
    port: int
    literal: bool


def check_url(text: str, policy: AddressPolicy) -> str:
    """The URL's canonical form, to be stored; UrlError says why it is refused.

    No name is looked up: what a name stands for is checked each time it is dialled.
    """
    return parse_url(text, policy).text


def parse_url(text: str, policy: AddressPolicy) -> Url:
    """Read a URL as ``check_url`` does; UrlError says why it is refused."""
    _check_characters(text)
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise UrlError(f"the URL cannot be read ({error}); give https://host/path") from error
    _check_scheme(text, parts.scheme, policy)
    written, port = _split_authority(parts.netloc, parts.scheme)
    _check_port(port, parts.scheme)
    host, literal = _check_host(written, policy)
    _check_second_opinion(text, parts.scheme, host, port)
    shown = "" if port == _default_port(parts.scheme) else f":{port}"
    # As it goes over the wire: both transports write escapes in the path in upper case.
    tail = ESCAPE.sub(lambda found: found[0].upper(), quote(parts.path or "/", ASCII_PRINTABLE))
    if parts.query:
        tail += "?" + quote(parts.query, safe=ASCII_PRINTABLE)
    canonical = f"{parts.scheme}://{host}{shown}{tail}"
    _check_length(canonical)
    return Url(canonical, parts.scheme, host.strip("[]"), port, literal)


def _unwrap(address: str | Address) -> Address | None:
    """The address itself, the IPv4 address inside a mapped one, or None."""
    try:
        found = ip_address(address)
    except ValueError:
        return None
    if isinstance(found, IPv6Address):
        return None if found.scope_id else found.ipv4_mapped or found
    return found


def _inside(address: Address, networks: tuple[Network, ...]) -> bool:
    return any(address in network for network in networks)


def _is_public(address: Address) -> bool:
    if address.version == 6 and address not in table.PUBLIC_V6:
        return False
    return not _inside(address, table.SPECIAL)


def _check_length(text: str) -> None:
    if len(text) > table.LONGEST_URL:
        raise UrlError(f"the URL has {len(text)} characters; give at most {table.LONGEST_URL}")


def _check_characters(text: str) -> None:
    if not isinstance(text, str):
        raise UrlError("the URL is not a text")
    _check_length(text)
    if "#" in text:
        raise UrlError("the URL holds a fragment, which is never sent; remove # and what follows")
    for character in text:
        if character == "\\" or not "!" <= character <= "~":
            _check_character(character)


def _check_character(character: str) -> None:
    category = unicodedata.category(character)
    if character == "\\" or category[0] in "CZ":
        raise UrlError(
            f"the URL holds the character U+{ord(character):04X}; remove it, "
            "or write it percent-encoded in the path"
        )


def _check_scheme(text: str, scheme: str, policy: AddressPolicy) -> None:
    if scheme not in ("http", "https"):
        wanted = "https:// or http://" if policy.allow_http else "https://"
        begun = AFTER_SCHEME.split(text, maxsplit=1)[0][:40]
        raise UrlError(f"the URL begins with {begun!r}; give one that begins with {wanted}")
    if scheme == "http" and not policy.allow_http:
        raise UrlError(f"http:// is not allowed here; {table.HTTP_REMEDY}", policy=True)


def _split_authority(authority: str, scheme: str) -> tuple[str, int]:
    if not authority:
        raise UrlError("the URL has no host; give https://host/path")
    if "@" in authority:
        raise UrlError("the URL holds a user name or password before @; remove it")
    match = AUTHORITY.fullmatch(authority)
    if match is None or not match[1]:
        raise UrlError(f"the host or port in {authority[:80]!r} is malformed; give host:port")
    return match[1], int(match[2]) if match[2] else _default_port(scheme)


def _default_port(scheme: str) -> int:
    return 443 if scheme == "https" else 80


def _check_port(port: int, scheme: str) -> None:
    if not 0 < port < 65_536:
        raise UrlError(f"port {port} does not exist; give one from 1 to 65535")
    usual = table.HTTPS_PORTS if scheme == "https" else table.HTTP_PORTS
    if port in usual or (port >= table.FIRST_FREE_PORT and port not in table.SERVICE_PORTS):
        return
    names = ", ".join(map(str, sorted(usual)))
    raise UrlError(
        f"port {port} is not allowed; use {names}, or one from {table.FIRST_FREE_PORT} "
        "that is not another service's",
        policy=True,
    )


def _check_host(written: str, policy: AddressPolicy) -> tuple[str, bool]:
    """The host as it stands in the canonical URL, and whether it is an address."""
    if written.startswith("["):
        return f"[{_check_address(read_v6(written[1:-1]), policy)}]", True
    host = encode(written)
    if ends_in_number(host):
        return str(_check_address(read_v4(host, written), policy)), True
    _check_name(host, policy)
    return host, False


def _check_address(address: Address, policy: AddressPolicy) -> Address:
    if not policy.covers(address):
        raise _refused(str(address), _remedy(_unwrap(address) or address))
    return address


def _remedy(address: Address) -> str:
    """The same whether the operator's deny list holds the address: that is not for tenants."""
    if _inside(address, table.METADATA):
        return f"give {table.EXAMPLE}"
    return table.LOOPBACK_REMEDY if address.is_loopback else table.ADDRESS_REMEDY


def _refused(host: str, remedy: str) -> UrlError:
    return UrlError(f"the target {host} is not allowed; {remedy}", policy=True)


def _check_name(host: str, policy: AddressPolicy) -> None:
    if policy.denies(host):
        raise _refused(host, f"give {table.EXAMPLE}")
    if host == "localhost" and policy.loopback():
        return
    check_name(host)
    if host == "localhost":
        raise _refused(host, table.LOOPBACK_REMEDY)
    if host.endswith(table.LOCAL_SUFFIXES) or host.startswith("metadata"):
        raise _refused(host, f"give {table.EXAMPLE}")
    if "." not in host:
        raise UrlError(f"the host {host!r} has no domain; give {table.EXAMPLE}")


def _check_second_opinion(text: str, scheme: str, host: str, port: int) -> None:
    """Another parser must see the same host, or what is checked is not what is dialled."""
    try:
        other = urllib3.util.parse_url(text)
    except (LocationParseError, ValueError) as error:
        raise UrlError("the URL is ambiguous; give https://host/path") from error
    seen = (other.host or "").lower().removesuffix(".")
    if host.startswith("["):
        same = seen.startswith("[") and _unwrap(seen[1:-1]) == _unwrap(host[1:-1])
    else:
        same = seen == host
    if (other.scheme, other.port or _default_port(scheme)) != (scheme, port) or not same:
        raise UrlError("the URL is ambiguous; give https://host/path")
