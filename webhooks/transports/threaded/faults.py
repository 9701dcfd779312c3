"""What requests raises, as a class of error and a text."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import requests
import urllib3

from webhooks.attempt import ErrorClass
from webhooks.transports.threaded.attempt import Attempt
from webhooks.transports.threaded.response import HeadFault
from webhooks.transports.threaded.tls import UnreadableCa
from webhooks.transports.tls_faults import describe

Fault = tuple[ErrorClass, str]
TIMED_OUT: Fault = (ErrorClass.TIMEOUT, "the attempt ran out of time")


def fault_of(error: BaseException, attempt: Attempt) -> Fault:
    """The class of what requests raised, by its innermost cause."""
    if isinstance(error, UnreadableCa):
        return ErrorClass.TLS, str(error)
    for cause in _causes(error):
        if isinstance(cause, HeadFault):
            return ErrorClass.PROTOCOL, str(cause)
        if isinstance(cause, TimeoutError | urllib3.exceptions.TimeoutError):
            if not isinstance(cause, urllib3.exceptions.NewConnectionError):
                return TIMED_OUT
        elif isinstance(cause, ssl.SSLError | urllib3.exceptions.SSLError):
            return ErrorClass.TLS, describe(str(cause), attempt.url.host)
        elif isinstance(cause, OSError) and not isinstance(cause, requests.RequestException):
            secure = attempt.handshaking and attempt.connected_at is not None
            why = cause.strerror or str(cause)
            if secure:
                return ErrorClass.TLS, describe(why, attempt.url.host)
            return ErrorClass.CONNECT, why
    return ErrorClass.PROTOCOL, str(error)


def reason_of(error: BaseException) -> str:
    """The text of what lies behind an error: urllib3's own show objects."""
    return str(next(_causes(error)))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it was raised for, the innermost first."""
    inner = [*error.args, getattr(error, "reason", None), error.__cause__ or error.__context__]
    for each in inner:
        if isinstance(each, BaseException):
            yield from _causes(each)
    yield error
