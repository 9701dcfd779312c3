"""The dashboard's pure parts: words for values, bodies as text, timelines, the sign-in limit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup

from webhooks.dashboard import bodies, formats
from webhooks.dashboard.timeline import phases
from webhooks.files import find

TEMPLATES = sorted(Path(find("templates")).glob("*.html"))


@pytest.mark.parametrize(
    ("seconds", "kind", "words"),
    [
        (-0.4, "relative", "now"),
        (0.4, "relative", "now"),
        (-59.9, "relative", "59 s ago"),
        (41, "relative", "in 41 s"),
        (-60, "relative", "1 min ago"),
        (-3600, "relative", "1 h ago"),
        (47 * 3600, "relative", "in 47 h"),
        (-48 * 3600, "relative", "2 d ago"),
        (-41, "age", "41 s"),
        (-0.2, "age", "0 s"),
    ],
)
def test_relative_times(seconds: float, kind: str, words: str) -> None:
    """Whole units, never rounded up: what is said has passed."""
    assert formats.relative(seconds, kind) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, "—"), (0.0, "0.0 ms"), (2.14, "2.1 ms"), (84.2, "84 ms"), (999.4, "999 ms"),
     (999.6, "1 s"), (20000.0, "20 s"), (29958.0, "30 s"), (1204.0, "1.2 s")],
)  # fmt: skip
def test_durations(value: float | None, words: str) -> None:
    """Three digits are enough to see what was slow."""
    assert formats.milliseconds(value) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [(None, "—"), (0, "0 B"), (999, "999 B"), (1200, "1.2 kB"), (262_144, "262.1 kB"),
     (999_999, "1.0 MB")],
)  # fmt: skip
def test_sizes(count: int | None, words: str) -> None:
    """Decimal units, as receivers' limits are given."""
    assert formats.size(count) == words


def test_a_count_at_its_cap_says_that_there_may_be_more() -> None:
    """Counting stops one above the cap, so the cap itself is exact."""
    assert formats.capped(1204) == "1,204"
    assert formats.capped(10_000) == "10,000"
    assert formats.capped(10_001) == "10,000+"


def test_json_is_laid_out_without_changing_a_token() -> None:
    """Key order, number spelling, duplicates and escapes stay as they came."""
    text = r'{"b":1.10,"a":[],"a":{},"big":50755254975729665,"s":"x\"{,}:\u0000","l":[true,null]}'

    html = str(bodies.pretty(text))

    plain = re.sub(r"<[^>]+>", "", html).replace("&#34;", '"')
    assert plain.splitlines()[:5] == [
        "{",
        '  "b": 1.10,',
        '  "a": [],',
        '  "a": {},',
        '  "big": 50755254975729665,',
    ]
    assert re.sub(r'\s+(?=(?:[^"\\]|\\.|"(?:[^"\\]|\\.)*")*$)', "", plain) == text


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (None, "none"),
        (b"", "empty"),
        (b'{"a": 1}', "json"),
        (b"[1, 2", "text"),
        (b"<h1>Bad gateway</h1>", "text"),
        (b"\x89PNG\r\n\x1a\n\0\0", "binary"),
        (b"abc\0def", "binary"),
        ("größe".encode("latin-1"), "binary"),
        (b"[" * 9000 + b"]" * 9000, "text"),
        (b'{"n": ' + b"9" * 9000 + b"}", "json"),
    ],
)
def test_any_bytes_have_a_readable_form(data: bytes | None, kind: str) -> None:
    """Nothing that a receiver answers breaks the page (W168)."""
    assert bodies.read(data).kind == kind


def test_a_text_cut_inside_a_character_stays_text() -> None:
    """The database cuts at bytes; half a character at the end is left out."""
    whole = "größe".encode()

    body = bodies.read(whole[:4], len(whole))

    assert (body.kind, body.shown, body.cut) == ("text", "grö", True)


def test_what_could_fool_the_eye_is_spelled_out() -> None:
    """Escape sequences and marks that turn text around are shown, not obeyed."""
    body = bodies.read("a\x1b[31m\u202eb\r\n".encode())

    assert body.shown == "a␛[31m⟨U+202E⟩b\r\n"


def test_bodies_are_escaped() -> None:
    """Markup in a body is text, laid out or not (W162)."""
    hostile = json.dumps({"<script>": "<img src=x onerror=alert(1)>"}).encode()

    for body in (bodies.read(hostile), bodies.read(hostile).plain(), bodies.read(b"<script>")):
        assert isinstance(body.html, Markup)
        assert "<script" not in body.html
        assert "<img" not in body.html


def attempt(**values: float | None) -> Any:
    columns = ("dns_ms", "connect_ms", "tls_ms", "first_byte_ms", "total_ms")
    return {column: values.get(column.removesuffix("_ms")) for column in columns}


def test_phases_split_the_time_that_the_columns_count_from_the_start() -> None:
    """Each column says when its phase ended; the bar shows how long each took."""
    found = phases(attempt(dns=10, connect=20, tls=50, first_byte=90, total=100))

    assert [(p.name, p.duration_ms, p.x, p.width) for p in found] == [
        ("DNS", 10, 0, 10),
        ("Connect", 10, 10, 10),
        ("TLS", 30, 20, 30),
        ("First byte", 40, 50, 40),
        ("Rest", 10, 90, 10),
    ]


def test_time_without_an_answer_was_waiting() -> None:
    """A time-out after the connection shows where its time went."""
    found = phases(attempt(dns=1, connect=2, total=20_000))

    assert [(p.kind, p.name, p.duration_ms) for p in found] == [
        ("dns", "DNS", 1),
        ("connect", "Connect", 1),
        ("wait", "Waiting", 19_998),
    ]


@pytest.mark.parametrize("values", [{}, {"total": 0}, {"dns": 3}])
def test_an_attempt_without_a_duration_has_no_bar(values: dict[str, float]) -> None:
    """A lost worker leaves no timings."""
    assert phases(attempt(**values)) == []


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_templates_hold_no_inline_code(template: Path) -> None:
    """The content security policy would block it: no style, no handler, no inline script."""
    text = template.read_text(encoding="utf-8")

    assert not re.search(r"\sstyle=|<style|\son[a-z]+=|javascript:", text)
    assert not re.search(r"<script(?![^>]*\ssrc=)", text)
    assert "|safe" not in text.replace(" ", "").replace(
        """'aria-current="page"'|safe""", ""
    ).replace("""'aria-current="true"'|safe""", "")
