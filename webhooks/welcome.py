"""What `webhooks up` tells when the dashboard answers."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from webhooks import datadir, ports
from webhooks.first_start import USERNAME, Made

POLL_S = 0.2


class Welcome:
    """Waits in a thread until the web process answers, then shows the text once."""

    def __init__(
        self, host: str, port: int, data_dir: Path, made: Made, *, demo: bool = False
    ) -> None:
        self._host, self._port = ports.to_visit(host), port
        self._data_dir = data_dir
        self._made = made
        # The sample endpoints subscribe to demo.* alone.
        self._event_type = "demo.invoice.paid" if demo else "invoice.paid"
        self._ended = threading.Event()
        self._show: Callable[[str], None] = print
        self._thread = threading.Thread(target=self._run, name="welcome", daemon=True)
        self._shown = False

    def start(self, show: Callable[[str], None]) -> None:
        """Show the text by ``show`` as soon as the web process answers."""
        self._show = show
        self._thread.start()

    def finish(self) -> None:
        """Stop waiting; a password that was made and not yet shown is shown now."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        if not self._shown and (self._made.password or self._made.api_key):
            self._show(self.text("Made on this first start, which did not get ready:"))

    def text(self, head: str) -> str:
        """``head``, and what the first start made or how to make it anew."""
        lines = ["", head, ""]
        if self._made.password:
            lines += [f"  User      {USERNAME}", f"  Password  {self._made.password}"]
        else:
            lines += [f"  Another password:  {self._command('user', 'password', USERNAME)}"]
        if self._made.api_key:
            lines += [f"  API key   {self._made.api_key}", "", *self._example(self._made.api_key)]
        else:
            lines += [f"  Another API key:   {self._command('key', 'create', 'NAME')}"]
        if self._made.password or self._made.api_key:
            lines += ["", "  Password and key are shown this once. The data stays in",
                      f"  {self._data_dir}"]  # fmt: skip
        return "\n".join([*lines, ""])

    def _run(self) -> None:
        while not self._ended.wait(POLL_S):
            if self._answers():
                self._shown = True
                self._show(self.text(f"Webhooks is ready: {self._url}/ (development mode)"))
                return

    def _answers(self) -> bool:
        connection = HTTPConnection(self._host, self._port, timeout=5)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    @property
    def _url(self) -> str:
        return f"http://{ports.bracketed(self._host)}:{self._port}"

    def _example(self, api_key: str) -> list[str]:
        return [
            "  Send an event:",
            f"  curl {self._url}/api/v1/events -H 'Authorization: Bearer {api_key}' \\",
            "    -H 'Content-Type: application/json' \\",
            f"""    -d '{{"type": "{self._event_type}", "payload": {{"id": 1}}}}'""",
        ]

    def _command(self, *words: str) -> str:
        runner = ["uv", "run"] if "UV_RUN_RECURSION_DEPTH" in os.environ else []
        where = [] if self._data_dir == datadir.default() else ["--data-dir", str(self._data_dir)]
        return shlex.join([*runner, "webhooks", *words, *where])
