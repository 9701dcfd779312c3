"""Schemas of event types; tenants that take only the types they know."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    """Add columns, a table of one row, and replace a function."""
    _run("0008_event_types.sql")


def downgrade() -> None:
    """Drop them; schemas are lost."""
    _run("0008_down.sql")


def _run(name: str) -> None:
    op.get_bind().connection.driver_connection.execute(
        (SQL / name).read_text(encoding="utf-8"), prepare=False
    )
