"""How an API key is written: ``whk_live_`` + public id + ``_`` + secret + checksum. Pure.

The secret is 32 random bytes; the checksum (CRC-32 of all that stands before it) lets a
secret scanner tell a key from other text without asking us.
"""

from __future__ import annotations

import re
import secrets
import string
import zlib

PREFIX = "whk_live_"
BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
PUBLIC_ID_LENGTH = 8
SECRET_BYTES = 32
SECRET_LENGTH = 43  # 62 ** 43 > 256 ** 32
CHECKSUM_LENGTH = 6  # 62 ** 6 > 2 ** 32

_FORM = re.compile(
    rf"{PREFIX}([0-9A-Za-z]{{{PUBLIC_ID_LENGTH}}})_"
    rf"[0-9A-Za-z]{{{SECRET_LENGTH}}}([0-9A-Za-z]{{{CHECKSUM_LENGTH}}})"
)


def generate() -> tuple[str, str]:
    """A new key: its public id and its whole text."""
    public_id = "".join(secrets.choice(BASE62) for _ in range(PUBLIC_ID_LENGTH))
    body = f"{PREFIX}{public_id}_{_base62(secrets.randbits(SECRET_BYTES * 8), SECRET_LENGTH)}"
    return public_id, body + checksum(body)


def public_id_of(text: str) -> str | None:
    """The public id in a key, or None when the text has not the form or the checksum of one."""
    form = _FORM.fullmatch(text)
    if form is None or form[2] != checksum(text[:-CHECKSUM_LENGTH]):
        return None
    return form[1]


def checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), CHECKSUM_LENGTH)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(BASE62[digit])
    return "".join(reversed(digits))
