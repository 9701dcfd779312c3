"""Room per host: how many deliveries may go to one host at a time, of whatever tenants. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

# Shard, endpoint, and its host as a number (webhooks.host_of).
HostedLane = tuple[int, UUID, int | None]

NO_LIMIT = 2**62


@dataclass(frozen=True, slots=True)
class HostRoom:
    """What one worker may have in hand for one host: its part of the installation's limit.

    Thousands of endpoints, of many tenants, may have one victim; their own caps do not add up
    to a limit. ``held``: what it has in hand, by host.
    """

    limit: int = NO_LIMIT
    held: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, limit: int, workers: int, held: Mapping[int, int]) -> HostRoom:
        """Of so many workers' one; a ``limit`` of 0 is none. At least one for each worker."""
        return cls(max(1, limit // max(1, workers)) if limit else NO_LIMIT, held)

    @property
    def full(self) -> list[int]:
        """The hosts that nothing may be taken for now."""
        return [host for host, held in self.held.items() if held >= self.limit]

    def share(self, mosts: Mapping[HostedLane, int]) -> dict[HostedLane, int]:
        """Less of each lane where its host has too little room for all of them."""
        lanes = Counter(host for _, _, host in mosts)
        left = {host: self._room(host) for host in lanes}
        parts = {host: max(1, room // lanes[host]) for host, room in left.items()}
        shared = {}
        for lane, most in mosts.items():
            host = lane[2]
            granted = min(most, parts[host], left[host])
            left[host] -= granted
            if granted:
                shared[lane] = granted
        return shared

    def _room(self, host: int | None) -> int:
        held = 0 if host is None else self.held.get(host, 0)
        return max(0, (NO_LIMIT if host is None else self.limit) - held)
