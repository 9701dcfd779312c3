"""webhooks user: people who sign in to the dashboard."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from webhooks import users
from webhooks.commands.installation import data_dir_option, find
from webhooks.database_app import open_app

password_option = click.option(
    "--password-stdin", is_flag=True, help="Read the password from standard input."
)


@click.group()
def user() -> None:
    """Create users and set their passwords."""


@user.command()
@click.argument("username")
@click.option("--role", type=click.Choice(users.ROLES), help="Default: owner first, then viewer.")
@password_option
@data_dir_option
def create(username: str, role: str | None, password_stdin: bool, data_dir: Path | None) -> None:
    """Create a user; the first one is the owner."""
    url = find(data_dir).database_url
    password = _read_password(password_stdin)
    with open_app(url, "user create"):
        made = users.create(username, password, role)
        click.echo(f"{made.username} is created as {made.role}.")


@user.command("password")
@click.argument("username")
@password_option
@data_dir_option
def set_password(username: str, password_stdin: bool, data_dir: Path | None) -> None:
    """Give a user another password and end their sessions."""
    url = find(data_dir).database_url
    password = _read_password(password_stdin)
    with open_app(url, "user password"):
        users.set_password(username, password)
    click.echo(f"{username} has another password; their sessions are ended.")


def _read_password(stdin: bool) -> str:
    if stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise click.UsageError("no terminal to ask for the password; give --password-stdin")
    answer: str = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    return answer
