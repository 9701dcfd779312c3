"""What libcurl ended with, as a class of error and a text."""

from __future__ import annotations

import pycurl

from webhooks.attempt import ErrorClass
from webhooks.transports.tls_faults import UNREADABLE_CA, describe

ERRORS = {
    pycurl.E_URL_MALFORMAT: ErrorClass.INVALID_URL,
    pycurl.E_COULDNT_RESOLVE_HOST: ErrorClass.DNS,
    pycurl.E_COULDNT_CONNECT: ErrorClass.CONNECT,
    pycurl.E_GOT_NOTHING: ErrorClass.CONNECT,
    pycurl.E_SEND_ERROR: ErrorClass.CONNECT,
    pycurl.E_RECV_ERROR: ErrorClass.CONNECT,
    pycurl.E_NO_CONNECTION_AVAILABLE: ErrorClass.CONNECT,
    pycurl.E_OPERATION_TIMEDOUT: ErrorClass.TIMEOUT,
    pycurl.E_SSL_CONNECT_ERROR: ErrorClass.TLS,
    pycurl.E_SSL_CERTPROBLEM: ErrorClass.TLS,
    pycurl.E_SSL_CIPHER: ErrorClass.TLS,
    pycurl.E_PEER_FAILED_VERIFICATION: ErrorClass.TLS,
    pycurl.E_SSL_CACERT_BADFILE: ErrorClass.TLS,
    pycurl.E_SSL_ISSUER_ERROR: ErrorClass.TLS,
    pycurl.E_SSL_INVALIDCERTSTATUS: ErrorClass.TLS,
}


def fault_of(code: int, text: str, host: str, *, own_ca: bool) -> tuple[ErrorClass, str]:
    """The class of libcurl's error ``code``, and its text or a plainer one."""
    kind = ERRORS.get(code, ErrorClass.PROTOCOL)
    if own_ca and code == pycurl.E_SSL_CACERT_BADFILE:
        return kind, UNREADABLE_CA
    text = text or f"libcurl ended with error {code}"
    return kind, describe(text, host) if kind is ErrorClass.TLS else text
