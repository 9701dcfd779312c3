"""Diagnosis: why a request does not verify, step by step, for a person."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping

from webhooks.signing.keys import PREFIX
from webhooks.signing.standard import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER
from webhooks.signing.verification import TOLERANCE_S, SignatureError, Step, verify

FOREVER_S = 10**13
SVIX = {
    "svix-id": ID_HEADER,
    "svix-timestamp": TIMESTAMP_HEADER,
    "svix-signature": SIGNATURE_HEADER,
}


def diagnose(
    secret: str, headers: Mapping[str, str], body: bytes, now: int, tolerance_s: int = TOLERANCE_S
) -> list[tuple[Step, str | None]]:
    """The steps in their order, each with what is wrong or None; ends at the first wrong one,
    but a timestamp that is too old does not hide what the signature says.

    Takes the names of Svix's headers too. Never raises.
    """
    named = {SVIX.get(name.lower(), name): value for name, value in headers.items()}
    steps: list[tuple[Step, str | None]] = []
    wrong = _failure(secret, named, body, now, tolerance_s)
    for step in Step:
        if wrong is None or wrong.step is not step:
            steps.append((step, None))
            continue
        reason = wrong.reason
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


def _hint(secret: str, headers: Mapping[str, str], body: bytes, now: int) -> str | None:
    """What would verify instead: another form of the body, or of the secret."""
    for what, other in _rewritten(body):
        if _failure(secret, headers, other, now, FOREVER_S) is None:
            return f"the body was changed on its way: {what}. Verify the raw bytes of the request"
    as_text = PREFIX + base64.b64encode(secret.encode("utf-8", "replace")[:64]).decode()
    if _failure(as_text, headers, body, now, FOREVER_S) is None:
        return f"it was signed with the secret's text as the key; decode what follows {PREFIX}"
    return None


def _rewritten(body: bytes) -> Iterator[tuple[str, bytes]]:
    yield "a line feed at its end was lost", body + b"\n"
    yield "a line feed was added at its end", body.removesuffix(b"\n")
    yield "a line feed was added at its end", body.removesuffix(b"\r\n")
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
