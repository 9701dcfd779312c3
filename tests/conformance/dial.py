"""Sends to addresses all over the internet, in a network of its own, and counts connects.

    unshare -rn python -m tests.conformance.dial curl

Run by ``test_namespace.py``. Every address is local there: whatever is dialled is answered
by this process, and no packet leaves. Prints one JSON object.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from ipaddress import ip_network
from itertools import chain
from pathlib import Path

from tests.conformance.conftest import MAKERS
from tests.hostile_urls import REFUSED
from tests.rawserver import RawServer, replies
from tests.transports import OK, post, send
from webhooks.addresses import AddressPolicy
from webhooks.resolver import Resolver
from webhooks.settings import Settings

EVERYWHERE = (ip_network("0.0.0.0/0"), ip_network("::/0"))
CLOSED = Settings(allow_http=True)
OPEN = Settings(allow_http=True, allow_cidrs=EVERYWHERE)
PUBLIC = ["1.1.1.1", "2606:4700::1111"]
METADATA = [
    "169.254.169.254", "169.254.170.2", "168.63.129.16", "192.0.0.192", "100.100.100.200",
    "fd00:ec2::254", "fd20:ce::254", "fe80::1", "::ffff:169.254.169.254",
]  # fmt: skip
DENIED = [
    "0.0.0.0", "10.0.0.1", "10.255.255.255", "100.64.0.1", "127.0.0.1", "127.255.255.254",
    "172.16.0.1", "172.31.255.255", "192.0.0.9", "192.0.2.1", "192.31.196.1", "192.52.193.1",
    "192.88.99.1", "192.168.1.1", "192.175.48.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
    "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "::7f00:1", "::ffff:127.0.0.1",
    "::ffff:10.0.0.1", "::ffff:0:7f00:1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1", "100::1", "2001::1", "2001:0:7f00:1::", "2001:2::1", "2001:10::1",
    "2001:db8::1", "2002:7f00:1::", "2620:4f:8000::1", "3fff::1", "5f00::1", "fc00::1",
    "fd00::1", "fec0::1", "ff02::1", *METADATA,
]  # fmt: skip


def connects() -> int:
    """How many TCP connections this network has tried to open, to any address and port."""
    lines = Path("/proc/self/net/snmp").read_text().splitlines()
    names, values = (line.split() for line in lines if line.startswith("Tcp:"))
    return int(values[names.index("ActiveOpens")])


def make_everything_local() -> None:
    for command in (
        "ip link set lo up",
        "ip route add local 0.0.0.0/0 dev lo",
        "ip -6 route add local ::/0 dev lo",
    ):
        subprocess.run(command.split(), check=True)


class Trusting(AddressPolicy):
    """Lets every answer of the DNS through: the rest is up to who dials."""

    def allows(self, address: object) -> bool:
        return True


class Sender:
    """A transport to which every name stands for what ``ask`` is told."""

    def __init__(self, kind: str, settings: Settings, names: AddressPolicy | None = None) -> None:
        self._answers: list[str] = []
        policy = names or AddressPolicy.from_settings(settings)
        self._resolver = Resolver(policy, lambda _host: self._answers)
        self._transport = MAKERS[kind](settings, resolver=self._resolver)

    def ask(self, host: str, port: int, answers: Sequence[str] = ()) -> str:
        """What became of a request: an error class, or the status."""
        return self.post(f"http://{host}:{port}/", answers)

    def post(self, url: str, answers: Sequence[str] = ()) -> str:
        self._answers = list(answers)
        self._resolver._kept.clear()
        found = send(self._transport, post(url, timeout_s=2.0))
        return str(found.error or found.status_code)


def literal(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def dial_denied(kind: str, port: int) -> Counter[str]:
    """Every denied address, by every way that leads to it."""
    closed, opened = Sender(kind, CLOSED), Sender(kind, OPEN)
    last_gate = Sender(kind, CLOSED, Trusting(allow_http=True))
    found = Counter[str]()
    for address in DENIED:
        found[closed.ask(literal(address), port)] += 1
        found[closed.ask("name.example", port, [address])] += 1
        found[closed.ask("name.example", port, [PUBLIC[0], address])] += 1
        found[last_gate.ask("name.example", port, [address])] += 1
    for address in METADATA:
        found[opened.ask(literal(address), port)] += 1
        found[opened.ask("name.example", port, [address])] += 1
    return found


def send_hostile(kind: str) -> Counter[str]:
    """Every URL that no endpoint may have, as if it had been written into the database."""
    sender = Sender(kind, Settings())
    return Counter(sender.post(url, PUBLIC) for url in chain(*REFUSED.values()))


def main(kind: str) -> None:
    make_everything_local()
    closed, opened = Sender(kind, CLOSED), Sender(kind, OPEN)
    with RawServer(replies(OK), host="0.0.0.0") as four, RawServer(replies(OK), host="::") as six:
        before = connects()
        denied = dial_denied(kind, four.port) + dial_denied(kind, six.port)
        hostile = send_hostile(kind)
        between = connects()
        allowed = [
            closed.ask("name.example", four.port, [PUBLIC[0]]),
            closed.ask("name.example", six.port, [PUBLIC[1]]),
            opened.ask("10.0.0.1", four.port),
            opened.ask("[fc00::1]", six.port),
        ]
        after = connects()
    found = {"denied": denied, "hostile": hostile, "connects to denied": between - before}
    found |= {"allowed": allowed, "connects to allowed": after - between}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
