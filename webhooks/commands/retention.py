"""webhooks retention: what goes when, and what must go at once."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import click

from webhooks import erasure, ids, retention, tenants
from webhooks.commands.installation import data_dir_option, find
from webhooks.commands.table import show
from webhooks.database_app import open_app
from webhooks.db import connect
from webhooks.models import Tenant

MEGABYTE = 1_000_000


@click.group("retention")
def group() -> None:
    """Show what is due to be dropped; erase an event's or a tenant's data."""


@group.command()
@data_dir_option
def plan(data_dir: Path | None) -> None:
    """List the days that the next run of the scheduler drops, and what holds any back.

    Nothing is dropped by this command.
    """
    settings = find(data_dir)
    with connect(settings.database_url, "retention plan") as connection:
        due = retention.plan(connection, settings)
    for table, days in retention.days(settings).items():
        click.echo(f"{table}: kept for {days} days")
    click.echo(f"audit log: kept for {settings.keep_audit_days} days")
    if not due:
        click.echo("Nothing is due.")
        return
    rows = [
        (each.table, f"{each.day}", f"{each.size_bytes / MEGABYTE:,.1f} MB", why or "due")
        for each, why in due
    ]
    show(("TABLE", "DAY", "SIZE", "STATE"), rows)


@group.command("payload-days")
@click.argument("tenant", metavar="TENANT")
@click.argument("days", metavar="[DAYS|none]", required=False)
@data_dir_option
def payload_days(tenant: str, days: str | None, data_dir: Path | None) -> None:
    """Show, or set, for how many DAYS the payloads of TENANT (its key) are kept.

    Not longer than the events themselves; `none` is as long as these.
    """
    with open_app(find(data_dir).database_url, "retention payload-days"):
        found = _tenant(tenant)
        if days is not None:
            tenants.update(found, payload_days=_parse(days))
        kept = found.payload_days
    click.echo("as long as their events" if kept is None else f"{kept} days")


@group.command("erase-event")
@click.argument("event", metavar="EVENT")
@data_dir_option
def erase_event(event: str, data_dir: Path | None) -> None:
    """Erase the payload of EVENT (evt_…) and what receivers answered to it.

    What still waits is cancelled, with the reason `erased`. That it happened stays on record.
    """
    try:
        event_id = ids.decode(ids.EVENT, event)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="EVENT") from error
    with connect(find(data_dir).database_url, "retention erase-event") as connection:
        _report(erasure.erase_event(connection, event_id, actor="command line"), event)


@group.command("erase-tenant")
@click.argument("tenant", metavar="TENANT")
@click.option("--yes", is_flag=True, help="Do not ask.")
@data_dir_option
def erase_tenant(tenant: str, yes: bool, data_dir: Path | None) -> None:
    """Erase all data of TENANT (its key): endpoints with secrets, payloads, answers, API keys.

    What happened when, without its contents, goes with the usual days. An interrupted run may
    be started again.
    """
    with open_app(find(data_dir).database_url, "retention erase-tenant"):
        found = _tenant(tenant)
        if not yes:
            click.confirm(f"Erase everything of {found.key} ({found.name})?", abort=True)
        erased = erasure.erase_tenant(found, actor="command line")
    click.echo(f"{tenant}: {erased} payloads erased")


def _tenant(key: str) -> Tenant:
    found = tenants.find(key)
    if found is None:
        raise click.BadParameter(
            f"{key!r} does not exist; `webhooks tenant list` shows the tenants",
            param_hint="TENANT",
        )
    return found


def _parse(days: str) -> int | None:
    if days == "none":
        return None
    if not (days.isascii() and days.isdigit() and 1 <= int(days) <= tenants.LONGEST_DAYS):
        raise click.BadParameter(
            f"{days!r} is not a whole number from 1 to {tenants.LONGEST_DAYS}, or none",
            param_hint="DAYS",
        )
    return int(days)


def _report(tenant_id: UUID | None, event: str) -> None:
    if tenant_id is None:
        raise click.BadParameter(f"{event} does not exist, or has been dropped", param_hint="EVENT")
    click.echo(f"{event}: erased")
