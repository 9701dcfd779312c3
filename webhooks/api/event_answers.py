"""What the API says of events, one alone and those of a batch."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from webhooks.api.bodies import Timestamp
from webhooks.api.delivery_lists import Delivery
from webhooks.api.pages import Page
from webhooks.api.problems import FieldError


class AcceptedEvent(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An event that is durable. ``deliveries``: endpoints that get it; ``duplicate``: it is the
    first one with this idempotency key.
    """

    id: str
    deliveries: int
    duplicate: bool


class BatchItem(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What became of one item: 202 with the event, or another status with its errors."""

    status: int
    id: str | UnsetType = UNSET
    deliveries: int | UnsetType = UNSET
    duplicate: bool | UnsetType = UNSET
    errors: list[FieldError] | UnsetType = UNSET


class BatchItems(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One for each item, in the order sent."""

    data: list[BatchItem]


class Fanout(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How many deliveries have been made, and how many there will be."""

    expanded: int
    of: int


class EventDetails(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An event. ``payload_bytes`` null: that is not kept any more; ``fanout``: only as long as
    deliveries are still being made; ``deliveries``: the first page of them.
    """

    id: str
    tenant: str
    type: str
    created_at: Timestamp
    payload_bytes: int | None
    payload_url: str
    fanout: Fanout | UnsetType = UNSET
    deliveries: Page[Delivery]
