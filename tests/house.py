"""The product as real processes, and everything that it puts out, kept for a search."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from typing import Any

import requests

from tests.canary import Canaries, decoded
from tests.recorder import Recorder
from tests.stack import BIN, Stack
from webhooks import embedded


class House:
    """The product with secrets in it, and everything that it has put out so far."""

    def __init__(self, stack: Stack, server: embedded.Server, receiver: Recorder) -> None:
        self.stack, self.server, self.receiver = stack, server, receiver
        self.canaries = Canaries()
        self.said: dict[str, bytes] = {}
        self.shown_once: list[str] = []
        self._browser = requests.Session()

    def leaks(self, *prefixes: str) -> dict[str, list[str]]:
        """Secrets that were found, by where; of what was put out in these ways."""
        parts = {what: data for what, data in self.said.items() if what.startswith(prefixes)}
        assert parts, prefixes
        return {what: found for what, data in parts.items() if (found := self.canaries.found(data))}

    def secret(self, name: str, text: str, *, key: bool = True) -> None:
        """``key``: what follows the mark is base64. A mark alone gives nothing away."""
        body = text.partition("_")[2] if text.startswith("whsec_") else text
        self.canaries.add(name, body, decoded(text) if key else b"")

    def api(
        self, method: str, path: str, body: Any = None, key: str | None = None, **more: Any
    ) -> requests.Response:
        """A call of the API whose answer must show nothing."""
        answer = self._call(method, path, body, key, **more)
        self._keep(f"API {method} {path} {answer.status_code}", answer)
        return answer

    def once(self, name: str, path: str, body: Any) -> Any:
        """A call whose answer alone shows a secret that was made for it."""
        answer = self._call("POST", path, body, None)
        assert answer.status_code == 201, answer.text
        self.secret(name, answer.json()["secret"])
        self.shown_once.append(answer.text)
        return answer.json()

    def page(self, path: str, form: Mapping[str, str] | None = None) -> requests.Response:
        """A page of the dashboard, or a form sent to it."""
        url = f"{self.stack.base_url}{path}"
        if form is None:
            answer = self._browser.get(url, timeout=15)
        else:
            token = re.search(r'csrf_token" value="([^"]+)', self.page("/nowhere").text)
            assert token is not None
            answer = self._browser.post(url, {"csrf_token": token[1], **form}, timeout=15)
        self._keep(f"page {path} {answer.status_code}", answer)
        return answer

    def command(self, *words: str, env: Mapping[str, str] | None = None, given: str = "") -> int:
        """A command of the product, run to its end."""
        whole = {**self.stack._env(), "PATH": str(BIN), **(env or {})}
        done = subprocess.run(
            [str(BIN / words[0]), *words[1:]], env=whole, input=given.encode(),
            capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        self._add(f"command {' '.join(words)}", done.stdout + done.stderr)
        return done.returncode

    def dump(self) -> bytes:
        """A backup as text, whole."""
        command = [str(self.server.binaries / "pg_dump"), "--dbname", self.stack.database_url]
        return subprocess.run(command, capture_output=True, timeout=60, check=True).stdout

    def _call(
        self, method: str, path: str, body: Any, key: str | None, **more: Any
    ) -> requests.Response:
        headers = {"Authorization": f"Bearer {key or self.stack.key}", **more.pop("headers", {})}
        sent = {"data": body} if isinstance(body, bytes) else {"json": body}
        if isinstance(body, bytes):
            headers["Content-Type"] = "application/json"
        url = f"{self.stack.base_url}/api/v1{path}"
        return requests.request(method, url, headers=headers, timeout=15, **sent, **more)

    def _keep(self, what: str, answer: requests.Response) -> None:
        whole = "\n".join([answer.url, *map(": ".join, answer.headers.items())])
        self._add(what, whole.encode() + answer.content)

    def _add(self, what: str, data: bytes) -> None:
        self.said[f"{what} #{len(self.said)}"] = data
