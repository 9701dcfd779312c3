"""Which installation a command works on: DATABASE_URL's, or the one in a data directory."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import click

from webhooks import datadir, embedded
from webhooks.settings import Settings

data_dir_option = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where `webhooks up` keeps its data.",
)


def find(data_dir: Path | None) -> Settings:
    """Settings with the URL of the database that DATABASE_URL names, or that `up` runs.

    Raises SettingsError, or EmbeddedError when no server runs in the directory.
    """
    settings = Settings.from_env(os.environ)
    if settings.database_url:
        return settings
    folder = folder_of(settings, data_dir)
    return replace(settings, database_url=embedded.running_url(folder), data_dir=str(folder))


def folder_of(settings: Settings, data_dir: Path | None) -> Path:
    """The data directory: the option's, else WEBHOOKS_DATA_DIR, else the platform's."""
    chosen = data_dir or (Path(settings.data_dir) if settings.data_dir else datadir.default())
    return chosen.expanduser().absolute()
