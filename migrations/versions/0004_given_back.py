"""A record of claims that were given back; finer ids on servers older than 18."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    """Add a column without a default (no table is rewritten) and replace the id function."""
    _run("0004_given_back.sql")
    if _old_server():
        _run("0004_ids_15.sql")


def downgrade() -> None:
    """Drop the column; ids are made as before."""
    _run("0004_down.sql")
    if _old_server():
        _run("0004_down_ids_15.sql")


def _old_server() -> bool:
    return int(op.get_bind().exec_driver_sql("SHOW server_version_num").scalar_one()) < 180000


def _run(name: str) -> None:
    op.get_bind().connection.driver_connection.execute(
        (SQL / name).read_text(encoding="utf-8"), prepare=False
    )
