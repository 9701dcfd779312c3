"""create_app: the web process, wired from its parts."""

from __future__ import annotations

import os
from typing import Any

from flask import Flask
from flask_migrate import Migrate

from webhooks.db import sqlalchemy_url
from webhooks.files import find
from webhooks.models import db
from webhooks.settings import Settings, SettingsError


def create_app(settings: Settings | None = None) -> Flask:
    """Build the web application; SettingsError when a needed setting is missing."""
    settings = settings or Settings.from_env(os.environ)
    if not settings.database_url:
        raise SettingsError("DATABASE_URL is not set; give postgresql://user@host:port/database")
    app = Flask(
        "webhooks",
        template_folder=str(find("templates")),
        static_folder=str(find("static")),
    )
    app.config.update(_config(settings))
    app.extensions["webhooks_settings"] = settings
    db.init_app(app)
    Migrate(app, db, directory=str(find("migrations")))
    return app


def _config(settings: Settings) -> dict[str, Any]:
    return {
        "SQLALCHEMY_DATABASE_URI": sqlalchemy_url(settings.database_url),
        "SQLALCHEMY_ENGINE_OPTIONS": {
            "pool_pre_ping": True,
            "connect_args": {"prepare_threshold": None, "connect_timeout": 5},
        },
    }
