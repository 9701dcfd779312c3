"""How host names become addresses: checked, remembered, bounded in time, fair."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from ipaddress import ip_address, ip_network

import pytest

from webhooks import lookups
from webhooks import resolver as resolving
from webhooks.addresses import AddressPolicy, UrlError
from webhooks.resolver import Answer, DnsError, Resolver, check_resolved

CLOSED = AddressPolicy()
DEVELOPMENT = AddressPolicy(
    allow_http=True, allow=(ip_network("127.0.0.0/8"), ip_network("::1/128"))
)
NOT_ALLOWED = "the target address is not allowed"
GOOD = ("1.1.1.1",)


def made(answers: dict[str, list[str]], policy: AddressPolicy = CLOSED) -> Resolver:
    def look_up(host: str) -> list[str]:
        if host not in answers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return answers[host]

    return Resolver(policy, look_up)


def test_allowed_answers_are_returned_in_order() -> None:
    """All public: all of them, once each, in the order to dial."""
    answers = ["2606:4700::1111", "1.1.1.1", "1.0.0.1", "1.1.1.1"]
    assert made({"a.example": answers}).resolve("a.example") == tuple(answers[:3])


@pytest.mark.parametrize(
    "answers",
    [["1.1.1.1", "10.0.0.1"], ["10.0.0.1"], ["1.1.1.1", "::1"], ["fe80::1%2"], ["::ffff:7f00:1"],
     ["1.1.1.1"] * 20 + ["127.0.0.1"], []],
)  # fmt: skip
def test_one_denied_answer_refuses_the_name(answers: list[str]) -> None:
    """Rows 29 and 30: mixed answers are refused as a whole, with the one text (W034)."""
    with pytest.raises(UrlError, match=NOT_ALLOWED):
        made({"a.example": answers}).resolve("a.example")


def test_unknown_and_unspeakable_names_are_dns_errors() -> None:
    """Row 32: not found, and what getaddrinfo cannot even encode."""
    with pytest.raises(DnsError, match="Name or service not known"):
        made({}).resolve("gone.example")
    with pytest.raises(DnsError, match="cannot be looked up"):
        Resolver(CLOSED).resolve("a..b")


def test_localhost_is_what_the_operator_opened() -> None:
    """No DNS is asked for localhost; closed loopback addresses are not in the answer."""
    only_v4 = AddressPolicy(allow=(ip_network("127.0.0.0/8"),))
    assert made({}, DEVELOPMENT).resolve("localhost") == ("127.0.0.1", "::1")
    assert made({}, only_v4).resolve("localhost") == ("127.0.0.1",)
    with pytest.raises(UrlError, match=NOT_ALLOWED):
        made({}).resolve("localhost")


def test_answers_are_kept_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """One look-up serves a minute; failures are forgotten after 5 s."""
    now = [1000.0]
    asked: list[str] = []
    answers = {"a.example": ["1.1.1.1"]}

    def look_up(host: str) -> list[str]:
        asked.append(host)
        if host not in answers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return answers[host]

    resolver = Resolver(CLOSED, look_up)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    for _ in range(3):
        assert resolver.resolve("a.example") == ("1.1.1.1",)
    answers["a.example"] = ["1.0.0.1"]
    now[0] += 59.9
    assert resolver.resolve("a.example") == ("1.1.1.1",)
    now[0] += 0.2
    assert resolver.resolve("a.example") == ("1.0.0.1",)
    assert len(asked) == 2

    for wait_s, count in ((0.0, 3), (4.9, 3), (0.2, 4)):
        now[0] += wait_s
        with pytest.raises(DnsError):
            resolver.resolve("gone.example")
        assert len(asked) == count


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many names push out the oldest."""
    monkeypatch.setattr(resolving, "MOST_KEPT", 3)
    resolver = made({f"{n}.example": ["1.1.1.1"] for n in range(5)})
    for n in range(5):
        resolver.resolve(f"{n}.example")

    assert [resolver.known(f"{n}.example") is not None for n in range(5)] == [False] * 2 + [
        True
    ] * 3


def test_hanging_name_ends_in_time_and_blocks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up that never ends costs its deadline and one thread, however often it is asked."""
    monkeypatch.setattr(resolving, "DEADLINE_S", 0.1)
    release = threading.Event()

    def look_up(host: str) -> list[str]:
        if host == "hang.example":
            release.wait(10)
        return ["1.1.1.1"]

    resolver = Resolver(CLOSED, look_up)
    began = time.monotonic()
    for _ in range(5):
        with pytest.raises(DnsError, match=r"not resolved within 0\.1 s"):
            resolver.resolve("hang.example")
    assert resolver.resolve("fine.example") == ("1.1.1.1",)
    spent = time.monotonic() - began
    threads = resolver._lookups.threads
    release.set()
    resolver.close()

    assert spent < 2
    assert threads == 2


def test_threads_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many names are asked for at once, the pool stays small."""
    monkeypatch.setattr(lookups, "THREADS", 3)
    release = threading.Event()
    done = threading.Semaphore(0)

    def look_up(_host: str) -> list[str]:
        release.wait(10)
        return ["1.1.1.1"]

    resolver = Resolver(CLOSED, look_up)
    for n in range(20):
        resolver.ask(f"{n}.example", lambda _host, _answer: done.release())
    assert resolver._lookups.threads == 3
    release.set()
    for _ in range(20):
        assert done.acquire(timeout=5)
    resolver.close()


