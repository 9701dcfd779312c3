"""The web process under gunicorn: ``gunicorn --config python:webhooks.web 'webhooks.web:app()'``.

Also gunicorn's configuration for it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from webhooks import logs
from webhooks.db import DatabaseTooOld
from webhooks.keyring_check import check_keyring
from webhooks.schema_check import SchemaError, check_revision
from webhooks.secrets import Keyring, KeyringError
from webhooks.settings import Settings, SettingsError

if TYPE_CHECKING:
    from flask import Flask

worker_class = "gthread"
# Twice as many as the fastest empty handler wants: those that wait for a commit share it.
threads = 16
control_socket_disable = True


def on_starting(server: Any) -> None:
    """Refuse wrong settings, and a schema of another version, before a fork."""
    check_settings()


def check_settings() -> None:
    """End the process with one line that names what is missing or wrong."""
    logs.setup("info")
    try:
        settings = Settings.from_env(os.environ)
        if not settings.database_url:
            raise SettingsError("DATABASE_URL is not set; give postgresql://user@host/database")
        check_revision(settings.database_url)
        check_keyring(settings.database_url, Keyring.parse(settings.keyring))
    except (SettingsError, KeyringError, SchemaError, DatabaseTooOld) as error:
        raise SystemExit(f"webhooks: {error}") from None


def app() -> Flask:
    """The application, with logging set up as in every process."""
    from webhooks.addresses import AddressPolicy
    from webhooks.app import create_app
    from webhooks.prover import Prover
    from webhooks.resolver import Resolver

    settings = Settings.from_env(os.environ)
    logs.setup(settings.log_level)
    made = create_app(settings)
    # Here, as the application itself never sends, nor asks a name server.
    made.extensions["webhooks_resolver"] = Resolver(AddressPolicy.from_settings(settings))
    made.extensions["webhooks_prover"] = Prover(settings, made.extensions["webhooks_keyring"])
    return made
