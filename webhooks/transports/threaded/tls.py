"""Whom connections trust: the usual authorities, or an endpoint's own instead of them."""

from __future__ import annotations

import ssl
import threading
from functools import lru_cache

import certifi

MOST_OWN = 128


class UnreadableCa(OSError):
    """What an endpoint gave as its own CA holds no certificate."""


class Trust:
    """TLS contexts: one for all endpoints without a CA of their own, one for each such CA.

    Connections are told apart by their context, so none is shared between different CAs.
    """

    def __init__(self, ca_file: str | None) -> None:
        self._usual = _context()
        self._usual.load_verify_locations(ca_file or certifi.where())
        self._own = lru_cache(MOST_OWN)(_own)
        self._lock = threading.Lock()

    def context(self, ca_pem: str | None) -> ssl.SSLContext:
        """For an endpoint's CA (PEM). UnreadableCa when there is none in it."""
        if ca_pem is None:
            return self._usual
        # One thread makes it, or each of several would have a context to itself.
        with self._lock:
            return self._own(ca_pem)


def _context() -> ssl.SSLContext:
    """Certificates and names verified, TLS 1.2 at least."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # As libcurl: what is trusted ends the chain, though somebody else has signed it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _own(ca_pem: str) -> ssl.SSLContext:
    context = _context()
    try:
        context.load_verify_locations(cadata=ca_pem)
    except (ssl.SSLError, TypeError, ValueError) as error:
        raise UnreadableCa("TLS: the endpoint's own CA cannot be read") from error
    return context
