"""Payloads and bodies as text that is safe and easy to read, whatever is in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from markupsafe import Markup, escape

SHOWN_BYTES = 16_384
HEX_BYTES = 256
DEEPEST_INDENT = 40
NO_HTML = Markup()

OPENING, CLOSING = ("{", "["), ("}", "]")
PUNCTUATION = (*OPENING, *CLOSING, ",", ":")
WORDS = ("true", "false", "null")
LEXEME = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')

# What a terminal or a reader's eye could be fooled with is spelled out instead:
# control characters, and the marks that turn the direction of text.
VISIBLE = (
    {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n\r"}
    | {0x7F: "␡"}
    | {code: f"⟨U+{code:04X}⟩" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
)


@dataclass(frozen=True, slots=True)
class Body:
    """What a page shows of some bytes.

    ``kind`` is none (nothing recorded), empty, json, text or binary; ``size`` counts
    the bytes there are, of which ``shown`` may hold only the first; ``html`` is ``shown``
    with JSON laid out and coloured.
    """

    kind: str
    size: int = 0
    shown: str = ""
    html: Markup = NO_HTML
    cut: bool = False

    def plain(self) -> Body:
        """The same without layout and colours."""
        return replace(self, html=escape(self.shown))


def read(data: bytes | None, size: int | None = None) -> Body:
    """Present the first bytes of a body of ``size`` bytes (None: these are all)."""
    if data is None:
        return Body("none")
    if not data:
        return Body("empty")
    size = len(data) if size is None else size
    cut = len(data) < size
    text = _decode(data, cut=cut)
    if text is None:
        dump = _hex(data[:HEX_BYTES])
        return Body("binary", size, dump, escape(dump), size > HEX_BYTES)
    visible = text.translate(VISIBLE)
    if not cut and _is_json(text):
        return Body("json", size, visible, pretty(visible), cut)
    return Body("text", size, visible, escape(visible), cut)


def pretty(text: str) -> Markup:
    """Lay JSON out over lines; every key, number and string stays spelled as it is."""
    return Markup("").join(_lay_out(LEXEME.findall(text)))


def _decode(data: bytes, *, cut: bool) -> str | None:
    """The bytes as UTF-8 text, or None; a character cut in two at the end is left out."""
    for spare in range(4 if cut else 1):
        try:
            text = data[: len(data) - spare].decode()
        except UnicodeDecodeError:
            continue
        return None if "\0" in text else text
    return None


def _is_json(text: str) -> bool:
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        # Numbers stay text: a long one would be refused, though it is legal JSON.
        json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return True


def _lay_out(lexemes: list[str]) -> Iterator[Markup]:
    depth = 0
    for at, lexeme in enumerate(lexemes):
        before = lexemes[at - 1] if at else ""
        after = lexemes[at + 1] if at + 1 < len(lexemes) else ""
        if lexeme in CLOSING:
            depth -= 1
            if before not in OPENING:
                yield _new_line(depth)
        yield _coloured(lexeme, after)
        if lexeme in OPENING:
            depth += 1
        if lexeme == "," or (lexeme in OPENING and after not in CLOSING):
            yield _new_line(depth)
        elif lexeme == ":":
            yield escape(" ")


def _coloured(lexeme: str, after: str) -> Markup:
    if lexeme.startswith('"'):
        kind = "key" if after == ":" else "string"
    elif lexeme in PUNCTUATION:
        return escape(lexeme)
    else:
        kind = "word" if lexeme in WORDS else "number"
    return Markup('<span class="j-{}">{}</span>').format(kind, lexeme)


def _new_line(depth: int) -> Markup:
    return escape("\n" + "  " * min(depth, DEEPEST_INDENT))


def _hex(data: bytes) -> str:
    """Sixteen bytes a line: offset, hexadecimal, and what is printable ASCII."""
    lines = []
    for offset in range(0, len(data), 16):
        part = data[offset : offset + 16]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{offset:04x}  {part.hex(' '):<47}  {letters}")
    return "\n".join(lines)
