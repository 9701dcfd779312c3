"""Large fan-outs expanded by the workers; an emit that costs less."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    """Make the table of open fan-outs anew (it was never used) and replace the functions."""
    _run("0003_fanout.sql")
    if _new_server():
        _run("0003_ids_18.sql")


def downgrade() -> None:
    """Expand what is open, and go back to an emit that expands everything itself."""
    _run("0003_down.sql")
    if _new_server():
        _run("0003_down_ids_18.sql")


def _new_server() -> bool:
    return int(op.get_bind().exec_driver_sql("SHOW server_version_num").scalar_one()) >= 180000


def _run(name: str) -> None:
    op.get_bind().connection.driver_connection.execute(
        (SQL / name).read_text(encoding="utf-8"), prepare=False
    )
