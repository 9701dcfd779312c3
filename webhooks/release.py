"""Release: which of an endpoint's held deliveries are sent when it is resumed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import psycopg

from webhooks import deliveries, fanouts
from webhooks.endpoint_fields import EndpointError
from webhooks.field_error import echo
from webhooks.partitions import make_partitions
from webhooks.web_database import psycopg_connection

# Whoever asked waits for it, and proxies seldom wait for longer than 30 s.
LONGEST_S = 10.0
NOT_RELEASED = "not released when the endpoint was resumed"

RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")

# Ids carry milliseconds: without the one more, what was made in this very one would be sent.
NOW = "SELECT now() + interval '1 ms'"
PAST = "SELECT %s::timestamptz <= now(), now()"


class Mode(StrEnum):
    """ALL that was held, what was made SINCE a time, or NONE; the rest is cancelled."""

    ALL = "all"
    SINCE = "since"
    NONE = "none"


class Unfinished(RuntimeError):
    """There was too much for one request: the endpoint stays closed, and asking again goes on."""

    def __init__(self, cancelled: int) -> None:
        super().__init__(
            f"not released and cancelled so far: {cancelled:,}; there are more, and the endpoint "
            "is not resumed yet: ask for it again to go on"
        )
        self.cancelled = cancelled


@dataclass(frozen=True, slots=True)
class Release:
    """A mode, and for SINCE its time, with a zone."""

    mode: Mode = Mode.ALL
    since: datetime | None = None

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Release:
        """Read ``{"mode", "since"?}``; EndpointError names the field that is wrong."""
        unknown = sorted(str(name) for name in value.keys() - {"mode", "since"})
        if unknown:
            raise EndpointError(
                f"release.{unknown[0][:80]}", "not a field; give mode, and since where it is since"
            )
        mode, since = value.get("mode"), value.get("since")
        if mode not in list(Mode):
            raise EndpointError("release.mode", f"{echo(mode)} is not one of {', '.join(Mode)}")
        if mode != Mode.SINCE:
            if since is not None:
                raise EndpointError("release.since", "give it with mode since only")
            return cls(Mode(mode))
        return cls(Mode.SINCE, _time(since))

    def logged(self) -> dict[str, str]:
        """For the audit log."""
        times = {} if self.since is None else {"since": self.since.isoformat()}
        return {"release": self.mode.value, **times}


ALL = Release()


def check(release: Release) -> None:
    """EndpointError when the time has not come yet, by the database's clock."""
    if release.since is None:
        return
    with psycopg_connection() as connection:
        row = connection.execute(PAST, [release.since]).fetchone()
    if row is None or not row[0]:
        now = "" if row is None else f": it is {row[1]:%Y-%m-%dT%H:%M:%SZ}"
        raise EndpointError("release.since", f"it lies ahead{now}; give a time that has passed")


def cancel_rest(endpoint_id: UUID, release: Release) -> int:
    """Cancel what waits for an endpoint and is not released; answers how many.

    Its lane must be closed. Many small transactions, so the caller should hold none. After
    a crash, and after Unfinished, the endpoint is still closed, and doing it again goes on.
    """
    if release.mode is Mode.ALL:
        return 0
    total, until = 0, time.monotonic() + LONGEST_S
    with psycopg_connection() as connection:
        for cancelled in _cancel(connection, endpoint_id, release):
            total += cancelled
            # Not where there was nothing to cancel: each request gets further than the one before.
            if cancelled and time.monotonic() >= until:
                raise Unfinished(total)
    return total


def _cancel(connection: psycopg.Connection, endpoint_id: UUID, release: Release) -> Iterator[int]:
    """Chunk by chunk. What workers make of open fan-outs meanwhile, the second look finds."""
    make_partitions(connection)
    before = release.since or _now(connection)
    yield from fanouts.withdraw(connection, endpoint_id, NOT_RELEASED, before)
    before = release.since or _now(connection)
    yield from deliveries.cancel_chunks(connection, endpoint_id, NOT_RELEASED, before)


def _now(connection: psycopg.Connection) -> datetime:
    row = connection.execute(NOW).fetchone()
    assert row is not None  # noqa: S101 - a SELECT without FROM has one row
    now: datetime = row[0]
    return now


def _time(text: object) -> datetime:
    try:
        if not isinstance(text, str) or not RFC_3339.fullmatch(text):
            raise ValueError
        return datetime.fromisoformat(text.upper())
    except ValueError as error:
        raise EndpointError(
            "release.since", f"{echo(text)} is not a time with a zone, as 2026-11-30T14:03:05Z"
        ) from error
