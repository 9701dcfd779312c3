"""README says what the code does."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from webhooks.attempt import Status
from webhooks.settings import Settings

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_state_diagram_has_every_state_and_no_other() -> None:
    """The picture of the states equals the enum."""
    diagram = README.partition("stateDiagram-v2")[2].partition("```")[0]

    drawn = set(re.findall(r"(\w+) -->|--> (\w+)", diagram))

    assert {a or b for a, b in drawn} == {status.value for status in Status}


def test_the_settings_table_has_every_setting_with_its_default() -> None:
    """Each variable that the code reads is explained, and no other."""
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \| (?:`([^`]+)`)?", README, re.MULTILINE))

    assert rows.keys() == {f.metadata["env"] for f in fields(Settings)}
    for f in fields(Settings):
        shown = rows[f.metadata["env"]]
        if isinstance(f.default, bool):
            assert shown == str(f.default).lower()
        elif isinstance(f.default, int | float):
            assert float(shown) == f.default


def test_what_the_procfile_reads_is_explained() -> None:
    """Each variable of its commands is named with its default."""
    procfile = (Path(__file__).parents[2] / "Procfile").read_text(encoding="utf-8")

    for name, default in re.findall(r"\$\{(\w+):-([^}]+)\}", procfile):
        assert re.search(rf"`{name}`[^`]*\(`{re.escape(default)}`", README) or (
            f"`{name}`" in README and f"(`{default}` each)" in README
        )
