"""How many deliveries go to one host at a time."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    """Add a column and a function, and fill in the hosts of the endpoints that there are."""
    _run("0006_destinations.sql")


def downgrade() -> None:
    """Drop both."""
    _run("0006_down.sql")


def _run(name: str) -> None:
    op.get_bind().connection.driver_connection.execute(
        (SQL / name).read_text(encoding="utf-8"), prepare=False
    )