def test_the_system_is_asked_by_default() -> None:
    """Without anything else the machine's own resolver answers."""
    addresses = resolving.look_up_by_system("localhost")

    assert addresses
    assert all(ip_address(address).is_loopback for address in addresses)


# Answers that are no longer fresh


class Dns:
    """A name server that answers, fails or hangs, as it is told; it counts."""

    def __init__(self) -> None:
        self.answer: list[str] | int | None = ["1.1.1.1"]
        self.silent: Callable[[str], bool] = lambda _host: False
        self.release = threading.Event()
        self.asked: list[str] = []
        self.hanging = self.most_hanging = 0
        self._lock = threading.Lock()

    def __call__(self, host: str) -> list[str]:
        self.asked.append(host)
        if self.silent(host):
            self._hang()
        if isinstance(self.answer, int):
            raise socket.gaierror(self.answer, "as the test said")
        return list(self.answer or [])

    def _hang(self) -> None:
        with self._lock:
            self.hanging += 1
            self.most_hanging = max(self.most_hanging, self.hanging)
        self.release.wait(20)
        with self._lock:
            self.hanging -= 1


@pytest.fixture
def dns() -> Iterator[Dns]:
    made = Dns()
    yield made
    made.release.set()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("error", [socket.EAI_AGAIN, socket.EAI_FAIL, socket.EAI_SYSTEM])
def test_old_answer_serves_while_the_dns_fails(dns: Dns, clock: list[float], error: int) -> None:
    """No servers, SERVFAIL: what was good is used for ten minutes, asking again every 5 s."""
    resolver = Resolver(CLOSED, dns)
    assert resolver.resolve("a.example") == GOOD
    dns.answer = error
    for wait_s, asked in ((61.0, 2), (4.9, 2), (0.2, 3), (533.0, 4)):
        clock[0] += wait_s
        assert resolver.resolve("a.example") == GOOD
        assert len(dns.asked) == asked

    clock[0] += 1.0  # 600.1 s after the good answer
    with pytest.raises(DnsError, match="as the test said"):
        resolver.resolve("a.example")


def test_old_answer_gives_way_to_a_new_one(dns: Dns, clock: list[float]) -> None:
    """As soon as the DNS answers again, it is the new address that counts."""
    resolver = Resolver(CLOSED, dns)
    resolver.resolve("a.example")
    clock[0] += 61
    dns.answer = socket.EAI_AGAIN
    assert resolver.resolve("a.example") == GOOD
    clock[0] += 5.1
    dns.answer = ["1.0.0.1"]
    assert resolver.resolve("a.example") == ("1.0.0.1",)


def test_a_name_that_is_gone_is_not_served_from_memory(dns: Dns, clock: list[float]) -> None:
    """NXDOMAIN is an answer: the old address may be somebody else's by now."""
    resolver = Resolver(CLOSED, dns)
    resolver.resolve("a.example")
    clock[0] += 61
    dns.answer = socket.EAI_NONAME
    with pytest.raises(DnsError):
        resolver.resolve("a.example")
    dns.answer = socket.EAI_AGAIN
    clock[0] += 5.1
    with pytest.raises(DnsError):
        resolver.resolve("a.example")


def test_a_denied_answer_ends_the_old_one(dns: Dns, clock: list[float]) -> None:
    """A name that moves inside is refused, and stays refused while the DNS fails."""
    resolver = Resolver(CLOSED, dns)
    resolver.resolve("a.example")
    clock[0] += 61
    dns.answer = ["10.0.0.1"]
    with pytest.raises(UrlError, match=NOT_ALLOWED):
        resolver.resolve("a.example")
    clock[0] += 61
    dns.answer = socket.EAI_AGAIN
    with pytest.raises(DnsError):
        resolver.resolve("a.example")


