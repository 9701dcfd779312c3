"""Everything hostile at once: classes, memory, and a good endpoint served meanwhile."""

from __future__ import annotations

import subprocess
import sys
from ipaddress import ip_network

import pytest

from tests.conformance.answers import ANSWERS, HEAD
from tests.rawserver import Peer, RawServer, raw, replies, silent
from tests.transports import OK, Make, collect, post, send
from webhooks import sending
from webhooks.attempt import ErrorClass
from webhooks.files import find
from webhooks.settings import Settings
from webhooks.transports.base import Transport

SETTINGS = Settings(allow_http=True, allow_cidrs=(ip_network("127.0.0.1/32"),), max_in_flight=60)


@pytest.mark.parametrize("name", ANSWERS)
def test_a_hostile_answer_has_its_class(transport: Transport, name: str) -> None:
    """Every answer of the list ends as the list says, and what is kept of it is bounded."""
    data, error, status = ANSWERS[name]
    with RawServer(raw(data)) as server:
        outcome = sending.outcome(send(transport, post(server.url(), timeout_s=3)))

    assert (outcome.error, outcome.status_code) == (error, status), outcome.detail
    assert len(outcome.body) <= 65_536
    assert len(outcome.response_headers) <= 50
    assert all(len(n) + len(v) <= 1024 for n, v in outcome.response_headers)
    assert "\0" not in outcome.detail


def drip(peer: Peer) -> None:
    """A byte of a head every 50 ms."""
    peer.read()
    peer.drip(HEAD * 100, 0.05)


def test_a_good_endpoint_is_served_meanwhile(make: Make) -> None:
    """With two dozen attempts that hang or drip, a good one is answered at once."""
    transport = make(SETTINGS)
    with RawServer(silent) as hanging, RawServer(drip) as dripping, RawServer(replies(OK)) as good:
        for n in range(24):
            transport.start(post((hanging if n % 2 else dripping).url(), key=n, timeout_s=1.5))
        answers = [send(transport, post(good.url(), key="good")) for _ in range(20)]
        ended = collect(transport, 24, 5)
    transport.close()

    assert [answer.status_code for answer in answers] == [200] * 20
    assert max(answer.finished - answer.started for answer in answers) < 1
    assert {each.error for each in ended} == {ErrorClass.TIMEOUT}
    assert all(1.4 < each.finished - each.started < 2.0 for each in ended)


@pytest.mark.timeout(0)  # it ends by itself
def test_memory_does_not_grow_with_what_receivers_send(chaos_scale: float) -> None:
    """The whole list, floods and random faults, a hundred times over both: less than 10 MB more.

    In a process of its own, which has been through it before: SECURITY.md's promise 4.
    """
    rounds = str(max(1, round(100 * chaos_scale)))
    grown = subprocess.run(
        [sys.executable, "-m", "tests.conformance.grow", rounds],
        capture_output=True, text=True, check=True, cwd=find("tests").parent,
        timeout=110 * max(1.0, chaos_scale),
    )  # fmt: skip
    assert int(grown.stdout) < 10 * 1024, f"grown by {grown.stdout} kB"
