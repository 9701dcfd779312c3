"""Every test of this folder runs on each transport."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.transports import SETTINGS, Make, resolver
from webhooks.transports.base import Transport
from webhooks.transports.curl import CurlTransport
from webhooks.transports.threaded import ThreadsTransport

MAKERS: dict[str, Make] = {"curl": CurlTransport, "requests": ThreadsTransport}


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Make:
    """Makes a transport of the kind under test."""
    return MAKERS[request.param]


@pytest.fixture
def transport(make: Make) -> Iterator[Transport]:
    """One that knows receiver.example."""
    made = make(SETTINGS, resolver=resolver({"receiver.example": ["127.0.0.1"]}))
    yield made
    made.close()
