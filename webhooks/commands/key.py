"""webhooks key: API keys."""

from __future__ import annotations

from pathlib import Path

import click

from webhooks import ids, keys, tenants
from webhooks.commands.installation import data_dir_option, find
from webhooks.commands.table import moment, show
from webhooks.database_app import open_app
from webhooks.models import ApiKey
from webhooks.scopes import Scope

HOUR_S = 3_600
DAY_S = 86_400


@click.group()
def key() -> None:
    """Create, list, rotate and revoke API keys."""


@key.command()
@click.argument("name")
@click.option("--tenant", metavar="KEY", help="Bind the key to one tenant (default: all).")
@click.option(
    "--scope", "scopes", multiple=True, type=click.Choice(list(Scope)), default=[Scope.ADMIN],
    show_default=True, help="What it may do; may be given several times.",
)  # fmt: skip
@click.option("--expires-in", type=float, metavar="DAYS", help="After so many days it ends.")
@data_dir_option
def create(
    name: str,
    tenant: str | None,
    scopes: tuple[str, ...],
    expires_in: float | None,
    data_dir: Path | None,
) -> None:
    """Create an API key and print it; it is shown this once."""
    with open_app(find(data_dir).database_url, "key create"):
        owner = tenants.find(tenant) if tenant is not None else None
        if tenant is not None and owner is None:
            raise click.BadParameter(
                f"{tenant!r} does not exist; create it with `webhooks tenant create`",
                param_hint="--tenant",
            )
        life = None if expires_in is None else expires_in * DAY_S
        click.echo(keys.create(name, owner, scopes=scopes, expires_in_s=life)[1])


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
                ",".join(each.scopes),
                f"{keys.PREFIX}{each.public_id}_…{each.last_four}",
                moment(each.created_at),
                moment(each.last_used_at),
                moment(each.expires_at),
                moment(each.revoked_at),
            )
            for each in keys.all_keys()
        ]
    head = ("ID", "NAME", "TENANT", "SCOPES", "KEY", "CREATED", "LAST USED", "EXPIRES", "REVOKED")
    show(head, rows)


@key.command()
@click.argument("id")
@click.option("--overlap", type=float, default=24, show_default=True, metavar="HOURS")
@data_dir_option
def rotate(id: str, overlap: float, data_dir: Path | None) -> None:
    """Print a new key that may do what the key with this ID may, which ends after the overlap."""
    with open_app(find(data_dir).database_url, "key rotate"):
        click.echo(keys.rotate(_find(id), overlap_s=overlap * HOUR_S)[1])


@key.command()
@click.argument("id")
@data_dir_option
def revoke(id: str, data_dir: Path | None) -> None:
    """Refuse the key with this ID from now on."""
    with open_app(find(data_dir).database_url, "key revoke"):
        found = _find(id)
        shown = f"{ids.encode(ids.API_KEY, found.id)} ({found.name})"
        click.echo(f"revoked {shown}" if keys.revoke(found) else f"{shown} was revoked before")


def _find(reference: str) -> ApiKey:
    found = keys.find(reference)
    if found is None:
        raise click.BadParameter(
            f"{reference!r} is no key; `webhooks key list` shows their ids", param_hint="ID"
        )
    return found
