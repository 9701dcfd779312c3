"""webhooks tenant: tenants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from webhooks import backoff, ids, tenants
from webhooks.commands.installation import data_dir_option, find
from webhooks.commands.table import moment, show
from webhooks.database_app import open_app


@click.group()
def tenant() -> None:
    """Create and list tenants, and set what their endpoints retry by."""


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


@tenant.command("retry-policy")
@click.argument("key")
@click.argument("policy", required=False)
@click.option("--reset", is_flag=True, help="Follow the installation's policy again.")
@data_dir_option
def retry_policy(key: str, policy: str | None, reset: bool, data_dir: Path | None) -> None:
    """Show, or set, the retry POLICY of the tenant KEY, as JSON.

    It holds for its endpoints that have none of their own: '{"base_s": 10, "factor": 4,
    "cap_s": 86400, "attempts": 10}', or a ladder of waits in seconds '{"delays_s": [5, 60]}'.
    """
    if reset and policy is not None:
        raise click.UsageError("give POLICY or --reset, not both")
    given = None if policy is None else _parse(policy)
    settings = find(data_dir)
    with open_app(settings.database_url, "tenant retry-policy"):
        found = tenants.find(key)
        if found is None:
            raise click.BadParameter(
                f"{key!r} does not exist; `webhooks tenant list` shows the tenants",
                param_hint="KEY",
            )
        if reset or given is not None:
            tenants.update(found, retry_policy=given)
        stored = found.retry_policy
    chosen, source = backoff.in_force(None, stored, settings)
    click.echo(f"{source}: {json.dumps(stored)}" if stored is not None else str(source))
    click.echo(backoff.describe(chosen))


def _parse(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"it is not JSON: {error}", param_hint="POLICY") from error
    if not isinstance(value, dict):
        raise click.BadParameter("give a JSON object", param_hint="POLICY")
    return value
