"""The whole first schema: configuration, queue, history, and webhooks.emit."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    """Create every table and function of the schema ``webhooks``."""
    server = op.get_bind().exec_driver_sql("SHOW server_version_num").scalar_one()
    ids = "ids_18.sql" if int(server) >= 180000 else "ids_15.sql"
    for name in (ids, "0001_configuration.sql", "0001_queue.sql", "0001_emit.sql"):
        # A bare execute: the files hold percent signs and many statements.
        op.get_bind().connection.driver_connection.execute(
            (SQL / name).read_text(encoding="utf-8"), prepare=False
        )


def downgrade() -> None:
    """Remove all of it; alembic's own table stays, and so does the schema."""
    op.get_bind().connection.driver_connection.execute(
        (SQL / "0001_down.sql").read_text(encoding="utf-8"), prepare=False
    )
