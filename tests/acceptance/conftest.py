"""What several acceptance tests need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import stack
from webhooks import embedded


@pytest.fixture
def own_server() -> Iterator[embedded.Server]:
    """A PostgreSQL with its database, for this test to restart."""
    with stack.own_server() as server:
        server.ensure_database()
        yield server
