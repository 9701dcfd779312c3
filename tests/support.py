"""What tests of several layers share. Expected values never come from here."""

from __future__ import annotations

import os

import pytest

from webhooks.secrets import Keyring

# Taken out of the environment: the product refuses WEBHOOKS_ names that it does not know.
REQUIRE_ALL = os.environ.pop("WEBHOOKS_REQUIRE_ALL", "") == "1"
KEYRING = Keyring.generate("test")


def require(present: object, what: str, install: str) -> None:
    """Skip a test that lacks a program, saying how to install it; fail under CI."""
    if not present:
        message = f"{what} is missing; install it: {install}"
        pytest.fail(message) if REQUIRE_ALL else pytest.skip(message)


def in_database(url: str, name: str) -> str:
    """The same server, another database."""
    scheme, _, rest = url.partition("://")
    authority, _, tail = rest.partition("/")
    _, mark, query = tail.partition("?")
    return f"{scheme}://{authority}/{name}{mark}{query}"
