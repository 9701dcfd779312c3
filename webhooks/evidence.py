"""Evidence: the failures for which the engine closed an endpoint, as it stored them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Evidence:
    """Failures in a row, since when, and the last one: when, what, of which delivery."""

    failures: int | None = None
    failing_since: datetime | None = None
    failed_at: datetime | None = None
    last_error: str | None = None
    last_status_code: int | None = None
    last_delivery_id: UUID | None = None

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Evidence:
        """From endpoints.status_evidence; what is missing there is None."""
        delivery = stored.get("last_delivery_id")
        return cls(
            failures=stored.get("failures"),
            failing_since=_time(stored.get("failing_since")),
            failed_at=_time(stored.get("failed_at")),
            last_error=stored.get("last_error"),
            last_status_code=stored.get("last_status_code"),
            last_delivery_id=UUID(delivery) if delivery else None,
        )


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text).astimezone(UTC) if text else None
