"""What an API key may do. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Scope(StrEnum):
    """One permission of an API key. Writing includes reading; admin includes all."""

    EVENTS_WRITE = "events:write"
    ENDPOINTS_READ = "endpoints:read"
    ENDPOINTS_WRITE = "endpoints:write"
    SECRETS_READ = "secrets:read"
    DELIVERIES_READ = "deliveries:read"
    DELIVERIES_REPLAY = "deliveries:replay"
    ADMIN = "admin"


INCLUDES = {
    Scope.ENDPOINTS_WRITE: frozenset({Scope.ENDPOINTS_READ}),
    Scope.DELIVERIES_REPLAY: frozenset({Scope.DELIVERIES_READ}),
    Scope.ADMIN: frozenset(Scope),
}


def granted(scopes: Iterable[Scope]) -> frozenset[Scope]:
    """Everything that a key with these scopes may do, what they include among it."""
    given = frozenset(scopes)
    return given.union(*(INCLUDES.get(scope, frozenset()) for scope in given))
