"""Filters of subscriptions: which events of a type an endpoint wants, by what they say."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    """Add a column and a function, and replace accept."""
    _run("0012_filters.sql")


def downgrade() -> None:
    """Drop them: endpoints get all events of their types again."""
    _run("0012_down.sql")


def _run(name: str) -> None:
    op.get_bind().connection.driver_connection.execute(
        (SQL / name).read_text(encoding="utf-8"), prepare=False
    )
