"""Diagnosis: why a request does not verify, step by step, for a person."""

from __future__ import annotations

import base64
import hashlib
import json
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping

from webhooks.signing.keys import MOST_KEY_BYTES, PREFIX, PUBLIC_PREFIX
from webhooks.signing.standard import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER
from webhooks.signing.verification import TOLERANCE_S, SignatureError, Step, verify

FOREVER_S = 10**13
SVIX = {
    "svix-id": ID_HEADER,
    "svix-timestamp": TIMESTAMP_HEADER,
    "svix-signature": SIGNATURE_HEADER,
}
OTHERS = {
    "x-hub-signature-256": "GitHub",
    "stripe-signature": "Stripe",
    "x-shopify-hmac-sha256": "Shopify",
    "x-slack-signature": "Slack",
    "signature-input": "RFC 9421",
    "webhook-jwt": "a JSON Web Token",
}


def diagnose(
    secret: str, headers: Mapping[str, str], body: bytes, now: int, tolerance_s: int = TOLERANCE_S
) -> list[tuple[Step, str | None]]:
    """The steps in their order, each with what is wrong or None; ends at the first wrong one,
    but a timestamp that is too old does not hide what the signature says.

    Takes the names of Svix's headers too. Never raises.
    """
    names = {name.lower() for name in headers}
    named = {
        name if SVIX.get(name.lower()) in names else SVIX.get(name.lower(), name): value
        for name, value in headers.items()
    }
    steps: list[tuple[Step, str | None]] = []
    wrong = _failure(secret, named, body, now, tolerance_s)
    for step in Step:
        if wrong is None or wrong.step is not step:
            steps.append((step, None))
            continue
        reason = wrong.reason
        if step is Step.HEADERS:
            reason += _other_scheme(named)
        if step is Step.SIGNATURE:
            reason = _hint(secret, named, body, now) or reason
        steps.append((step, reason))
        if step is not Step.TIMESTAMP:
            break
        wrong = _failure(secret, named, body, now, FOREVER_S)
    return steps


def _failure(
    secret: str, headers: Mapping[str, str], body: bytes, now: int, tolerance_s: int
) -> SignatureError | None:
    try:
        verify([secret], headers, body, now, tolerance_s)
    except SignatureError as error:
        return error
    return None


def _other_scheme(headers: Mapping[str, str]) -> str:
    forms = [form for name, form in OTHERS.items() if _value(headers, name)]
    return f"; the request is signed in the form of {' and '.join(forms)}" if forms else ""


def _hint(secret: str, headers: Mapping[str, str], body: bytes, now: int) -> str | None:
    """What would verify instead: another form of the body, or of the secret."""
    for what, other in _rewritten(body):
        if _failure(secret, headers, other, now, FOREVER_S) is None:
            return f"the body was changed on its way: {what}. Verify the raw bytes of the request"
    if _failure(_as_text(secret), headers, body, now, FOREVER_S) is None:
        return f"it was signed with the secret's text as the key; decode what follows {PREFIX}"
    return _other_version(secret, headers)


def _as_text(secret: str) -> str:
    """The secret whose bytes are this one's text. HMAC hashes a key of more than 64 bytes."""
    key = secret.encode("utf-8", "replace")
    if len(key) > MOST_KEY_BYTES:
        key = hashlib.sha256(key).digest()
    return PREFIX + base64.b64encode(key).decode()


def _other_version(secret: str, headers: Mapping[str, str]) -> str | None:
    wanted, needed = ("v1a", "v1") if secret.startswith(PUBLIC_PREFIX) else ("v1", "v1a")
    given = {part.partition(",")[0] for part in _value(headers, SIGNATURE_HEADER).split(" ")}
    if wanted in given or needed not in given:
        return None
    other = PREFIX if needed == "v1" else PUBLIC_PREFIX
    return f"it holds {needed} signatures alone; verify with the {other}… of the endpoint"


def _value(headers: Mapping[str, str], name: str) -> str:
    return next((value for key, value in headers.items() if key.lower() == name), "")


def _rewritten(body: bytes) -> Iterator[tuple[str, bytes]]:
    yield "a line feed at its end was lost", body + b"\n"
    yield "blanks or line ends were added at its end", body.rstrip()
    yield "a byte order mark was put before it", body.removeprefix(BOM_UTF8)
    yield "its line ends became CRLF", body.replace(b"\r\n", b"\n")
    yield "its line ends were CRLF and became LF", body.replace(b"\n", b"\r\n")
    try:
        value = json.loads(body)
    except ValueError:  # UnicodeDecodeError is one
        return
    except RecursionError:
        return
    for sort in (False, True):
        for what, write in _FORMS:
            try:
                yield f"it was parsed and written again ({what})", write(value, sort)
            except (ValueError, RecursionError):
                continue


def _form(separators: tuple[str, str], *, ascii_only: bool) -> Callable[[object, bool], bytes]:
    return lambda value, sort: json.dumps(
        value, separators=separators, ensure_ascii=ascii_only, sort_keys=sort
    ).encode()


_FORMS = [
    (
        f"{words}, {'escaped' if ascii_only else 'in UTF-8'}",
        _form(separators, ascii_only=ascii_only),
    )
    for words, separators in (("without blanks", (",", ":")), ("with blanks", (", ", ": ")))
    for ascii_only in (False, True)
]
