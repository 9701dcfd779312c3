"""An endpoint's lane, as far as a person changes it: made, limited, closed, opened again.

Within the caller's transaction, which holds the endpoint's row and has flushed it.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import text

from webhooks.models import Endpoint, db

_MAKE_LANE = text("""
INSERT INTO webhooks.lanes
    (shard, endpoint_id, tenant_id, max_in_flight, rate_limit, rate_burst, host)
VALUES (webhooks.shard_of(:tenant), :endpoint, :tenant, :max_in_flight, :rate_limit, :rate_burst,
        webhooks.host_of(:url))
""")
_SET_LANE = text("""
UPDATE webhooks.lanes
SET max_in_flight = :max_in_flight, rate_limit = :rate_limit, rate_burst = :rate_burst,
    rate_open_at = CASE WHEN (rate_limit, rate_burst) IS NOT DISTINCT FROM
                             (CAST(:rate_limit AS float8), CAST(:rate_burst AS integer))
                        THEN rate_open_at ELSE '-infinity' END
WHERE shard = webhooks.shard_of(:tenant) AND endpoint_id = :endpoint
""")
_MOVE_LANE = text("""
UPDATE webhooks.lanes SET host = webhooks.host_of(:url)
WHERE shard = webhooks.shard_of(:tenant) AND endpoint_id = :endpoint
""")
_CLOSE_LANE = text("""
UPDATE webhooks.lanes
SET open_at = 'infinity', closed_reason = :reason, closed_status = NULL,
    deleted = deleted OR :deleted
WHERE shard = webhooks.shard_of(:tenant) AND endpoint_id = :endpoint
""")
_OPEN_LANE = text("""
UPDATE webhooks.lanes
SET open_at = '-infinity', closed_reason = NULL, closed_status = NULL,
    rate_open_at = '-infinity', failures = 0, blocked = 0, strikes = 0, broken_s = 0,
    failing_since = NULL, failed_at = NULL, warned_at = NULL, throttled_at = NULL,
    throttle_until = '-infinity', blocked_at = NULL
WHERE shard = webhooks.shard_of(:tenant) AND endpoint_id = :endpoint
""")
_WAITS = text("""
SELECT broken_s > 0 OR open_at > now() FROM webhooks.lanes
WHERE shard = webhooks.shard_of(:tenant) AND endpoint_id = :endpoint
FOR NO KEY UPDATE
""")


def make(endpoint: Endpoint) -> None:
    """Its lane, open, in its tenant's shard."""
    db.session.execute(_MAKE_LANE, _limits(endpoint) | {"url": endpoint.url})


def move(endpoint: Endpoint) -> None:
    """Count among what goes to its new URL's host."""
    db.session.execute(_MOVE_LANE, _place(endpoint) | {"url": endpoint.url})


def limit(endpoint: Endpoint) -> None:
    """Follow the endpoint's cap and rate limit; a new rate counts from now on."""
    db.session.execute(_SET_LANE, _limits(endpoint))


def close(endpoint: Endpoint, reason: str, *, deleted: bool = False) -> None:
    """Claim nothing for it any more."""
    db.session.execute(_CLOSE_LANE, _place(endpoint) | {"reason": reason, "deleted": deleted})


def open_again(endpoint: Endpoint) -> None:
    """Claim for it at once, as if it had never failed."""
    db.session.execute(_OPEN_LANE, _place(endpoint))


def waits(endpoint: Endpoint) -> bool:
    """Whether the breaker or the receiver's wish keeps it closed now; locks the lane."""
    return bool(db.session.scalar(_WAITS, _place(endpoint)))


def _place(endpoint: Endpoint) -> dict[str, Any]:
    return {"tenant": endpoint.tenant_id, "endpoint": endpoint.id}


def _limits(endpoint: Endpoint) -> dict[str, Any]:
    names = ("max_in_flight", "rate_limit", "rate_burst")
    return _place(endpoint) | {name: getattr(endpoint, name) for name in names}
