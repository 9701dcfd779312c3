"""How alembic reaches the database: the app's engine, one migrator at a time."""

from alembic import context
from flask import current_app
from sqlalchemy import text

database = current_app.extensions["migrate"].db

with database.engine.connect() as connection:
    # Two pods that migrate at once: the second waits, then finds nothing to do.
    connection.execute(text("SELECT pg_advisory_lock(hashtextextended('webhooks.migrate', 0))"))
    connection.execute(text("CREATE SCHEMA IF NOT EXISTS webhooks"))
    connection.commit()
    context.configure(
        connection=connection,
        target_metadata=database.metadata,
        version_table_schema="webhooks",
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()
    connection.execute(text("SELECT pg_advisory_unlock_all()"))
    connection.commit()
