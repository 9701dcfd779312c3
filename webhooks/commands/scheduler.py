"""webhooks scheduler: the process that runs maintenance."""

from __future__ import annotations

import os

import click

from webhooks import logs
from webhooks import scheduler as jobs
from webhooks.settings import Settings, SettingsError


@click.command()
def scheduler() -> None:
    """Run the maintenance jobs until SIGTERM or Ctrl-C."""
    settings = Settings.from_env(os.environ)
    if not settings.database_url:
        raise SettingsError("DATABASE_URL is not set; give postgresql://user@host:port/database")
    logs.setup(settings.log_level)
    jobs.run(settings)
