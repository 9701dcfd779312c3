"""Retry policy of a tenant, rate limit of an endpoint, breaker and evidence of a lane."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    """Add columns, each with a constant default or none: no table is rewritten."""
    _run("0002_policy.sql")


def downgrade() -> None:
    """Drop them again."""
    _run("0002_down.sql")


def _run(name: str) -> None:
    op.get_bind().connection.driver_connection.execute(
        (SQL / name).read_text(encoding="utf-8"), prepare=False
    )
