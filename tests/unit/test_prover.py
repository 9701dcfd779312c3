"""An endpoint is asked over real sockets, and whatever it answers is bounded."""

from __future__ import annotations

import ipaddress
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from tests.rawserver import Peer, RawServer, Script, raw, replies, reply, silent
from tests.recorder import Received, verify
from tests.stack import eventually, free_port
from tests.support import KEYRING
from webhooks import prover
from webhooks.attempt import Target
from webhooks.ownership import NotProven, Proof
from webhooks.prover import Prover
from webhooks.secrets import Keyring, Place
from webhooks.settings import Settings

ORIGIN = "hooks.example.com"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TENANT, ENDPOINT, ROW = UUID(int=1), UUID(int=2), UUID(int=3)
# 127.0.0.1 plays the public host, 127.0.0.2 an internal one.
SETTINGS = Settings(
    allow_http=True, allow_cidrs=(ipaddress.ip_network("127.0.0.1/32"),), origin=ORIGIN
)
YES = ("WebHook-Allowed-Origin", "*")

Ask = Callable[..., Proof]


def target(url: str, timeout_s: float = 5.0) -> Target:
    place = Place("signing_secrets", TENANT, ROW, "ciphertext")
    stored = Keyring.parse(KEYRING).encrypt(place, SECRET.encode())
    return Target(ENDPOINT, TENANT, url, timeout_s, ((ROW, stored),))


def make(mode: str) -> Prover:
    return Prover(replace(SETTINGS, ownership_proof=mode), Keyring.parse(KEYRING))


