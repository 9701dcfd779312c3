"""webhooks receiver: a local receiver for trying things out."""

from __future__ import annotations

import errno
import signal
import socket

import click

from webhooks import signing
from webhooks.receiver import Behaviour, Receiver


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=9000, show_default=True)
@click.option("--status", type=int, default=200, show_default=True, help="What to answer.")
@click.option("--delay", type=float, default=0, show_default=True, help="Seconds to wait first.")
@click.option(
    "--fail-rate", type=float, default=0, show_default=True, help="Share of 500s (0 to 1)."
)
@click.option("--secret", "secrets", multiple=True, metavar="whsec_…", help="Verify with it.")
@click.option("-q", "--quiet", is_flag=True, help="Do not print requests.")
def receiver(
    host: str,
    port: int,
    status: int,
    delay: float,
    fail_rate: float,
    secrets: tuple[str, ...],
    quiet: bool,
) -> None:
    """Receive webhooks: print each, verify it, answer it.

    GET /requests is what came in, DELETE /requests forgets it; PUT /behaviour
    {"status": 500, "delay": 0, "fail_rate": 0} changes the answers. Without a secret
    signatures are shown, not judged.
    """
    behaviour = Behaviour().changed({"status": status, "delay": delay, "fail_rate": fail_rate})
    for secret in secrets:
        signing.decode_secret(secret)
    report = (lambda line: None) if quiet else click.echo
    try:
        server = Receiver(host, port, behaviour, secrets, report)
    except OSError as error:
        raise click.UsageError(_refusal(host, port, error)) from error
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    click.echo(f"Receiving on http://{_shown(host)}:{server.server_port}/ (Ctrl-C stops)")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


def _refusal(host: str, port: int, error: OSError) -> str:
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return f"--host {host}: {error.strerror}; give an address of this machine"
    return f"--host {host} --port {port}: {error.strerror}; give another --port"


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
