"""How room for one host is shared out over its lanes."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from webhooks.deliveries import HostRoom

HOSTS = st.one_of(st.none(), st.integers(1, 3))


@given(
    limit=st.integers(1, 20),
    held=st.dictionaries(st.integers(1, 3), st.integers(0, 30)),
    hosts=st.lists(HOSTS, max_size=30),
    most=st.integers(1, 10),
)
def test_a_host_never_gets_more_than_its_room(
    limit: int, held: dict[int, int], hosts: list[int | None], most: int
) -> None:
    """Whatever the lanes ask for; without a known host they get what they ask for."""
    room = HostRoom(limit, held)
    mosts = {(0, UUID(int=n), host): most for n, host in enumerate(hosts)}

    shared = room.share(mosts)

    assert all(0 < count <= most for count in shared.values())
    assert all(shared[lane] == most for lane in mosts if lane[2] is None)
    for host in {host for host in hosts if host is not None}:
        given_to = [count for lane, count in shared.items() if lane[2] == host]
        left = max(0, limit - held.get(host, 0))
        assert sum(given_to) <= left
        assert not left or given_to, "nobody gets what there is room for"


def test_lanes_of_one_host_share_its_room() -> None:
    """The first lane does not take all of it."""
    lanes = {(0, UUID(int=n), 1): 50 for n in range(4)}

    assert set(HostRoom(20).share(lanes).values()) == {5}


def test_workers_share_the_limit() -> None:
    """It is the installation's; each worker has at least one, and 0 is no limit."""
    assert HostRoom.of(500, 4, {}).limit == 125
    assert HostRoom.of(2, 4, {}).limit == 1
    assert HostRoom.of(0, 4, {9: 10_000}).full == []
    assert HostRoom.of(500, 0, {}).limit == 500
