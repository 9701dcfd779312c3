"""How alembic reaches the database: the app's engine, one migrator at a time."""

from alembic import context
from flask import current_app
from sqlalchemy import text

database = current_app.extensions["migrate"].db

# One transaction for lock and migrations: a session's lock would stay behind on another
# connection of a pooler in transaction mode.
with database.engine.begin() as connection:
    # Two pods that migrate at once: the second waits, then finds nothing to do.
    connection.execute(
        text("SELECT pg_advisory_xact_lock(hashtextextended('webhooks.migrate', 0))")
    )
    # Behind a lock that waits, everybody waits: rather give up, and try again.
    connection.execute(text("SET LOCAL lock_timeout = '3s'"))
    connection.execute(text("CREATE SCHEMA IF NOT EXISTS webhooks"))
    context.configure(
        connection=connection,
        target_metadata=database.metadata,
        version_table_schema="webhooks",
    )
    with context.begin_transaction():
        context.run_migrations()
