"""Signing schemes, own headers and CAs of an endpoint; kinds of signing secrets."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    """Add columns with constant defaults: no table is rewritten."""
    _run("0005_signing.sql")


def downgrade() -> None:
    """Drop the columns; an endpoint's own headers are lost."""
    _run("0005_down.sql")


def _run(name: str) -> None:
    op.get_bind().connection.driver_connection.execute(
        (SQL / name).read_text(encoding="utf-8"), prepare=False
    )
