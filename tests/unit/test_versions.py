"""Versions of what we stand on: below these, a published vulnerability would be ours."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"

# The first version without it, by the advisory itself.
FIXED_IN = [
    ("requests", "2.32.0", "CVE-2024-35195", "verify=False stuck to a pooled connection"),
    ("requests", "2.32.4", "CVE-2024-47081", "a crafted URL leaked netrc passwords"),
    ("urllib3", "2.5.0", "CVE-2025-50181", "redirect settings of the pool were ignored"),
    ("urllib3", "2.6.0", "CVE-2025-66418", "endless chain of compressions"),
    ("urllib3", "2.6.0", "CVE-2025-66471", "a compressed body was read whole"),
    ("urllib3", "2.6.3", "CVE-2026-21441", "a redirect's compressed body was read whole"),
    ("flask", "3.1.1", "CVE-2025-47278", "sessions were signed with the oldest fallback key"),
    ("jinja2", "3.1.6", "CVE-2025-27516", "a sandbox was left through the attr filter"),
]


@pytest.mark.parametrize(("name", "fixed_in", "advisory", "what"), FIXED_IN)
def test_no_dependency_may_be_older_than_its_fix(
    name: str, fixed_in: str, advisory: str, what: str
) -> None:
    """Neither what is installed here nor what the package declares lets it in."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    declared = {r.name: r for r in map(Requirement, project["dependencies"])}[name]

    assert Version(version(name)) >= Version(fixed_in), f"{advisory}: {what}"
    floors = [Version(s.version) for s in declared.specifier if s.operator == ">="]
    assert floors, f"{name} has no lower bound"
    assert min(floors) >= Version(fixed_in), f"{advisory}: {what}"
