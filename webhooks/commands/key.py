"""webhooks key: API keys."""

from __future__ import annotations

from pathlib import Path

import click

from webhooks import ids, keys, tenants
from webhooks.commands.installation import data_dir_option, find
from webhooks.commands.table import moment, show
from webhooks.database_app import open_app


@click.group()
def key() -> None:
    """Create, list and revoke API keys."""


@key.command()
@click.argument("name")
@click.option("--tenant", metavar="KEY", help="Bind the key to one tenant (default: all).")
@data_dir_option
def create(name: str, tenant: str | None, data_dir: Path | None) -> None:
    """Create an API key and print it; it is shown this once."""
    with open_app(find(data_dir).database_url, "key create"):
        owner = tenants.find(tenant) if tenant is not None else None
        if tenant is not None and owner is None:
            raise click.BadParameter(
                f"{tenant!r} does not exist; create it with `webhooks tenant create`",
                param_hint="--tenant",
            )
        click.echo(keys.create(name, owner)[1])


@key.command("list")
@data_dir_option
def list_keys(data_dir: Path | None) -> None:
    """List API keys, revoked ones too."""
    with open_app(find(data_dir).database_url, "key list"):
        rows = [
            (
                ids.encode(ids.API_KEY, each.id),
                each.name,
                each.tenant.key if each.tenant else "(all)",
                f"{keys.PREFIX}{each.public_id}_…{each.last_four}",
                moment(each.created_at),
                moment(each.last_used_at),
                moment(each.revoked_at),
            )
            for each in keys.all_keys()
        ]
    show(("ID", "NAME", "TENANT", "KEY", "CREATED", "LAST USED", "REVOKED"), rows)


@key.command()
@click.argument("id")
@data_dir_option
def revoke(id: str, data_dir: Path | None) -> None:
    """Refuse the key with this ID from now on."""
    with open_app(find(data_dir).database_url, "key revoke"):
        found = keys.find(id)
        if found is None:
            raise click.BadParameter(
                f"{id!r} is no key; `webhooks key list` shows their ids", param_hint="ID"
            )
        shown = f"{ids.encode(ids.API_KEY, found.id)} ({found.name})"
        click.echo(f"revoked {shown}" if keys.revoke(found) else f"{shown} was revoked before")
