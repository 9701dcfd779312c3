"""Looks for secrets in whatever the product puts out, in any form that a program gives them."""

from __future__ import annotations

import base64
import html
import json
from dataclasses import dataclass, field
from urllib.parse import quote

# Shorter pieces would be found by chance.
SHORTEST = 12


def forms(secret: bytes) -> dict[str, bytes]:
    """The same secret as it is, escaped, quoted, in hex, and in base64 beside other bytes."""
    text = secret.decode("utf-8", "backslashreplace")
    found = {
        "as it is": secret,
        "in JSON": json.dumps(text)[1:-1].encode(),
        "in HTML": html.escape(text).encode(),
        "in a repr": repr(secret)[2:-1].encode(),
        "hex": secret.hex().encode(),
        "HEX": secret.hex().upper().encode(),
        "URL, some quoted": quote(secret, safe="").encode(),
        "URL, all quoted": b"".join(b"%%%02X" % byte for byte in secret),
    }
    for before in range(3):  # bytes that precede it shift its base64
        whole = base64.b64encode(bytes(before) + secret)
        sure = whole[(0, 2, 3)[before] : -4]
        found[f"base64, {before} before"] = sure
        found[f"URL-safe base64, {before} before"] = sure.translate(bytes.maketrans(b"+/", b"-_"))
    return found


def decoded(text: str) -> bytes:
    """The key in a text such as ``whsec_…`` or ``k1:…``: what stands in base64 after the mark."""
    return base64.b64decode(text.replace(":", "_").rpartition("_")[2])


@dataclass
class Canaries:
    """Secrets by name, and where they were found."""

    _needles: dict[str, bytes] = field(default_factory=dict)

    def add(self, name: str, text: str, key: bytes = b"") -> None:
        """A secret as a text, and the bytes that the text stands for, if it does."""
        for secret, what in ((text.encode(), name), (key, f"{name}, decoded")):
            if len(secret) >= SHORTEST:
                self._needles |= {f"{what}, {form}": it for form, it in forms(secret).items()}

    def found(self, data: bytes) -> list[str]:
        """Names and forms of what is in there."""
        return [name for name, needle in self._needles.items() if needle in data]
