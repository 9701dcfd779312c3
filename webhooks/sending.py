"""From a claim to a signed request, and from a response to an outcome."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate
from functools import lru_cache
from importlib.metadata import version
from uuid import UUID

from webhooks import custom_headers, ids, ownership, signing
from webhooks.attempt import ATTEMPT_HEADER, Claim, ErrorClass, Headers, Outcome, Target, Withheld
from webhooks.lanes import THROTTLED
from webhooks.secrets import Keyring, Place, SecretError, UnknownKeyError
from webhooks.settings import Settings
from webhooks.transports.base import Request, Response

USER_AGENT = f"Webhooks/{version('webhooks-platform')}"
KEPT_SIGNERS = 10_000
MOST_HEADERS = 50
LONGEST_HEADER = 1024
LONGEST_DETAIL = 500
LONGEST_RETRY_AFTER_S = 86_400.0

SECONDS = re.compile(r"[0-9]{1,10}", re.ASCII)
_CLOCK = r"[0-9]{2}:[0-9]{2}:[0-9]{2}"
# RFC 9110 section 5.6.7: the preferred form, RFC 850's and asctime's; all three mean UTC.
HTTP_DATE = re.compile(
    rf"[A-Z][a-z]{{2}}, [0-9]{{2}} [A-Z][a-z]{{2}} [0-9]{{4}} {_CLOCK} (?:GMT|UTC|[+-]0000)"
    rf"|[A-Z][a-z]{{5,8}}, [0-9]{{2}}-[A-Z][a-z]{{2}}-[0-9]{{2}} {_CLOCK} GMT"
    rf"|[A-Z][a-z]{{2}} [A-Z][a-z]{{2}} [ 0-9][0-9] {_CLOCK} [0-9]{{4}}",
    re.ASCII,
)

log = logging.getLogger(__name__)

StoredSecrets = tuple[tuple[UUID, str], ...]


class Sender:
    """Makes signed requests; keeps keys and headers of the endpoints used last decrypted."""

    def __init__(self, settings: Settings, keyring: Keyring) -> None:
        self._connect_timeout_s = settings.connect_timeout_s
        self._keyring = keyring
        self._issuer = settings.origin or signing.ISSUER
        self._origin = ownership.origin_headers(settings)
        self._signer = lru_cache(KEPT_SIGNERS)(self._make_signer)
        self._custom = lru_cache(KEPT_SIGNERS)(self._read_custom)

    def prepare(self, claim: Claim, now: Callable[[], float]) -> Request | Outcome:
        """The request to send, signed as of ``now()`` (Unix seconds).

        The outcome instead when there is nothing that could be sent, or not by this process.
        """
        target, payload = claim.target, claim.payload
        if target is None:
            return _unsendable("the endpoint does not exist any more")
        if payload is None:
            return _unsendable("the event's payload is not stored any more")
        if not 0 < target.timeout_s < math.inf:  # what a transport does with NaN is anybody's guess
            return _unsendable(f"the endpoint's timeout is {target.timeout_s} s", target.url)
        try:
            signer = self._signer(target.tenant_id, target.schemes, target.secrets)
        except (UnknownKeyError, signing.SchemeError) as error:
            return _withheld(error)
        except (SecretError, signing.SigningSecretError) as error:
            return _unsendable(f"the signing secret cannot be used: {error}", target.url)
        try:
            custom = self._custom(target.tenant_id, target.endpoint_id, target.headers)
        except UnknownKeyError as error:
            return _withheld(error)
        except ValueError as error:  # SecretError is one
            return _unsendable(f"the custom headers cannot be used: {error}", target.url)
        own = _headers(claim, target, signer, payload, int(now()))
        return Request(
            key=claim.delivery_id,
            url=target.url,
            headers=own + self._origin + custom,
            body=payload,
            connect_timeout_s=min(self._connect_timeout_s, target.timeout_s),
            timeout_s=target.timeout_s,
            ca_pem=target.ca_pem,
        )

    def _make_signer(
        self, tenant_id: UUID, schemes: tuple[str, ...], secrets: StoredSecrets
    ) -> signing.Signer:
        return signing.Signer(schemes, self._readable(tenant_id, secrets), self._issuer)

    def _readable(
        self, tenant_id: UUID, secrets: StoredSecrets
    ) -> list[tuple[str, signing.Secret]]:
        """The keys as a signer takes them. One that is damaged is left out if there are others."""
        keys, damaged = [], None
        for row_id, stored in secrets:
            try:
                secret = self._decrypt(tenant_id, row_id, stored)
            except UnknownKeyError:
                raise
            except (SecretError, signing.SigningSecretError) as error:
                log.error("a signing secret is left out: %s", error)
                damaged = error
            else:
                keys.append((ids.encode(ids.SECRET, row_id), secret))
        if damaged is not None and not keys:
            raise damaged
        return keys

    def _decrypt(self, tenant_id: UUID, row_id: UUID, stored: str) -> signing.Secret:
        place = Place("signing_secrets", tenant_id, row_id, "ciphertext")
        text = self._keyring.decrypt(place, stored).decode("utf-8", "replace")
        return signing.import_secret(text)

    def _read_custom(self, tenant_id: UUID, endpoint_id: UUID, stored: str | None) -> Headers:
        if stored is None:
            return ()
        place = Place("endpoints", tenant_id, endpoint_id, "headers")
        return custom_headers.load(self._keyring.decrypt(place, stored))


def outcome(response: Response, now: Callable[[], float] = time.time) -> Outcome:
    """What a response means for its delivery (``now()``: Unix seconds, for Retry-After dates)."""
    error, detail = _classify(response)
    return Outcome(
        error=error,
        detail=_clean(detail, LONGEST_DETAIL),
        status_code=response.status_code,
        retry_after_s=_retry_after(response, now),
        started=response.started,
        finished=response.finished,
        url=response.request.url,
        peer=response.peer,
        timings=response.timings,
        request_headers=custom_headers.recorded(response.request.headers),
        response_headers=_kept(response.headers),
        body=response.body,
        truncated=response.truncated,
    )


def parse_retry_after(text: str, now: float) -> float | None:
    """Seconds to wait, within [0, 86400]; None when it is neither seconds nor an HTTP date."""
    if SECONDS.fullmatch(text):
        return min(float(text), LONGEST_RETRY_AFTER_S)
    parsed = parsedate(text) if HTTP_DATE.fullmatch(text) else None
    if parsed is None:
        return None
    try:
        then = datetime(*parsed[:6], tzinfo=UTC).timestamp()
    except ValueError:  # such as the 30th of February
        return None
    return min(max(then - now, 0.0), LONGEST_RETRY_AFTER_S)


def _headers(
    claim: Claim, target: Target, signer: signing.Signer, payload: bytes, timestamp: int
) -> Headers:
    message_id = ids.encode(ids.EVENT, claim.event_id)
    message = signing.Message(message_id, timestamp, payload, target.url, claim.event_type)
    return (
        ("Content-Type", signing.CONTENT_TYPE),
        ("User-Agent", USER_AGENT),
        *signer.headers(message),
        ("webhook-event-type", claim.event_type),
        (ATTEMPT_HEADER, str(claim.attempt)),
    )


def _unsendable(detail: str, url: str = "") -> Outcome:
    now = time.monotonic()
    return Outcome(ErrorClass.INTERNAL, detail=detail, started=now, finished=now, url=url)


def _withheld(error: UnknownKeyError | signing.SchemeError) -> Withheld:
    now = time.monotonic()
    return Withheld(ErrorClass.INTERNAL, detail=str(error), started=now, finished=now)


def _classify(response: Response) -> tuple[ErrorClass | None, str]:
    status, note = response.status_code, response.detail
    if response.error is not None or status is None:
        return response.error or ErrorClass.PROTOCOL, note
    if 200 <= status <= 299:
        return None, note
    if status < 400:
        location = _header(response.headers, "location")
        where = f" to {location}" if location else ""
        return ErrorClass.REDIRECT, f"status {status}: a redirect{where}, which is not followed"
    kind = ErrorClass.HTTP_4XX if status < 500 else ErrorClass.HTTP_5XX
    return kind, f"status {status}; {note}" if note else f"status {status}"


def _retry_after(response: Response, now: Callable[[], float]) -> float | None:
    if response.status_code not in THROTTLED:
        return None
    text = _header(response.headers, "retry-after")
    return None if text is None else parse_retry_after(text, now())


def _header(headers: Headers, name: str) -> str | None:
    return next((value for key, value in headers if key.lower() == name), None)


def _kept(headers: Headers) -> Headers:
    return tuple([_kept_one(name, value) for name, value in headers[:MOST_HEADERS]])


def _kept_one(name: str, value: str) -> tuple[str, str]:
    # Most headers are neither long nor odd.
    if len(name) + len(value) <= LONGEST_HEADER and "\0" not in value and "\0" not in name:
        return name, value
    return _clean(name, LONGEST_HEADER), _clean(value, max(0, LONGEST_HEADER - len(name)))


def _clean(text: str, longest: int) -> str:
    """Cut to length, and without NUL, which PostgreSQL takes in no text."""
    return text[:longest].replace("\0", "\N{REPLACEMENT CHARACTER}")