def test_old_answer_serves_while_the_dns_is_silent(
    dns: Dns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first who waits in vain gets the old answer, the next ones at once.

    Who has an old answer does not wait as long for a new one as who has none.
    """
    monkeypatch.setattr(resolving, "STALE_AFTER_S", 0.2)
    monkeypatch.setattr(resolving, "KEEP_S", 0.0)
    resolver = Resolver(CLOSED, dns)
    assert resolver.resolve("a.example") == GOOD
    dns.silent = lambda _host: True

    spent = []
    for _ in range(20):
        began = time.monotonic()
        assert resolver.resolve("a.example") == GOOD
        spent.append(time.monotonic() - began)

    assert 0.2 <= spent[0] < 1
    assert max(spent[1:]) < 0.1
    assert len(dns.asked) == 2


def test_old_answer_ends_after_ten_minutes_of_silence(
    dns: Dns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look-up that never ends does not keep an address alive for ever."""
    monkeypatch.setattr(resolving, "DEADLINE_S", 0.05)
    monkeypatch.setattr(resolving, "KEEP_S", 0.0)
    monkeypatch.setattr(resolving, "STALE_S", 0.5)
    resolver = Resolver(CLOSED, dns)
    resolver.resolve("a.example")
    dns.silent = lambda _host: True
    assert resolver.resolve("a.example") == GOOD

    time.sleep(0.5)
    with pytest.raises(DnsError, match=r"not resolved within 0\.05 s"):
        resolver.resolve("a.example")


# Names whose DNS is silent


def test_silent_names_leave_threads_to_the_others(
    dns: Dns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names that hung before hold half of the threads at most, though ten times as many wait."""
    monkeypatch.setattr(resolving, "DEADLINE_S", 0.1)
    monkeypatch.setattr(lookups, "THREADS", 8)
    resolver = Resolver(CLOSED, dns)
    dns.silent = lambda host: host.startswith("silent")
    bad = [f"silent{n}.example" for n in range(8)]
    for host in bad:  # each hangs once, and ends late
        resolver.ask(host, lambda _host, _answer: None)
    eventually(lambda: dns.hanging == 8)
    time.sleep(0.15)
    dns.release.set()
    eventually(lambda: dns.hanging == 0 and not resolver._questions)

    dns.release.clear()
    dns.most_hanging = 0
    resolver._kept.clear()
    for n in range(80):
        resolver.ask(bad[n % 8], lambda _host, _answer: None)
    eventually(lambda: dns.hanging == 4)
    began = time.monotonic()
    for n in range(40):
        assert resolver.resolve(f"fresh{n}.example", 2.0) == GOOD

    assert time.monotonic() - began < 1
    assert (dns.hanging, dns.most_hanging) == (4, 4)


def test_a_name_that_answers_again_is_like_the_others(
    dns: Dns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look-up in time, and the name has all threads open to it again."""
    monkeypatch.setattr(resolving, "DEADLINE_S", 0.05)
    resolver = Resolver(CLOSED, dns)
    dns.silent = lambda _host: True
    with pytest.raises(DnsError):
        resolver.resolve("a.example")
    dns.release.set()
    eventually(lambda: "a.example" in resolver._lookups._slow)

    resolver._kept.clear()
    assert resolver.resolve("a.example", 2.0) == GOOD
    eventually(lambda: "a.example" not in resolver._lookups._slow)


def test_nobody_is_asked_for_who_has_given_up(dns: Dns, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that waited too long for a thread is not looked up any more; all get an answer."""
    monkeypatch.setattr(resolving, "DEADLINE_S", 0.1)
    monkeypatch.setattr(lookups, "THREADS", 2)
    resolver = Resolver(CLOSED, dns)
    dns.silent = lambda host: host.startswith("silent")
    found: dict[str, Answer] = {}
    hosts = ["silent0.example", "silent1.example", *(f"late{n}.example" for n in range(50))]
    for host in hosts:
        resolver.ask(host, found.__setitem__)
    time.sleep(0.2)
    dns.release.set()
    eventually(lambda: len(found) == len(hosts))

    assert sorted(dns.asked) == ["silent0.example", "silent1.example"]
    assert resolver.resolve("late0.example", 2.0) == GOOD


# Registration


def test_registration_looks_the_name_up(dns: Dns) -> None:
    """Rows 29, 30 and 32: a denied answer refuses, no answer warns, a good one says nothing."""
    assert check_resolved("https://a.example/", Resolver(CLOSED, dns)) is None
    dns.answer = ["1.1.1.1", "10.0.0.1"]
    with pytest.raises(UrlError) as caught:
        check_resolved("https://a.example/", Resolver(CLOSED, dns))
    assert (str(caught.value), caught.value.policy) == (NOT_ALLOWED, True)
    for error in (socket.EAI_NONAME, socket.EAI_AGAIN):
        dns.answer = error
        assert check_resolved("https://a.example/", Resolver(CLOSED, dns)) == (
            "the host name has no address: as the test said; "
            "deliveries fail until it can be resolved"
        )


def test_registration_does_not_wait_for_a_silent_dns(
    dns: Dns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 32: after its time the look-up is a warning, too."""
    monkeypatch.setattr(resolving, "DEADLINE_S", 0.1)
    dns.silent = lambda _host: True
    began = time.monotonic()
    warning = check_resolved("https://a.example/", Resolver(CLOSED, dns))

    assert time.monotonic() - began < 1
    assert warning == (
        "the host name was not resolved within 0.1 s; deliveries fail until it can be resolved"
    )


def test_registration_of_a_literal_asks_nobody(dns: Dns) -> None:
    """An address that the operator opened needs no look-up; any other is refused as ever."""
    assert check_resolved("http://127.0.0.1:9000/", Resolver(DEVELOPMENT, dns)) is None
    with pytest.raises(UrlError):
        check_resolved("http://10.0.0.1:9000/", Resolver(DEVELOPMENT, dns))
    assert dns.asked == []


def eventually(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.005)
