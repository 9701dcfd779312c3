"""Secrets and what is made from them are compared in constant time, everywhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "webhooks"
SECRET = re.compile(r"(signature|secret|digest|token|hmac|mac|password|challenge)(_hash)?", re.I)
ALLOWED = {
    # A word about a signature, not the signature.
    "received.signature == 'invalid'",
    # Look-ups by the SHA-256 of a random token: what their time tells is of no use.
    "Session.token_hash == _token_hash(token)",
    "Session.token_hash == session.token_hash",
}


def comparisons(source: str) -> Iterator[str]:
    """Those by == or != with a secret on a side, as it is called there."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Eq | ast.NotEq):
            continue
        if any(SECRET.fullmatch(name(side)) for side in (node.left, *node.comparators)):
            yield ast.unparse(node)


def name(side: ast.expr) -> str:
    """The last word of ``a.digest``, ``digest`` or ``digest()``."""
    if isinstance(side, ast.Call):
        return name(side.func)
    words = {ast.Name: "id", ast.Attribute: "attr"}
    return str(getattr(side, words.get(type(side), ""), "")).lstrip("_")


def test_no_secret_is_compared_by_equality() -> None:
    """A comparison that ends at the first difference tells how much was right (row 38)."""
    found = {
        f"{path.relative_to(PACKAGE)}: {text}"
        for path in PACKAGE.rglob("*.py")
        for text in comparisons(path.read_text(encoding="utf-8"))
        if text not in ALLOWED
    }

    assert found == set()


def test_the_search_finds_such_comparisons() -> None:
    """So that the test above can fail."""
    planted = ["signature == given", "entry.digest != other", "x == _mac(k)", "a == row.token_hash"]
    for text in planted:
        assert list(comparisons(f"if {text}: pass")) == [text]
    assert list(comparisons("secret_id == other.id")) == []
