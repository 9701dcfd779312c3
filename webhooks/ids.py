"""Public ids: a UUIDv7 with its kind in front, as TypeID writes it.

Source: https://github.com/jetify-com/typeid (spec 0.3): prefix, underscore, and
the 128 bits in 26 lower-case Crockford base32 digits, most significant first.
"""

from __future__ import annotations

from uuid import UUID

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
# Ten bits at a time: half of the steps.
PAIRS = [first + second for first in ALPHABET for second in ALPHABET]
VALUES = {digit: value for value, digit in enumerate(ALPHABET)}
LENGTH = 26

EVENT = "evt"
DELIVERY = "dlv"
ENDPOINT = "ep"
TENANT = "ten"
API_KEY = "key"
REPLAY = "rpl"
EVENT_TYPE = "typ"
SUBSCRIPTION = "sub"
FAILURE_GROUP = "fgr"
SECRET = "sec"  # noqa: S105 - a kind of object


def encode(kind: str, value: UUID) -> str:
    """Write ``value`` as a public id, for example ``evt_01k…`` (kind + 27 characters)."""
    number = value.int
    digits = [PAIRS[(number >> shift) & 1023] for shift in range(120, -1, -10)]
    return f"{kind}_{''.join(digits)}"


def decode(kind: str, text: str) -> UUID:
    """Read a public id of the given kind; ValueError says what is wrong with it."""
    prefix, _, digits = text.rpartition("_")
    if prefix != kind:
        raise ValueError(f"{text[:60]!r} is not an id that starts with {kind}_")
    if len(digits) != LENGTH or digits[0] > "7" or not VALUES.keys() >= set(digits):
        raise ValueError(f"{text[:60]!r} is not {kind}_ and {LENGTH} characters of base32")
    number = 0
    for digit in digits:
        number = number << 5 | VALUES[digit]
    return UUID(int=number)
