"""webhooks db: the database's schema."""

from __future__ import annotations

from pathlib import Path

import click

from webhooks import schema
from webhooks.commands.installation import data_dir_option, find


@click.group()
def db() -> None:
    """Upgrade, downgrade or check the database's schema."""


@db.command()
@data_dir_option
def upgrade(data_dir: Path | None) -> None:
    """Bring the schema to this version's revision."""
    click.echo(f"The schema is at revision {schema.upgrade(find(data_dir).database_url)}.")


@db.command()
@click.argument("revision", default="-1")
@data_dir_option
def downgrade(revision: str, data_dir: Path | None) -> None:
    """Go back to REVISION (default: one back; base: remove it all, data included)."""
    now = schema.downgrade(find(data_dir).database_url, revision)
    click.echo(f"The schema is at revision {now}." if now else "The schema is removed.")


@db.command()
@data_dir_option
def check(data_dir: Path | None) -> None:
    """Fail unless the schema is this version's."""
    click.echo(f"The schema is at revision {schema.check(find(data_dir).database_url)}, as needed.")
