"""How much a process grows while both transports go through hostile answers.

    python -m tests.conformance.grow ROUNDS

Each round: the listed answers, receivers that hang, drip, reset and flood, and answers
spoilt at random (the same in each run), over both transports. Prints the growth of the peak
of resident memory in kB, after the rounds that warm up.
"""

from __future__ import annotations

import multiprocessing
import sys
from ipaddress import ip_network
from multiprocessing.connection import Connection
from random import Random

from tests.conformance.answers import ANSWERS, HEAD
from tests.conformance.conftest import MAKERS
from tests.conformance.corpus import spoilt
from tests.conformance.memory import forget_peak, peak_kb
from tests.rawserver import Peer, RawServer, Script
from tests.transports import collect, post
from webhooks import sending
from webhooks.settings import Settings
from webhooks.transports.base import Transport

SETTINGS = Settings(allow_http=True, allow_cidrs=(ip_network("127.0.0.1/32"),), max_in_flight=100)
# The first rounds fill what is kept for good, such as header lines that come again.
WARM_UP, SPOILT = 20, 24
DEADLINE_S = 0.1
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
BLOCK = 16_384


def flood(first: bytes, again: bytes) -> Script:
    def script(peer: Peer) -> None:
        peer.send(first)
        peer.flood(again * (BLOCK // len(again)))

    return script


def drip(peer: Peer) -> None:
    peer.drip(HEAD * 100, 0.01)


def reset(peer: Peer) -> None:
    peer.send(HEAD)
    peer.reset()


# SECURITY.md section 3, rows 35, 38, 40, 45 and 46: what is no fixed answer.
SCRIPTS: tuple[Script, ...] = (
    Peer.hold,
    drip,
    reset,
    flood(b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
    flood(HEAD + b"X: ", b"v"),
    flood(HEAD, b"X: y\r\n"),
    flood(CHUNKED, b"4\r\nbody\r\n"),
    flood(CHUNKED + b"0\r\n", b"X: y\r\n"),
    flood(HEAD + b"Content-Length: 10000000000\r\n\r\n", b"b"),
    flood(b"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", b"b"),
)
LISTED = [data for data, *_ in ANSWERS.values()]
EACH_ROUND = len(LISTED) + len(SCRIPTS) + SPOILT


def answer(peer: Peer) -> None:
    """The body says which: round/number."""
    request = peer.read()
    if request is None:
        return
    number = int(request.body.rpartition(b"/")[2])
    if number < len(SCRIPTS):
        SCRIPTS[number](peer)
    elif number < len(SCRIPTS) + len(LISTED):
        peer.send(LISTED[number - len(SCRIPTS)])
    else:
        peer.send(spoilt(Random(request.body)))


def serve(told: Connection) -> None:
    """Tell the port, then serve until the other end goes away."""
    with RawServer(answer) as server:
        told.send(server.url())
        told.poll(None)


def main(rounds: int) -> None:
    """Warm up, then go through them so many times."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    # In a process of its own, or its memory would be counted too.
    server = context.Process(target=serve, args=(theirs,))
    server.start()
    transports = [make(SETTINGS) for make in MAKERS.values()]
    url, before = ours.recv(), 0
    for number in range(WARM_UP + rounds):
        if number == WARM_UP:
            before = forget_peak()
        one_round(transports, url, number)
    after = peak_kb()
    for transport in transports:
        transport.close()
    ours.send("the end")
    server.join()
    sys.stdout.write(f"{after - before}\n")


def one_round(transports: list[Transport], url: str, number: int) -> None:
    """Every answer once over each transport, all at the same time."""
    for transport in transports:
        for each in range(EACH_ROUND):
            body = f"{number}/{each}".encode()
            transport.start(post(url, body=body, timeout_s=DEADLINE_S))
    for transport in transports:
        for response in collect(transport, EACH_ROUND, 20):
            sending.outcome(response)


if __name__ == "__main__":
    main(int(sys.argv[1]))
