"""What only the transport on requests has: threads, a watchdog, urllib3's pools."""

from __future__ import annotations

import gc
import ipaddress
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.rawserver import Peer, RawServer, Script, replies, silent
from tests.stack import eventually
from tests.transports import OK, SETTINGS, collect, post, resolver, send
from webhooks.addresses import AddressPolicy
from webhooks.attempt import ErrorClass
from webhooks.settings import Settings
from webhooks.transports.threaded import ThreadsTransport, adapter, watchdog
from webhooks.transports.threaded.connections import Blocked
from webhooks.transports.threaded.transport import MOST_THREADS
from webhooks.transports.threaded.watchdog import Watchdog


@pytest.fixture
def transport() -> Iterator[ThreadsTransport]:
    made = ThreadsTransport(SETTINGS, resolver=resolver())
    yield made
    made.close()


def threads(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


def test_capacity_is_bounded(transport: ThreadsTransport) -> None:
    """As many as the settings say, but never more threads than are of use."""
    few = ThreadsTransport(Settings(max_in_flight=3))
    few.close()

    assert (few.capacity, transport.capacity) == (3, MOST_THREADS)
    assert SETTINGS.max_in_flight > MOST_THREADS


def test_threads_come_with_need_and_one_watches_them_all() -> None:
    """A thread for each request in flight, reused by the next; one watchdog."""
    eventually(lambda: not threads("sender") + threads("watchdog"), what="others' threads end")
    everyone = threading.Semaphore(0)

    def script(peer: Peer) -> None:
        while peer.read() is not None:
            everyone.acquire()
            peer.send(OK)

    transport = ThreadsTransport(SETTINGS)
    with RawServer(script) as server:
        for _ in range(3):
            for key in range(MOST_THREADS):
                transport.start(post(server.url(), key=key, timeout_s=20))
            server.wait_for_requests(MOST_THREADS)
            made = threads("sender"), threads("watchdog")
            server.requests.clear()
            everyone.release(MOST_THREADS)
            assert all(each.status_code == 200 for each in collect(transport, MOST_THREADS))
            assert made == (MOST_THREADS, 1)
    transport.close()


ARENAS = """
import ctypes, threading
from webhooks.settings import Settings
from webhooks.transports.threaded import ThreadsTransport

transport = ThreadsTransport(Settings())
meet = threading.Barrier(40)
def use_memory():
    meet.wait()
    kept = [bytes(5_000) for _ in range(100)]
    meet.wait()
threads = [threading.Thread(target=use_memory) for _ in range(40)]
for each in threads: each.start()
for each in threads: each.join()
ctypes.CDLL(None).malloc_stats()
transport.close()
"""


def test_many_threads_share_few_arenas() -> None:
    """glibc's malloc would give each of them one, and keep what was freed in it."""
    done = subprocess.run(
        [sys.executable, "-c", ARENAS], capture_output=True, text=True, timeout=30, check=True
    )

    assert 1 <= sum(line.startswith("Arena") for line in done.stderr.splitlines()) <= 2


def test_no_thread_can_be_started(
    transport: ThreadsTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """start does not raise: the request fails, or waits for a thread that there is."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    start = threading.Thread.start
    with RawServer(replies(OK)) as server:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        failed = send(transport, post(server.url()))
        monkeypatch.setattr(threading.Thread, "start", start)
        assert send(transport, post(server.url())).status_code == 200
        monkeypatch.setattr(threading.Thread, "start", refuse)
        for key in range(3):
            transport.start(post(server.url(), key=key))
        found = collect(transport, 3)
        monkeypatch.setattr(threading.Thread, "start", start)

    assert (failed.error, failed.detail) == (ErrorClass.CONNECT, "no thread could be started")
    assert [each.status_code for each in found] == [200] * 3


def test_dialling_is_the_last_gate(transport: ThreadsTransport) -> None:
    """A denied address that got past every other check is refused before a packet leaves."""
    with RawServer(replies(OK), host="127.0.0.2") as trap:
        transport._resolver._policy = AddressPolicy(allow=(ipaddress.ip_network("127.0.0.0/8"),))
        transport._resolver._look_up = lambda _host: ["127.0.0.2"]
        response = send(transport, post(trap.url(host="passed.example")))

    assert (response.error, response.detail) == (
        ErrorClass.BLOCKED_ADDRESS,
        "the target address is not allowed",
    )
    assert (trap.connections, response.peer) == (0, None)


def test_a_proxy_is_refused(transport: ThreadsTransport) -> None:
    """Nothing in requests can turn one on."""
    with pytest.raises(Blocked):
        transport._adapter.proxy_manager_for("http://127.0.0.1:3128")


def test_tls_keys_are_written_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """SSLKEYLOGFILE of the process is not for deliveries."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("secure.example").configure_cert(context)
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    names = resolver({"secure.example": ["127.0.0.1"]})
    transport = ThreadsTransport(SETTINGS, resolver=names, ca_file=str(tmp_path / "ca.pem"))
    with RawServer(replies(OK), tls=context) as server:
        assert send(transport, post(server.url(host="secure.example"))).status_code == 200
    transport.close()

    assert not (tmp_path / "keys").exists()


def test_idle_connections_are_bounded_over_all_hosts(transport: ThreadsTransport) -> None:
    """A sweep closes what has been idle for longest when there are too many."""
    with RawServer(replies(OK)) as first, RawServer(replies(OK)) as second:
        for server in (first, second):
            send(transport, post(server.url()))
        transport._adapter.pools.sweep(1)
        for server in (first, second):
            assert send(transport, post(server.url())).status_code == 200

    assert (first.connections, second.connections) == (2, 1)


def test_connections_of_a_dropped_host_do_no_harm(transport: ThreadsTransport) -> None:
    """When urllib3 forgets a host's pool while a request to it is under way, that one ends well."""
    go = threading.Event()

    def script(peer: Peer) -> None:
        while peer.read() is not None:
            go.wait(5)
            peer.send(OK)

    with RawServer(script) as server:
        transport.start(post(server.url()))
        server.wait_for_requests(1)
        transport._adapter.pools.clear()
        go.set()
        first = collect(transport, 1)[0]
        second = send(transport, post(server.url()))

    assert (first.status_code, second.status_code, server.connections) == (200, 200, 2)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What is in a cycle stays."""
    gc.disable()
    yield
    gc.enable()


def keep_or_hang_up(ended: list[str]) -> Script:
    """Answers /good and keeps the connection, else hangs up; what ended is in ``ended``."""

    def script(peer: Peer) -> None:
        while (request := peer.read()) is not None:
            if request.target != "/good":
                return
            peer.send(OK)
        ended.append("kept")

    return script


@pytest.mark.usefixtures("no_collector")
def test_close_ends_kept_connections_also_after_an_error() -> None:
    """Nothing is left to the garbage collector, though an error holds its pool in a cycle."""
    transport = ThreadsTransport(SETTINGS)
    ended: list[str] = []
    with RawServer(keep_or_hang_up(ended)) as server:
        failed = send(transport, post(server.url("/bad")))
        kept = send(transport, post(server.url("/good")))
        assert (failed.error, kept.status_code, ended) == (ErrorClass.CONNECT, 200, [])
        transport.close()
        eventually(lambda: ended == ["kept"], 2, "the kept connection ends")


@pytest.mark.usefixtures("no_collector")
def test_a_host_that_falls_out_loses_its_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, also after an error: urllib3 keeps no more hosts than it is told to."""
    monkeypatch.setattr(adapter, "MOST_HOSTS", 1)
    transport = ThreadsTransport(SETTINGS)
    ended: list[str] = []
    with RawServer(keep_or_hang_up(ended)) as server, RawServer(replies(OK)) as other:
        for path in ("/bad", "/good"):
            send(transport, post(server.url(path)))
        assert send(transport, post(other.url())).status_code == 200
        eventually(lambda: ended == ["kept"], 2, "the first host's connection ends")
    transport.close()


def test_a_host_that_falls_out_a_moment_before_it_is_used_is_reached(
    transport: ThreadsTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pool may close between look-up and use: the request goes out all the same."""
    find = transport._adapter.get_connection_with_tls_context

    def find_closed(*args: Any, **more: Any) -> Any:
        pool = find(*args, **more)
        pool.close()
        return pool

    monkeypatch.setattr(transport._adapter, "get_connection_with_tls_context", find_closed)
    with RawServer(replies(OK)) as server:
        assert send(transport, post(server.url())).status_code == 200


# The watchdog


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(2)
        yield ours, theirs


def test_a_watch_that_ended_cuts_nothing(pair: tuple[socket.socket, socket.socket]) -> None:
    """The connection may be another attempt's by then."""
    dog = Watchdog()
    watch = dog.watch(time.monotonic() + 0.05)
    cord = watch.tie(pair[0])
    watch.end()
    time.sleep(0.15)
    pair[1].settimeout(0.05)

    assert not watch.fired
    with pytest.raises(TimeoutError):
        pair[1].recv(1)
    dog.close()
    cord.close()


def test_what_is_over_is_forgotten_long_before_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of short attempts under long deadlines do not pile up."""
    monkeypatch.setattr(watchdog, "MOST_IDLE_ENTRIES", 100)
    dog = Watchdog()
    open_one = dog.watch(time.monotonic() + 60)
    for _ in range(5_000):
        watch = dog.watch(time.monotonic() + 60)
        watch.move(time.monotonic() + 50)
        watch.end()

    assert len(dog._heap) < 200
    assert any(entry[2] is open_one for entry in dog._heap)
    dog.close()


def test_close_cuts_what_is_open_and_what_comes_later(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """After close nothing hangs until its deadline."""
    dog = Watchdog()
    early = dog.watch(time.monotonic() + 60)
    dog.close()
    late = dog.watch(time.monotonic() + 60)
    cord = late.tie(pair[0])

    assert early.fired
    assert late.fired
    assert pair[1].recv(1) == b""
    cord.close()


def test_a_connection_is_not_closed_while_it_is_cut(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number could be another connection's by the time that the cut comes."""
    dog = Watchdog()
    cutting, go_on, closed = threading.Event(), threading.Event(), threading.Event()
    cord = dog.watch(time.monotonic() + 0.05).tie(pair[0])

    def cut() -> None:
        cutting.set()
        go_on.wait(5)

    def close() -> None:
        cord.close()
        closed.set()

    monkeypatch.setattr(cord, "pull", cut)
    closing = threading.Thread(target=close)
    assert cutting.wait(5)
    closing.start()
    early = closed.wait(0.1)
    go_on.set()
    closing.join(5)

    assert (early, closed.is_set()) == (False, True)
    dog.close()


def test_nothing_is_sent_after_close() -> None:
    """What waited for a thread is dropped."""
    transport = ThreadsTransport(
        Settings(allow_http=True, allow_cidrs=SETTINGS.allow_cidrs, max_in_flight=1)
    )
    with RawServer(silent) as server:
        transport.start(post(server.url("/first"), timeout_s=20))
        server.wait_for_requests(1)
        transport.start(post(server.url("/second"), timeout_s=20))
        transport.close()
        time.sleep(0.2)

    assert [request.target for request in server.requests] == ["/first"]
