"""Roll-ups: what workers counted, added up by minute, hour and day in the database.

Exact but for a worker's crash, or its connection's loss while it adds: then some seconds'
counts are missing. They are never counted twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from operator import add
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from webhooks.db import transaction
from webhooks.deliveries.record import storable
from webhooks.tally import SLOT_S, Counts, Key, Sheet, now

# Stands for all endpoints, and for all tenants.
ALL = UUID(int=0)
WIDTHS_MIN = (1, 60, 1440)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

CLOCK = "SELECT clock_timestamp()"

ADD = """
INSERT INTO webhooks.delivery_counts AS c
    (shard, tenant_id, endpoint_id, width, at, event_type, delivered, failed, dead_lettered,
     durations)
SELECT shard, tenant_id, endpoint_id, width, at, event_type, delivered, failed, dead_lettered,
       durations::bigint[]
FROM unnest(%(shards)s::smallint[], %(tenants)s::uuid[], %(endpoints)s::uuid[],
            %(widths)s::smallint[], %(at)s::timestamptz[], %(event_types)s::text[],
            %(delivered)s::bigint[], %(failed)s::bigint[], %(dead_lettered)s::bigint[],
            %(durations)s::text[])
    AS u (shard, tenant_id, endpoint_id, width, at, event_type, delivered, failed,
          dead_lettered, durations)
ON CONFLICT (shard, tenant_id, endpoint_id, width, at, event_type) DO UPDATE
SET delivered = c.delivered + excluded.delivered, failed = c.failed + excluded.failed,
    dead_lettered = c.dead_lettered + excluded.dead_lettered,
    durations = webhooks.add_counts(c.durations, excluded.durations)
"""

ADD_GROUPS = """
INSERT INTO webhooks.failure_groups AS g
    (shard, tenant_id, endpoint_id, fingerprint, error_class, status_code, detail, first_at,
     last_at, failures, dead_lettered, last_delivery_id)
SELECT shard, tenant_id, endpoint_id, fingerprint, error_class, status_code, detail,
       clock_timestamp() - make_interval(secs => first_s),
       clock_timestamp() - make_interval(secs => last_s), failures, dead_lettered, delivery_id
FROM unnest(%(shards)s::smallint[], %(tenants)s::uuid[], %(endpoints)s::uuid[],
            %(fingerprints)s::bytea[], %(classes)s::text[], %(codes)s::smallint[],
            %(details)s::text[], %(first_s)s::float8[], %(last_s)s::float8[],
            %(failures)s::bigint[], %(dead_lettered)s::bigint[], %(deliveries)s::uuid[])
    AS u (shard, tenant_id, endpoint_id, fingerprint, error_class, status_code, detail, first_s,
          last_s, failures, dead_lettered, delivery_id)
ON CONFLICT (shard, endpoint_id, fingerprint) DO UPDATE
SET detail = excluded.detail, last_at = greatest(g.last_at, excluded.last_at),
    failures = g.failures + excluded.failures,
    dead_lettered = g.dead_lettered + excluded.dead_lettered,
    last_delivery_id = excluded.last_delivery_id,
    state = CASE WHEN g.state = 'acknowledged' AND g.last_at < now() - interval '1 hour'
                 THEN 'open' ELSE g.state END
"""


class Place(NamedTuple):
    """A row of webhooks.delivery_counts."""

    shard: int
    tenant_id: UUID
    endpoint_id: UUID
    width: int
    at: datetime
    event_type: str


def flush(connection: psycopg.Connection, sheet: Sheet) -> None:
    """Add what was counted, in one transaction. If it fails the sheet's counts are lost.

    Sorted, so that workers that add at once never wait for each other in a circle.
    """
    if not sheet.counts:
        return
    with transaction(connection):
        row = connection.execute(CLOCK).fetchone()
        database_now, monotonic_now = (row[0] if row else datetime.now(UTC)), now()
        connection.execute(ADD, _columns(_merged(sheet, database_now, monotonic_now)))
        if sheet.groups:
            connection.execute(ADD_GROUPS, _group_columns(sheet, monotonic_now))


def _merged(sheet: Sheet, database_now: datetime, monotonic_now: float) -> dict[Place, Counts]:
    merged: dict[Place, Counts] = {}
    for key, counts in sheet.counts.items():
        at = database_now - timedelta(seconds=monotonic_now - key.slot * SLOT_S)
        for place in _places(key, at):
            _add(merged.setdefault(place, Counts()), counts)
    return dict(sorted(merged.items()))


def _places(key: Key, at: datetime) -> Iterator[Place]:
    """For its endpoint and event type, its tenant, and the installation; for each width."""
    for width in WIDTHS_MIN:
        start = at - (at - EPOCH) % timedelta(minutes=width)
        yield Place(key.shard, key.tenant_id, key.endpoint_id, width, start, key.event_type)
        yield Place(key.shard, key.tenant_id, ALL, width, start, "")
        yield Place(0, ALL, ALL, width, start, "")


def _add(total: Counts, counts: Counts) -> None:
    total.delivered += counts.delivered
    total.failed += counts.failed
    total.dead_lettered += counts.dead_lettered
    total.durations = list(map(add, total.durations, counts.durations))


def _columns(merged: dict[Place, Counts]) -> dict[str, Any]:
    places, counts = list(merged), merged.values()
    return {
        "shards": [each.shard for each in places],
        "tenants": [each.tenant_id for each in places],
        "endpoints": [each.endpoint_id for each in places],
        "widths": [each.width for each in places],
        "at": [each.at for each in places],
        "event_types": [each.event_type for each in places],
        "delivered": [each.delivered for each in counts],
        "failed": [each.failed for each in counts],
        "dead_lettered": [each.dead_lettered for each in counts],
        "durations": [f"{{{','.join(map(str, each.durations))}}}" for each in counts],
    }


def _group_columns(sheet: Sheet, monotonic_now: float) -> dict[str, Any]:
    keys = sorted(sheet.groups, key=lambda key: (key.shard, key.endpoint_id, key.fingerprint))
    groups = [sheet.groups[key] for key in keys]
    return {
        "shards": [key.shard for key in keys],
        "tenants": [key.tenant_id for key in keys],
        "endpoints": [key.endpoint_id for key in keys],
        "fingerprints": [key.fingerprint for key in keys],
        "classes": [each.error_class for each in groups],
        "codes": [each.status_code for each in groups],
        "details": [storable(each.detail) for each in groups],
        "first_s": [monotonic_now - each.first for each in groups],
        "last_s": [monotonic_now - each.last for each in groups],
        "failures": [each.failures for each in groups],
        "dead_lettered": [each.dead_lettered for each in groups],
        "deliveries": [each.delivery_id for each in groups],
    }
