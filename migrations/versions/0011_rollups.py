"""Counts of attempts by minute, hour and day; failures alike in one group."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    """Add two tables and a function."""
    _run("0011_rollups.sql")


def downgrade() -> None:
    """Drop them with what was counted."""
    _run("0011_down.sql")


def _run(name: str) -> None:
    op.get_bind().connection.driver_connection.execute(
        (SQL / name).read_text(encoding="utf-8"), prepare=False
    )