@pytest.fixture(params=["options", "challenge"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Asks a URL in one of both ways."""
    made = make(request.param)
    return lambda url, timeout_s=5.0: made(target(url, timeout_s))


def refusal(ask: Ask, url: str, timeout_s: float = 5.0) -> str:
    with pytest.raises(NotProven) as caught:
        ask(url, timeout_s)
    return str(caught.value)


def echoing(peer: Peer) -> None:
    """A receiver that agrees to a challenge."""
    while (request := peer.read()) is not None:
        peer.send(reply(200, json.dumps(json.loads(request.body)["data"]).encode()))


def test_the_handshake_on_the_wire() -> None:
    """OPTIONS to the exact target, with our name, without a body, secret or signature."""
    answer = reply(200, b"", [("webhook-allowed-origin", ORIGIN), ("WebHook-Allowed-Rate", "90")])
    with RawServer(replies(answer)) as server:
        proof = make("options")(target(server.url("/hook?tenant=a%2fb")))

    assert proof == Proof(per_minute=90)
    (request,) = server.requests
    assert request.start_line == "OPTIONS /hook?tenant=a%2fb HTTP/1.1"
    assert request.header("WebHook-Request-Origin") == ORIGIN
    assert request.body == b""
    assert {name.lower() for name, _ in request.headers} == {
        "host", "user-agent", "webhook-request-origin", "content-length"
    }  # fmt: skip


def test_the_challenge_on_the_wire() -> None:
    """A POST that verifies like any delivery; each has an id and a challenge of its own."""
    asks = make("challenge")
    with RawServer(echoing) as server:
        for _ in range(2):
            assert asks(target(server.url("/hook"))) == Proof()

    first, second = (
        Received("/hook", {k.lower(): v for k, v in each.headers}, each.body, 0.0)
        for each in server.requests
    )
    assert verify(SECRET, first)
    assert verify(SECRET, second)
    assert abs(int(first.headers["webhook-timestamp"]) - time.time()) < 10
    assert first.headers["webhook-event-type"] == "webhooks.ownership"
    assert server.requests[0].method == "POST"
    assert first.id != second.id
    assert json.loads(first.body)["data"] != json.loads(second.body)["data"]


def whole_request(peer: Peer) -> None:
    """Give back what came, as echo services do."""
    while (request := peer.read()) is not None:
        peer.send(reply(200, request.body, [("X-Head", request.start_line)]))


def huge(peer: Peer) -> None:
    peer.read()
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
    peer.flood(b"a" * 65_536)


FOLDED = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Echo: a\r\n WebHook-Allowed-Origin: *\r\n\r\nok"
)
SMUGGLED = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: a\rWebHook-Allowed-Origin: *\r\n\r\nok"
IN_BODY = reply(200, b"WebHook-Allowed-Origin: *\r\n\r\n")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (replies(reply(200, b"ok")), ("lacks WebHook-Allowed-Origin", "not the challenge")),
        (replies(reply(204)), ("lacks", "not the challenge")),
        (replies(IN_BODY), ("lacks", "not the challenge")),
        (replies(reply(200, b"x", [("WebHook-Allowed-Origin", "evil.example")])),
         ("'evil.example'", "not the challenge")),
        (replies(reply(405, b"", [YES])), ("status 405", "status 405")),
        (replies(reply(500, b"", [YES])), ("status 500", "status 500")),
        (replies(reply(410)), ("status 410", "status 410")),
        (whole_request, ("lacks", "not the challenge")),
        (raw(FOLDED), ("lacks", "not the challenge")),
        (raw(SMUGGLED), ("malformed", "malformed")),
        (raw(b"220 mail.example ESMTP\r\n"), ("HTTP", "HTTP")),
        (huge, ("lacks", "not the challenge")),
    ],
    ids=["200", "204", "in the body", "another name", "405", "500", "410", "echo", "folded",
         "smuggled", "no http", "huge"],
)  # fmt: skip
def test_no_such_answer_is_a_yes(
    ask: Ask, request: pytest.FixtureRequest, script: Script, words: tuple[str, str]
) -> None:
    """Status codes, other names, what is reflected, other protocols; the text says what it was."""
    with RawServer(script) as server:
        told = refusal(ask, server.url("/hook"))

    assert words["challenge" in request.node.callspec.id.split("-")] in told
    assert server.connections == 1


def test_a_redirect_is_not_followed(ask: Ask) -> None:
    """Not even to one that would agree; and a redirect that carries the consent is none."""
    with RawServer(echoing) as trap:
        moved = reply(307, b"", [("Location", trap.url("/hook")), YES])
        with RawServer(replies(moved)) as server:
            told = refusal(ask, server.url("/hook"))

    assert "a redirect" in told
    assert trap.connections == 0


def test_the_challenge_of_another_proof_is_none() -> None:
    """What was given back once agrees to nothing later."""
    seen: list[bytes] = []

    def replayed(peer: Peer) -> None:
        while (request := peer.read()) is not None:
            seen.append(json.dumps(json.loads(request.body)["data"]).encode())
            peer.send(reply(200, seen[0]))

    asks = make("challenge")
    with RawServer(replayed) as server:
        assert asks(target(server.url())) == Proof()
        with pytest.raises(NotProven, match="not the challenge"):
            asks(target(server.url()))


def drip_head(peer: Peer) -> None:
    peer.read()
    peer.drip(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000, 0.05)


def drip_body(peer: Peer) -> None:
    peer.read()
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n")
    peer.drip(b"a" * 9999, 0.05)


@pytest.mark.parametrize("script", [silent, drip_head, drip_body])
def test_nobody_is_waited_for_longer_than_the_deadline(
    ask: Ask, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten seconds in all, here half of one, whatever the endpoint's own timeout is."""
    monkeypatch.setattr(prover, "TIMEOUT_S", 0.5)
    with RawServer(script) as server:
        begun = time.monotonic()
        refusal(ask, server.url("/hook"), timeout_s=60)
        took_s = time.monotonic() - begun

    assert 0.4 < took_s < 2.0


def test_a_proof_never_takes_longer_than_ten_seconds() -> None:
    """As the API promises."""
    assert prover.TIMEOUT_S == 10


def test_an_address_that_is_not_allowed_is_never_dialled(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One text, whether something listens there or not, and no answer is looked at."""
    answers = {"there.example": ["127.0.0.2"], "nobody.example": ["127.0.0.3"],
               "mixed.example": ["127.0.0.1", "127.0.0.2"]}  # fmt: skip
    monkeypatch.setattr(
        "socket.getaddrinfo",
        lambda host, port, *_, **__: [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port or 0))
            for each in answers.get(host, [host])
        ],
    )
    with RawServer(echoing, host="127.0.0.2") as internal:
        told = {
            refusal(ask, f"http://{host}:{port}/hook")
            for host, port in (
                ("there.example", internal.port),
                ("mixed.example", internal.port),
                ("nobody.example", free_port()),
            )
        }

    assert told == {"the target address is not allowed"}
    assert internal.connections == 0


def test_few_are_asked_at_once() -> None:
    """Those who register hanging endpoints cannot keep all threads of the web process."""
    asks = make("challenge")

    def ask(url: str, timeout_s: float) -> Proof:
        return asks(target(url, timeout_s))

    with RawServer(silent) as server:
        waiting = [
            threading.Thread(target=refusal, args=(ask, server.url(), 0.7))
            for _ in range(prover.MOST_AT_ONCE)
        ]
        for thread in waiting:
            thread.start()
        server.wait_for_requests(prover.MOST_AT_ONCE)
        begun = time.monotonic()
        told = refusal(ask, server.url())
        took_s = time.monotonic() - begun
        for thread in waiting:
            thread.join()
        assert "too many" in told
        assert took_s < 0.6
        assert "too many" not in refusal(ask, server.url(), 0.2)


def test_nothing_is_left_behind(ask: Ask) -> None:
    """Each proof has a transport of its own; its threads end with it."""
    before = set(threading.enumerate())
    with RawServer(replies(reply(200))) as server:
        for _ in range(3):
            refusal(ask, server.url("/hook", host="localhost"))

    def left() -> list[str]:
        return [each.name for each in set(threading.enumerate()) - before]

    eventually(lambda: not {"sender", "resolver", "watchdog"} & set(left()), 5, "its threads end")


def test_nothing_is_sent_unsigned() -> None:
    """An endpoint without a live secret cannot be asked, and the text says so."""
    with RawServer(echoing) as server, pytest.raises(NotProven, match="needs a secret"):
        make("challenge")(Target(ENDPOINT, TENANT, server.url(), 5.0, ()))
    assert server.connections == 0
