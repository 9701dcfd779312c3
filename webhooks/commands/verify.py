"""webhooks verify: does a request come from the holder of a secret, and if not, why."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

import click

from webhooks.signing import TOLERANCE_S, Step, diagnose

REQUEST_LINE = re.compile(rb"[A-Z]+ \S+( HTTP/[0-9.]+)?")
HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*")
END_OF_HEADERS = re.compile(rb"\r?\n\r?\n")
STDIN = "-"
SECRET_VARIABLE = "SIGNING_SECRET"  # noqa: S105 - a variable's name

REMEDIES = {
    Step.TIMESTAMP: "Verify when it arrives, by a clock that is right; for an old request give "
    "--now, the time of its arrival in Unix seconds.",
}


@click.command()
@click.argument("request", metavar="[REQUEST]", default="")
@click.option("-H", "--header", "lines", multiple=True, metavar="'NAME: VALUE'")
@click.option("--body", metavar="FILE", help="The raw body, if it is not in REQUEST.")
@click.option("--secret-file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--now", type=click.IntRange(0), metavar="SECONDS", help="Instead of the clock.")
@click.option(
    "--tolerance", type=click.IntRange(0), default=TOLERANCE_S, show_default=True, metavar="SECONDS"
)
def verify(
    request: str,
    lines: tuple[str, ...],
    body: str | None,
    secret_file: Path | None,
    now: int | None,
    tolerance: int,
) -> int:
    """Verify a Standard Webhooks request, and say which step fails.

    REQUEST is a file, or - for standard input: the headers, one a line, an empty line, the
    body; a long body better by --body, as terminals cut long lines. The secret (whsec_…), or
    the public key (whpk_…), comes from --secret-file, from the variable SIGNING_SECRET, or is
    asked for. Exit code 0: verified; 1: not; 2: it could not be asked.
    """
    secret = _read_secret(secret_file)
    headers, raw = _read_request(request, lines, body)
    at = int(time.time()) if now is None else now
    wrong = False
    for step, reason in diagnose(secret, headers, raw, at, tolerance):
        wrong = wrong or reason is not None
        _show(step, reason)
    click.echo("Not verified." if wrong else "Verified: it comes from a holder of this secret.")
    return 1 if wrong else 0


def _read_secret(file: Path | None) -> str:
    """Never an argument: those end in the shell's history."""
    if file is not None:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    if SECRET_VARIABLE in os.environ:
        return os.environ[SECRET_VARIABLE].strip()
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"no terminal to ask for the secret; give --secret-file or {SECRET_VARIABLE}"
        )
    answer: str = click.prompt("Secret or public key", hide_input=True, err=True)
    return answer.strip()


def _read_request(
    request: str, lines: tuple[str, ...], body: str | None
) -> tuple[dict[str, str], bytes]:
    head, rest = b"", b""
    if request or not lines or body is None:
        text = _read(request or STDIN)
        # With --body, REQUEST holds headers alone; with -H alone, it is the body.
        head, rest = (b"", text) if lines and body is None else _split(text)
    raw = rest if body is None else _read(body)
    if not raw:
        raise click.UsageError("no body; give it after an empty line, or by --body")
    return _headers([*lines, *_lines(head)]), raw


def _read(name: str) -> bytes:
    if name != STDIN:
        return Path(name).read_bytes()
    if not sys.stdin.isatty():
        return sys.stdin.buffer.read()
    click.echo("Paste the headers, an empty line and the body; then Enter and Ctrl-D.", err=True)
    # The line feed of that Enter is not part of what was pasted.
    return sys.stdin.buffer.read().removesuffix(b"\n")


def _split(text: bytes) -> tuple[bytes, bytes]:
    head, *rest = END_OF_HEADERS.split(text, maxsplit=1)
    return head, rest[0] if rest else b""


def _lines(head: bytes) -> list[str]:
    lines = head.splitlines()
    if lines and REQUEST_LINE.fullmatch(lines[0]):
        del lines[0]
    return [line.decode("latin-1") for line in lines if line.strip()]


def _headers(lines: list[str]) -> dict[str, str]:
    """Names and values. No value is shown when a line is wrong: it may be a secret."""
    headers: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        found = HEADER.fullmatch(line)
        if found is None:
            raise click.UsageError(f"header {number} is not of the form 'name: value'")
        name, value = found[1].lower(), found[2]
        if name in headers and name.startswith(("webhook-", "svix-")):
            raise click.UsageError(f"{name} is there twice; which one is meant?")
        headers[name] = value
    return headers


def _show(step: Step, reason: str | None) -> None:
    if reason is None:
        click.echo(f"ok    {step}")
        return
    click.echo(f"fail  {step}: {reason}")
    if step in REMEDIES:
        click.echo(f"      → {REMEDIES[step]}")
