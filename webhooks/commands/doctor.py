"""webhooks doctor: what is wrong with an installation, and what to do."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict
from pathlib import Path

import click

from webhooks.commands.installation import data_dir_option, find
from webhooks.doctor import Finding, Level, examine, worst

CODES = {Level.OK: 0, Level.WARN: 1, Level.FAIL: 2}
WIDTH = 100


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@data_dir_option
def doctor(as_json: bool, data_dir: Path | None) -> int:
    """Check the database, the workers and the queue, and say what to do.

    One line for each check, with the remedy below it where something is wrong. It only
    reads. Exit code 0: all is well; 1: a warning; 2: a failure, or it could not be asked.
    """
    findings = examine(find(data_dir))
    level = worst(findings)
    if as_json:
        click.echo(json.dumps({"status": level, "findings": [asdict(each) for each in findings]}))
    else:
        for finding in findings:
            _show(finding)
    return CODES[level]


def _show(finding: Finding) -> None:
    click.echo(f"{finding.level:4}  {finding.check}: {finding.what}")
    if finding.remedy:
        click.echo(textwrap.fill(finding.remedy, WIDTH, initial_indent="      → ",
                                 subsequent_indent="        ", break_on_hyphens=False,
                                 break_long_words=False))  # fmt: skip
