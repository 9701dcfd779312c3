"""Rows as a table in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click


def show(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def moment(at: datetime | None) -> str:
    """A time to the second in UTC, or a dash."""
    return f"{at:%Y-%m-%d %H:%M:%SZ}" if at else "-"
