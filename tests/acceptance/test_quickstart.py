"""docs/quickstart.md: its commands, run as they stand, in the order of the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack import eventually, free_port

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
STEPS = re.findall(r"^```sh (\w+)\n(.*?)^```$", PAGE, re.M | re.S)
DONE = "~~ done ~~"
# What the page promises that each look shows.
SHOWN = [
    ['"signature": "valid"', "12.50"],
    ['"status_code":500', '"due_at":"20'],
    ['"status":"delivered"', '"number":1', '"number":2'],
]
UV = """#!/bin/sh
# `uv run PROGRAM` runs it in the project's environment, which is the one the test runs in.
[ "$1" = run ] && shift && exec "$@"
exit 1
"""


class Terminal:
    """A shell that stays open, as a person's does."""

    def __init__(self, folder: Path, env: dict[str, str], name: str) -> None:
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self._shell = subprocess.Popen(
                ["bash"], stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT,
                cwd=folder, env=env, text=True, start_new_session=True,
            )  # fmt: skip

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def type(self, commands: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(commands)
        self._shell.stdin.flush()

    def run(self, commands: str) -> str:
        """Type them, wait until they have ended, and answer what they printed."""
        before, ended = len(self.output), self.output.count(DONE)
        self.type(f"{commands}\necho; echo '{DONE}'\n")
        eventually(lambda: self.output.count(DONE) > ended, 30, commands)
        return self.output[before:]

    def close(self) -> None:
        assert self._shell.stdin is not None
        os.killpg(self._shell.pid, 15)
        self._shell.stdin.close()
        self._shell.wait(60)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the commands run; its bin/ has what the page installs."""
    (tmp_path / "bin").mkdir()
    for name, program in (("uv", UV), ("pip", "#!/bin/sh\n")):
        path = tmp_path / "bin" / name
        path.write_text(program)
        path.chmod(0o755)
    return tmp_path


@pytest.fixture
def terminals(folder: Path) -> Iterator[dict[str, Terminal]]:
    """Three, which know nothing of this test's environment."""
    env = {
        "PATH": f"{folder}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "WEBHOOKS_DATA_DIR": str(folder / "data"),
    }
    opened = {name: Terminal(folder, env, name) for name in ("first", "second", "third")}
    yield opened
    for terminal in reversed(opened.values()):
        terminal.close()


def on(ports: dict[str, int], commands: str) -> str:
    """The commands, with ports that are free here in place of the page's."""
    commands = commands.replace("webhooks up", f"webhooks up --port {ports['8000']}")
    for written, free in ports.items():
        commands = re.sub(rf"(127\.0\.0\.1:|--port ){written}\b", rf"\g<1>{free}", commands)
    return commands


def test_the_quickstart_works_as_it_stands(folder: Path, terminals: dict[str, Terminal]) -> None:
    """By copy and paste alone: a verified delivery, then one that failed and was mended."""
    folder.chmod(0o711)
    ports = {"8000": free_port(), "9000": free_port()}
    ready = {"first": "is ready", "second": "Receiving on"}
    looks = iter(SHOWN)
    for terminal, commands in STEPS:
        typed = on(ports, commands)
        if terminal in ready:
            terminals[terminal].type(typed)
            said = ready[terminal]
            eventually(lambda t=terminal, s=said: s in terminals[t].output, 60, said)
        elif terminal == "third":
            printed = terminals["third"].run(typed)
            assert "curl:" not in printed, printed
        else:
            expected = next(looks)
            eventually(
                lambda typed=typed, expected=expected: all(
                    text in terminals["third"].run(typed) for text in expected
                ),
                20,
                f"{expected} in {terminals['third'].output}",
            )
    assert next(looks, None) is None, "the page looks less often than it promises"
