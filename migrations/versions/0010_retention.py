"""Days of events that are about to be dropped; payloads that are gone before their event."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    """Add a table, columns that may be null, and replace a trigger's function."""
    _run("0010_retention.sql")


def downgrade() -> None:
    """Drop them; events whose payload is gone already get an empty one."""
    _run("0010_down.sql")


def _run(name: str) -> None:
    op.get_bind().connection.driver_connection.execute(
        (SQL / name).read_text(encoding="utf-8"), prepare=False
    )
