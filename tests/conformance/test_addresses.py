"""Only checked addresses are dialled."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import threading

import pytest

from tests.rawserver import RawServer, raw, replies, silent
from tests.transports import (
    OK,
    SETTINGS,
    SHORT_S,
    Make,
    collect,
    post,
    resolver,
    send,
)
from webhooks import resolver as resolving
from webhooks.addresses import AddressPolicy
from webhooks.attempt import ErrorClass
from webhooks.resolver import Resolver
from webhooks.transports.base import Transport


def test_blocked_address_is_never_dialled(make: Make, transport: Transport) -> None:
    """Literals, spellings and names of denied addresses: no connection, one text for names."""
    names = {
        "mixed.example": ["127.0.0.1", "127.0.0.2"],
        "inner.example": ["127.0.0.2"],
        "six.example": ["fd00::1"],
        "nobody.example": [],
    }
    guarded = make(SETTINGS, resolver=resolver(names))
    with RawServer(replies(OK), host="127.0.0.2") as trap:
        hosts = ["127.0.0.2", "[::ffff:127.0.0.2]", "169.254.169.254", *names]
        hosts.append("metadata.google.internal")
        found = [send(guarded, post(trap.url(host=host), key=host)) for host in hosts]
    guarded.close()

    assert {r.error for r in found} == {ErrorClass.BLOCKED_ADDRESS}
    assert {r.detail for r in found if r.request.key in names} == {
        "the target address is not allowed"
    }
    assert {(r.peer, r.status_code, r.body) for r in found} == {(None, None, b"")}
    assert trap.connections == 0


def test_rebinding_reaches_only_what_was_checked(make: Make) -> None:
    """Over 100 attempts a name that flips between look-ups never reaches the inside (W035)."""
    flips = iter([["127.0.0.1"], ["127.0.0.2"]] * 100)
    rebinding = Resolver(AddressPolicy.from_settings(SETTINGS), lambda _host: next(flips))
    transport = make(SETTINGS, resolver=rebinding)
    with RawServer(replies(OK)) as server, RawServer(replies(OK), host="127.0.0.2") as trap:
        for _ in range(100):
            rebinding._kept.clear()
            response = send(transport, post(server.url(host="flip.example")))
            assert response.error in (None, ErrorClass.BLOCKED_ADDRESS)
    transport.close()

    assert trap.connections == 0
    assert server.requests[0].header("host") == f"flip.example:{server.port}"


def test_name_is_looked_up_once_and_pinned(make: Make) -> None:
    """One look-up serves many attempts; a new answer is followed by new connections."""
    asked: list[str] = []
    answers = ["127.0.0.1"]

    def look_up(host: str) -> list[str]:
        asked.append(host)
        return list(answers)

    counting = Resolver(AddressPolicy.from_settings(SETTINGS), look_up)
    transport = make(SETTINGS, resolver=counting)
    with RawServer(raw(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")) as server:
        first = [send(transport, post(server.url(host="moves.example"))) for _ in range(5)]
        answers[:] = ["::1"]
        counting._kept.clear()
        second = send(transport, post(server.url(host="moves.example")))
    transport.close()

    assert [response.peer for response in first] == ["127.0.0.1"] * 5
    assert len(asked) == 2
    assert second.error is ErrorClass.CONNECT  # nobody listens on ::1


def test_what_is_known_is_not_looked_up_and_not_timed(transport: Transport) -> None:
    """Only an attempt that waited for a look-up has a DNS phase."""
    with RawServer(replies(OK)) as server:
        url = server.url(host="receiver.example")
        first, second = (send(transport, post(url)).timings for _ in range(2))

    assert first.dns_ms is not None
    assert first.connect_ms is not None
    assert 0 < first.dns_ms <= first.connect_ms
    assert (second.dns_ms, second.connect_ms) == (None, None)


def test_dead_address_falls_back_to_the_next(transport: Transport) -> None:
    """With one dead and one live answer the live one is reached in time (W040)."""
    transport._resolver._look_up = lambda _host: ["::1", "127.0.0.1"]
    with RawServer(replies(OK)) as server:
        response = send(transport, post(server.url(host="two.example")))

    assert (response.status_code, response.peer) == (200, "127.0.0.1")


def test_silent_address_does_not_eat_the_timeout(transport: Transport) -> None:
    """An address that swallows packets is passed over after a moment (W040, W041)."""
    transport._resolver._look_up = lambda _host: ["::1", "127.0.0.1"]
    with RawServer(replies(OK)) as server, contextlib.ExitStack() as stack:
        # A full backlog answers no SYN.
        hole = stack.enter_context(socket.socket(socket.AF_INET6))
        hole.bind(("::1", server.port))
        hole.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket(socket.AF_INET6))
            filler.setblocking(False)
            filler.connect_ex(("::1", server.port))
        response = send(transport, post(server.url(host="two.example")))

    assert (response.status_code, response.peer) == (200, "127.0.0.1")
    assert response.finished - response.started < 1


def test_own_host_names_are_never_dialled(make: Make) -> None:
    """Row 33: a row that names the installation itself is blocked before any look-up."""
    asked: list[str] = []

    def look_up(host: str) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    own = dataclasses.replace(SETTINGS, deny_hosts=("hooks.example",))
    transport = make(own, resolver=Resolver(AddressPolicy.from_settings(own), look_up))
    with RawServer(replies(OK)) as server:
        response = send(transport, post(server.url(host="hooks.example")))
    transport.close()

    assert response.error is ErrorClass.BLOCKED_ADDRESS
    assert (asked, server.connections) == ([], 0)


def test_old_answer_serves_while_the_dns_is_silent(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silent name servers cost the first delivery to a known host a moment, the next nothing."""
    monkeypatch.setattr(resolving, "KEEP_S", 0.0)
    release = threading.Event()
    answers = [["127.0.0.1"]]

    def look_up(_host: str) -> list[str]:
        if not answers:
            release.wait(10)
            return []
        return answers.pop()

    silent_dns = Resolver(AddressPolicy.from_settings(SETTINGS), look_up)
    transport = make(SETTINGS, resolver=silent_dns)
    with RawServer(raw(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")) as server:
        request = post(server.url(host="known.example"), timeout_s=SHORT_S)
        found = [send(transport, request) for _ in range(3)]
    release.set()
    transport.close()

    spent = [response.finished - response.started for response in found]
    assert [response.status_code for response in found] == [200, 200, 200]
    assert SHORT_S / 2 <= spent[1] < SHORT_S
    assert spent[2] < SHORT_S / 2


def test_unknown_name(transport: Transport) -> None:
    """A name that does not exist: dns, with the reason."""
    response = send(transport, post("https://gone.example/"))

    assert response.error is ErrorClass.DNS
    assert response.detail == "the host name has no address: Name or service not known"


def test_slow_look_up_does_not_block_the_others(transport: Transport) -> None:
    """While one name hangs, other requests are served; the hanging one ends as dns."""
    release = threading.Event()

    def look_up(host: str) -> list[str]:
        if host == "hang.example":
            release.wait(10)
        return ["127.0.0.1"]

    transport._resolver._look_up = look_up
    with RawServer(replies(OK)) as server:
        transport.start(post(server.url(host="hang.example"), key="slow", timeout_s=SHORT_S))
        for key in range(10):
            transport.start(post(server.url(host="fine.example"), key=key))
        found = collect(transport, 10)
        (slow,) = collect(transport, 1)
        release.set()

    assert all(response.status_code == 200 for response in found)
    assert (slow.request.key, slow.error) == ("slow", ErrorClass.DNS)
    assert slow.detail == "the host name was not resolved within 0.4 s"
    assert SHORT_S <= slow.finished - slow.started < SHORT_S + 0.3


def test_total_deadline_includes_the_look_up(transport: Transport) -> None:
    """Time spent on the name is not given again to the answer."""

    def look_up(_host: str) -> list[str]:
        threading.Event().wait(0.25)
        return ["127.0.0.1"]

    transport._resolver._look_up = look_up
    with RawServer(silent) as server:
        response = send(transport, post(server.url(host="slow.example"), timeout_s=0.5))

    assert response.error is ErrorClass.TIMEOUT
    assert 0.49 <= response.finished - response.started < 0.7
    assert response.timings.dns_ms == pytest.approx(250, abs=100)


def test_ipv6_literal(transport: Transport) -> None:
    """An allowed IPv6 literal is dialled with its brackets in Host."""
    with RawServer(replies(OK), host="::1") as server:
        response = send(transport, post(server.url()))

    assert (response.status_code, response.peer) == (200, "::1")
    assert server.requests[0].header("host") == f"[::1]:{server.port}"
