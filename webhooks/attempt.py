"""What passes between the database side and the network side: frozen values.

They are made by the thousand each second: a msgspec Struct costs a sixth of a frozen
dataclass, and without cycles it need not be tracked by the garbage collector.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any
from uuid import UUID

from msgspec import Struct

# Which attempt a request is; every delivery carries it, and nothing else does.
ATTEMPT_HEADER = "webhook-attempt"


class Status(StrEnum):
    """A delivery's state.

    PENDING may be claimed now · IN_FLIGHT is being sent by a live worker ·
    SCHEDULED waits for its retry · DELIVERED, DEAD_LETTERED and CANCELLED are final
    until someone replays it.
    """

    PENDING = "pending"
    IN_FLIGHT = "in_flight"
    SCHEDULED = "scheduled"
    DELIVERED = "delivered"
    DEAD_LETTERED = "dead_lettered"
    CANCELLED = "cancelled"


LIVE = (Status.PENDING, Status.IN_FLIGHT, Status.SCHEDULED)
FINISHED = (Status.DELIVERED, Status.DEAD_LETTERED, Status.CANCELLED)


class Trigger(StrEnum):
    """Why a delivery is tried: its event or its ladder, a person, or a bulk replay."""

    SCHEDULE = "schedule"
    MANUAL = "manual"
    BULK = "bulk"


class ErrorClass(StrEnum):
    """Why an attempt failed."""

    DNS = "dns"
    CONNECT = "connect"
    TLS = "tls"
    TIMEOUT = "timeout"
    PROTOCOL = "protocol"
    BLOCKED_ADDRESS = "blocked_address"
    PROXY = "proxy"
    INVALID_URL = "invalid_url"
    REDIRECT = "redirect"
    HTTP_4XX = "http_4xx"
    HTTP_5XX = "http_5xx"
    WORKER_LOST = "worker_lost"
    INTERNAL = "internal"


class Target(Struct, frozen=True, gc=False):
    """An endpoint as it was when a worker claimed deliveries for it.

    ``secrets`` are ciphertexts as (row id, ciphertext), newest first; ``retry_policy``
    is the endpoint's own, or None for the installation's. ``schemes`` are names of signing
    schemes; ``headers`` the ciphertext of its custom headers; ``ca_pem`` its own CA.
    """

    endpoint_id: UUID
    tenant_id: UUID
    url: str
    timeout_s: float
    secrets: tuple[tuple[UUID, str], ...]
    retry_policy: Mapping[str, Any] | None = None
    schemes: tuple[str, ...] = ("standard",)
    headers: str | None = None
    ca_pem: str | None = None


class Claim(Struct, frozen=True, gc=False):
    """One delivery that this worker holds.

    ``worker_id`` and ``attempt`` (its number, from 1) are the fence; ``tries`` counts what was
    charged before it; ``lost`` the workers lost under it. ``payload`` or ``target``
    is None when its row is missing. ``host``: where it goes to, as a number.
    """

    delivery_id: UUID
    shard: int
    tenant_id: UUID
    event_id: UUID
    endpoint_id: UUID
    event_type: str
    attempt: int
    tries: int
    lost: int
    trigger: str
    payload: bytes | None
    target: Target | None
    worker_id: UUID | None = None
    host: int | None = None


class Timings(Struct, frozen=True, gc=False):
    """Milliseconds from the start of the attempt to the end of each phase; None: not reached."""

    dns_ms: float | None = None
    connect_ms: float | None = None
    tls_ms: float | None = None
    first_byte_ms: float | None = None
    total_ms: float | None = None


Headers = tuple[tuple[str, str], ...]


class Outcome(Struct, frozen=True, gc=False):
    """The verdict of one attempt. Delivered when ``error`` is None.

    ``started`` and ``finished`` are readings of time.monotonic(), in seconds;
    ``retry_after_s`` is what the receiver asked for, clamped to [0, 86400].
    """

    error: ErrorClass | None
    detail: str = ""
    status_code: int | None = None
    retry_after_s: float | None = None
    started: float = 0.0
    finished: float = 0.0
    url: str = ""
    peer: str | None = None
    timings: Timings = Timings()
    request_headers: Headers = ()
    response_headers: Headers = ()
    body: bytes = b""
    truncated: bool = False

    @property
    def delivered(self) -> bool:
        return self.error is None

    @property
    def retryable(self) -> bool:
        """False: the delivery is dead-lettered at once, whatever the policy says."""
        return self.status_code != 410 and self.error not in (
            ErrorClass.INVALID_URL,
            ErrorClass.INTERNAL,
        )


class Withheld(Outcome, frozen=True, gc=False):
    """No attempt was made: nothing can sign it here now, for the reason in ``detail``.

    The claim is to be given back; no try is charged.
    """
