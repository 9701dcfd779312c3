"""A Flask app with the database and nothing else: for the command line and `up`.

Needs no keyring and loads no page, so that it opens at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flask import Flask

from webhooks.db import connect, sqlalchemy_url
from webhooks.models import db
from webhooks.web_database import ENGINE_OPTIONS


@contextmanager
def open_app(database_url: str, name: str) -> Iterator[Flask]:
    """Enter the app's context; ``name`` is what pg_stat_activity shows.

    Raises psycopg.OperationalError when the server is away, DatabaseTooOld when it is
    older than PostgreSQL 15.
    """
    connect(database_url, name).close()
    app = Flask("webhooks")
    arguments = {**ENGINE_OPTIONS["connect_args"], "application_name": f"webhooks {name}"}
    app.config["SQLALCHEMY_DATABASE_URI"] = sqlalchemy_url(database_url)
    app.config["SQLALCHEMY_ENGINE_OPTIONS"] = {**ENGINE_OPTIONS, "connect_args": arguments}
    db.init_app(app)
    with app.app_context():
        try:
            yield app
        finally:
            db.session.remove()
            db.engine.dispose()
