"""webhooks tenant: tenants."""

from __future__ import annotations

from pathlib import Path

import click

from webhooks import ids, tenants
from webhooks.commands.installation import data_dir_option, find
from webhooks.commands.table import moment, show
from webhooks.database_app import open_app


@click.group()
def tenant() -> None:
    """Create and list tenants."""


@tenant.command()
@click.argument("key")
@click.option("--name", help="What people read (default: the key).")
@data_dir_option
def create(key: str, name: str | None, data_dir: Path | None) -> None:
    """Create the tenant KEY and print its id."""
    with open_app(find(data_dir).database_url, "tenant create"):
        made = tenants.create(key, key if name is None else name)
        click.echo(ids.encode(ids.TENANT, made.id))


@tenant.command("list")
@data_dir_option
def list_tenants(data_dir: Path | None) -> None:
    """List tenants."""
    with open_app(find(data_dir).database_url, "tenant list"):
        rows = [
            (each.key, each.name, ids.encode(ids.TENANT, each.id), moment(each.created_at))
            for each in tenants.all_tenants()
        ]
    show(("KEY", "NAME", "ID", "CREATED"), rows)
