"""What went wrong with TLS, in one plain sentence, whichever library says it.

Both transports end at OpenSSL, whose phrases (``crypto/x509/x509_txt.c``, ``ssl/ssl_err.c``)
libcurl and Python's ``ssl`` wrap each in its own way. A TLS library with other phrases
keeps its own text.
"""

from __future__ import annotations

UNREADABLE_CA = "TLS: the endpoint's own CA cannot be read"

_NO_TLS = "what answers at that port does not speak TLS"
_CLOSED = "the connection ended during the handshake"
_UNKNOWN = (
    "the certificate's issuer is not known: its authority is not trusted, "
    "or the server does not send an intermediate certificate"
)
_NO_COMMON = "nothing in common with the server: it must offer TLS 1.2 or newer"
_WRONG_NAME = "the certificate is for another name than {host}"

# The first phrase that is found decides.
_PHRASES = (
    ("certificate has expired", "the certificate has expired"),
    ("certificate is not yet valid", "the certificate is not valid yet"),
    ("self-signed certificate in certificate chain", "the certificate's authority is not trusted"),
    ("self-signed certificate", "the certificate is self-signed and not trusted"),
    ("unable to get local issuer certificate", _UNKNOWN),
    ("unable to get issuer certificate", _UNKNOWN),
    ("unable to verify the first certificate", _UNKNOWN),
    ("certificate revoked", "the certificate has been revoked"),
    ("key too small", "the certificate's key is too weak"),
    ("key too weak", "the certificate's key is too weak"),
    ("md too weak", "the certificate's signature is too weak"),
    ("hostname mismatch", _WRONG_NAME),
    ("ip address mismatch", _WRONG_NAME),
    ("no alternative certificate subject name", _WRONG_NAME),
    ("does not match target", _WRONG_NAME),
    ("protocol version", _NO_COMMON),
    ("unsupported protocol", _NO_COMMON),
    ("handshake failure", _NO_COMMON),
    ("no shared cipher", _NO_COMMON),
    ("certificate required", "the server asks for a client certificate"),
    ("bad certificate", "the server asks for a client certificate"),
    ("wrong version number", _NO_TLS),
    ("http request", _NO_TLS),
    ("packet length too long", _NO_TLS),
    ("record layer failure", _NO_TLS),
    ("reset by peer", _CLOSED),
    ("unexpected eof", _CLOSED),
    ("eof occurred", _CLOSED),
    ("ssl_error_syscall", _CLOSED),
    ("broken pipe", _CLOSED),
)


def describe(text: str, host: str) -> str:
    """A library's text on a failed handshake with ``host``, as "TLS: " and the fault's name."""
    lowered = text.lower()
    for phrase, plain in _PHRASES:
        if phrase in lowered:
            return f"TLS: {plain.format(host=host)}"
    return text if text.startswith("TLS: ") else f"TLS: {text}"
