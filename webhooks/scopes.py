"""What an API key may do."""

from __future__ import annotations

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
