"""webhooks demo: the extra process of `webhooks up --demo`."""

from __future__ import annotations

import os
import signal

import click

from webhooks import demo as samples
from webhooks import logs
from webhooks.settings import Settings


@click.command(hidden=True)
def demo() -> None:
    """Run the sample receivers and emit sample events; `webhooks up --demo` starts this."""
    settings = Settings.from_env(os.environ)
    logs.setup(settings.log_level)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        samples.run(settings, click.echo)
    except KeyboardInterrupt:
        return
