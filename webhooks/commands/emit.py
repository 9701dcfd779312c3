"""webhooks emit: send an event from the command line."""

from __future__ import annotations

import sys
from pathlib import Path
from uuid import UUID

import click

from webhooks import ids
from webhooks.commands.installation import data_dir_option, find
from webhooks.db import connect
from webhooks.wakeup import CHANNEL


@click.command()
@click.argument("type", metavar="TYPE")
@click.argument("payload", metavar="PAYLOAD")
@click.option("--tenant", default="default", show_default=True, metavar="KEY")
@click.option("--idempotency-key", metavar="KEY", help="The same key again is the same event.")
@data_dir_option
def emit(
    type: str, payload: str, tenant: str, idempotency_key: str | None, data_dir: Path | None
) -> None:
    """Emit an event of TYPE and print its id.

    PAYLOAD is JSON, @FILE to read it from a file, or - to read it from standard input.
    It is delivered as these very bytes.
    """
    settings = find(data_dir)
    body = _read(payload)
    if len(body) > settings.max_payload_bytes:
        raise click.BadParameter(
            f"it has {len(body)} bytes, more than the {settings.max_payload_bytes} of "
            "WEBHOOKS_MAX_PAYLOAD_BYTES",
            param_hint="PAYLOAD",
        )
    with connect(settings.database_url, "emit") as connection:
        row = connection.execute(
            "SELECT webhooks.emit_bytes(%s, %s, %b, %s)", [tenant, type, body, idempotency_key]
        ).fetchone()
        connection.execute(f"NOTIFY {CHANNEL}")
    event_id: UUID = row[0] if row else UUID(int=0)
    click.echo(ids.encode(ids.EVENT, event_id))


def _read(payload: str) -> bytes:
    if payload == "-":
        return sys.stdin.buffer.read()
    if payload.startswith("@"):
        return Path(payload[1:]).read_bytes()
    return payload.encode(errors="surrogateescape")
