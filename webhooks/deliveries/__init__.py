"""Every statement that changes a delivery's state; nothing else does.

claim and settle are the worker's, promote, reclaim and give_back keep rows moving when
a retry falls due or a worker dies, cancel, replay and retry_now are a person's.
"""

from webhooks.deliveries.bulk import advance as advance_replay
from webhooks.deliveries.cancelling import cancel_chunks, cancel_endpoint, cancel_orphans
from webhooks.deliveries.claims import Batch, Fenced, claim
from webhooks.deliveries.expiry import MOST_COUNTED, cancel_event, expire, expiring
from webhooks.deliveries.health import show_closed
from webhooks.deliveries.host_room import HostRoom
from webhooks.deliveries.operator import (
    Missing,
    Refused,
    cancel,
    replay,
    retry_now,
)
from webhooks.deliveries.record import Settlement
from webhooks.deliveries.recovery import give_back, held_by, promote, reclaim
from webhooks.deliveries.scan import NO_CURSOR, Cursor, random_cursor
from webhooks.deliveries.settlement import settle
from webhooks.deliveries.targets import target

__all__ = [
    "MOST_COUNTED",
    "NO_CURSOR",
    "Batch",
    "Cursor",
    "Fenced",
    "HostRoom",
    "Missing",
    "Refused",
    "Settlement",
    "advance_replay",
    "cancel",
    "cancel_chunks",
    "cancel_endpoint",
    "cancel_event",
    "cancel_orphans",
    "claim",
    "expire",
    "expiring",
    "give_back",
    "held_by",
    "promote",
    "random_cursor",
    "reclaim",
    "replay",
    "retry_now",
    "settle",
    "show_closed",
    "target",
]
