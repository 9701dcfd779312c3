"""Scopes, limits and kept answers of API keys."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    """Add columns with constant defaults: no table is rewritten."""
    _run("0007_keys.sql")


def downgrade() -> None:
    """Drop them: every key that has not been revoked may do all again."""
    _run("0007_down.sql")


def _run(name: str) -> None:
    op.get_bind().connection.driver_connection.execute(
        (SQL / name).read_text(encoding="utf-8"), prepare=False
    )
