"""How much a process grows while a transport goes through all hostile answers.

    python -m tests.conformance.grow curl|requests ROUNDS

Prints the growth of its peak resident memory in kB, after a first round that warms up.
"""

from __future__ import annotations

import resource
import sys
from contextlib import ExitStack
from ipaddress import ip_network

from tests.conformance.answers import ANSWERS
from tests.conformance.conftest import MAKERS
from tests.rawserver import RawServer, raw
from tests.transports import collect, post
from webhooks import sending
from webhooks.settings import Settings
from webhooks.transports.base import Transport

SETTINGS = Settings(allow_http=True, allow_cidrs=(ip_network("127.0.0.1/32"),), max_in_flight=100)


def main(kind: str, rounds: int) -> None:
    """Go through them, all at once in each round."""
    transport = MAKERS[kind](SETTINGS)
    with ExitStack() as stack:
        servers = [stack.enter_context(RawServer(raw(data))) for data, _, _ in ANSWERS.values()]
        urls = [server.url() for server in servers]
        for _ in range(5):
            go_through(transport, urls)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(rounds):
            go_through(transport, urls)
            for server in servers:
                server.requests.clear()
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    transport.close()
    sys.stdout.write(f"{after - before}\n")


def go_through(transport: Transport, urls: list[str]) -> None:
    for url in urls:
        transport.start(post(url, timeout_s=5))
    for response in collect(transport, len(urls), 20):
        sending.outcome(response)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
