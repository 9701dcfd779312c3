"""webhooks secrets: which keys encrypted what is stored, and from older keys to the first."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from uuid import UUID

import click
import psycopg

from webhooks import audit, stored_secrets
from webhooks.commands.installation import data_dir_option, find
from webhooks.commands.table import show
from webhooks.database_app import open_app
from webhooks.db import connect
from webhooks.keyring_check import find_keyring
from webhooks.models import db
from webhooks.reencryption import reencrypt
from webhooks.secrets import Keyring
from webhooks.stored_secrets import COLUMNS, Column

PROGRESS_EVERY_S = 1.0
MOST_NAMED = 10

Counts = Mapping[Column, Counter[str]]


@click.group()
def secrets() -> None:
    """Show which keys encrypted what is stored; encrypt it with the first one."""


@secrets.command()
@data_dir_option
def status(data_dir: Path | None) -> int:
    """Count what each key has encrypted, and say what to do.

    Exit code 1: something cannot be decrypted.
    """
    settings = find(data_dir)
    keyring = find_keyring(settings)
    with connect(settings.database_url, "secrets status") as connection:
        counts = stored_secrets.count(connection)
    _show(counts, keyring)
    return int(bool(_lost(counts, keyring)))


@secrets.command()
@click.option("--dry-run", is_flag=True, help="Decrypt and count all of it; write nothing.")
@data_dir_option
def rotate(dry_run: bool, data_dir: Path | None) -> int:
    """Encrypt every stored secret with the first key of WEBHOOKS_KEYRING.

    Web and workers go on meanwhile. It may be stopped at any time; the next run does the rest.
    Exit code 1: something is left that the first key has not encrypted.
    """
    settings = find(data_dir)
    keyring = find_keyring(settings)
    with connect(settings.database_url, "secrets rotate") as connection:
        renewed = _rotate(connection, keyring, dry_run=dry_run)
        counts = stored_secrets.count(connection)
    would = "would be " if dry_run else ""
    click.echo(f"{renewed:,} {would}encrypted anew, with the key {keyring.current}.")
    if renewed and not dry_run:
        _record(settings.database_url, keyring, renewed)
    _show(counts, keyring)
    left = _lost(counts, keyring) if dry_run else _used(counts) - {keyring.current}
    return int(bool(left))


def _rotate(connection: psycopg.Connection, keyring: Keyring, *, dry_run: bool) -> int:
    renewed, shown = 0, time.monotonic()
    damaged: dict[UUID, Column] = {}
    for batch in reencrypt(connection, keyring, dry_run=dry_run):
        renewed += batch.renewed
        damaged |= dict.fromkeys(batch.damaged, batch.column)
        if time.monotonic() - shown >= PROGRESS_EVERY_S:
            click.echo(f"{renewed:,} so far; now: {batch.column.what}", err=True)
            shown = time.monotonic()
    for row_id, column in list(damaged.items())[:MOST_NAMED]:
        click.echo(
            f"damaged, left as it is; give its endpoint a new one: {column.table} {row_id}",
            err=True,
        )
    if len(damaged) > MOST_NAMED:
        click.echo(f"and {len(damaged) - MOST_NAMED:,} more", err=True)
    return renewed


def _record(database_url: str, keyring: Keyring, renewed: int) -> None:
    with open_app(database_url, "secrets rotate"):
        audit.record(
            "keyring.rotate", keyring.current, actor="command line", tenant_id=None, secrets=renewed
        )
        db.session.commit()


def _show(counts: Counts, keyring: Keyring) -> None:
    used = _used(counts)
    keys = [*keyring.key_ids, *sorted(used - set(keyring.key_ids))]
    rows = [
        (key_id or "?", _role(key_id, keyring), *(f"{counts[each][key_id]:,}" for each in COLUMNS))
        for key_id in keys
    ]
    show(("KEY", "ROLE", *(each.what.upper() for each in COLUMNS)), rows)
    for line in _advice(used, keyring):
        click.echo(line)


def _role(key_id: str, keyring: Keyring) -> str:
    if key_id == keyring.current:
        return "first"
    return "older" if key_id in keyring.key_ids else "missing" if key_id else "damaged"


def _advice(used: set[str], keyring: Keyring) -> Iterator[str]:
    """What to do about each key that is not the first one."""
    older = keyring.key_ids[1:]
    for key_id in sorted(used - {*keyring.key_ids, ""}):
        yield f"{key_id} is not in WEBHOOKS_KEYRING: deliveries that need it wait; put it back."
    if "" in used:
        yield "What is damaged cannot be restored: give those endpoints new ones."
    if used & set(older):
        yield "Older keys are still in use: run `webhooks secrets rotate`."
    for key_id in older:
        if key_id not in used:
            yield (
                f"{key_id} encrypts nothing any more: remove it from WEBHOOKS_KEYRING once every "
                f"web and worker process has {keyring.current} first. Older backups need it."
            )


def _used(counts: Counts) -> set[str]:
    return {key_id for column in counts.values() for key_id in column}


def _lost(counts: Counts, keyring: Keyring) -> set[str]:
    """Keys that encrypted something and are not in the keyring; "" for what is damaged."""
    return _used(counts) - set(keyring.key_ids)
