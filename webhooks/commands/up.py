"""webhooks up: everything in one command."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from webhooks import up as platform
from webhooks.commands.installation import data_dir_option, folder_of
from webhooks.settings import Settings


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Where the dashboard listens.")
@click.option("--port", type=click.IntRange(1, 65535), default=8000, show_default=True)
@click.option("--workers", type=click.IntRange(1, 64), help="Delivery processes.  [default: 2]")
@click.option("--demo", is_flag=True, help="Add a receiver, three endpoints and a few events.")
@click.option(
    "--allow-loopback",
    is_flag=True,
    help="Deliver to this machine's own addresses although --host lets others in.",
)
@data_dir_option
def up(
    host: str,
    port: int,
    workers: int | None,
    demo: bool,
    allow_loopback: bool,
    data_dir: Path | None,
) -> None:
    """Run the whole platform here, in development mode, until Ctrl-C.

    Starts its own PostgreSQL in the data directory, unless DATABASE_URL names one.
    Exit code: 0 after a clean stop, 1 if a process ended by itself, 2 if it cannot
    start, 130 if a second Ctrl-C cut the stop short.
    """
    settings = Settings.from_env(os.environ)
    options = platform.Options(
        host=host,
        port=port,
        data_dir=folder_of(settings, data_dir),
        workers=workers,
        demo=demo,
        allow_loopback=allow_loopback,
    )
    sys.exit(platform.run(options, settings))
