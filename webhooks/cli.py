"""`webhooks`: the command line. Each command lies in a module of webhooks/commands."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import click

# Imported when named, so that a command starts without loading what it does not need.
COMMANDS = {
    "db": "webhooks.commands.schema:db",
    "demo": "webhooks.commands.demo:demo",
    "doctor": "webhooks.commands.doctor:doctor",
    "emit": "webhooks.commands.emit:emit",
    "key": "webhooks.commands.key:key",
    "receiver": "webhooks.commands.receiver:receiver",
    "retention": "webhooks.commands.retention:group",
    "scheduler": "webhooks.commands.scheduler:scheduler",
    "secrets": "webhooks.commands.secrets:secrets",
    "tenant": "webhooks.commands.tenant:tenant",
    "up": "webhooks.commands.up:up",
    "user": "webhooks.commands.user:user",
    "verify": "webhooks.commands.verify:verify",
}
MISTAKE = 2
INTERRUPTED = 130


class _Commands(click.Group):
    """Loads commands on demand; a mistake ends in one line on standard error and exit code 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        extra["standalone_mode"] = False
        try:
            code = super().main(args, *rest, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(MISTAKE)
        except click.ClickException as error:
            _complain(error.format_message())
            sys.exit(MISTAKE)
        except (click.Abort, KeyboardInterrupt):
            sys.exit(INTERRUPTED)
        except Exception as error:
            _explain(error)
            sys.exit(MISTAKE)
        sys.exit(code if isinstance(code, int) else 0)


def _explain(error: Exception) -> None:
    from webhooks.commands.failures import explain

    text = explain(error)
    if text is None:
        raise error
    _complain(text)


def _complain(text: str) -> None:
    click.echo(f"webhooks: {' '.join(text.split())}", err=True)


@click.group(cls=_Commands)
@click.version_option(package_name="webhooks-platform", message="webhooks %(version)s")
def main() -> None:
    """Deliver webhooks on PostgreSQL alone."""
