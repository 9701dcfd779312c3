"""Verifiers that others wrote in JavaScript, for what we sign."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support import require

VERIFIERS = Path(__file__).parent / "verifiers"


def install_verifiers(folder: Path) -> Path:
    """Install the libraries of ``tests/verifiers`` there, as its lock says; answers the script."""
    require(shutil.which("node") and shutil.which("npm"), "node", "apt-get install nodejs npm")
    for name in ("package.json", "package-lock.json", "verify.mjs"):
        shutil.copy(VERIFIERS / name, folder)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
    installed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    require(installed.returncode == 0, "what npm installs", installed.stderr[-500:])
    return folder / "verify.mjs"


def case(
    verifier: str, headers: Sequence[tuple[str, str]], body: bytes, **more: Any
) -> dict[str, Any]:
    """One request for ``verdicts``; ``more``: the secret, or the key set and the URL."""
    lower = {name.lower(): value for name, value in headers}
    encoded = base64.b64encode(body).decode()
    return {"verifier": verifier, "headers": lower, "body": encoded, **more}


def verdicts(script: Path, cases: Sequence[dict[str, Any]]) -> list[bool]:
    """Whether each case verifies."""
    file = script.with_name("cases.json")
    file.write_text(json.dumps(cases), encoding="utf-8")
    command = ["node", script.name, file.name]
    shown = subprocess.run(command, cwd=script.parent, capture_output=True, check=True)
    found: list[bool] = json.loads(shown.stdout)
    return found
