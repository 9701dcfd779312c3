"""Hosts as they are written in URLs: names and addresses, and what is neither.

Odd spellings are refused, not repaired: another program might read them differently.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address

import idna

from webhooks import address_table as table

LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)


class UrlError(ValueError):
    """A URL is refused; the text gives the reason and the remedy.

    ``policy``: the operator's settings refuse it; it is not wrong in itself.
    """

    def __init__(self, message: str, *, policy: bool = False) -> None:
        super().__init__(message)
        self.policy = policy


def encode(written: str) -> str:
    """Lower case, without a final dot, in ASCII (IDNA 2008)."""
    if "%" in written:
        raise UrlError(f"the host {written[:80]!r} is percent-encoded; give {table.EXAMPLE}")
    host = written.lower().removesuffix(".")
    if host.isascii():
        return host
    try:
        return idna.encode(host, uts46=False).decode("ascii")
    except (idna.IDNAError, UnicodeError) as error:
        raise UrlError(f"{written[:80]!r} is not a valid international name ({error})") from error


def ends_in_number(host: str) -> bool:
    """Whether a resolver would read the host as an IPv4 address, in some spelling or other."""
    return NUMBER.fullmatch(host.rpartition(".")[2]) is not None


def check_name(host: str) -> None:
    """UrlError unless its labels are letters, digits and hyphens, and not too long."""
    if len(host) > table.LONGEST_HOST or not all(map(LABEL.fullmatch, host.split("."))):
        raise UrlError(
            f"the host {host[:80]!r} is not a valid name: give labels of 1 to 63 letters, "
            f"digits and hyphens, {table.LONGEST_HOST} characters in all"
        )


def read_v6(text: str) -> IPv6Address:
    try:
        address = IPv6Address(text)
    except ValueError as error:
        raise UrlError(f"the host [{text[:80]}] is no IPv6 address; give one, or a name") from error
    if address.scope_id:
        raise UrlError(f"the host [{text[:80]}] has a zone; give the IPv6 address without it")
    return address


def read_v4(host: str, written: str) -> IPv4Address:
    """Only the usual four decimal numbers: 127.1, 0x7f.1 and 2130706433 would be dialled too."""
    try:
        address = IPv4Address(host)
    except ValueError:
        address = None
    if address is None or not written.isascii():
        raise UrlError(f"the host {written[:80]!r} ends in a number; give {table.EXAMPLE}")
    return address
