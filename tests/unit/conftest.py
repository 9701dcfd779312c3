"""What unit tests share. Property tests run on shared machines: a slow moment is no failure."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.node import install_verifiers

settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")


@pytest.fixture(scope="session")
def javascript_verifiers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script that runs them, in a folder where they are installed."""
    return install_verifiers(tmp_path_factory.mktemp("verifiers"))
