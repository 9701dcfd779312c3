"""Bytes that nobody thought of: both transports read them alike, and go on.

Longer, and at random, with ``--chaos-seconds``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from tests.conformance.conftest import MAKERS
from tests.conformance.corpus import spoilt
from tests.rawserver import Peer, RawServer
from tests.transports import BODY, OK, SETTINGS, post, send
from webhooks import sending
from webhooks.attempt import ErrorClass, Headers, Outcome
from webhooks.transports.base import Response, Transport

ANSWERS, REQUESTS = 500, 150
CUT_STATUS_LINE = {ErrorClass.CONNECT, ErrorClass.PROTOCOL}


@pytest.fixture
def fuzzing(chaos_scale: float) -> Any:
    """Settings for a number of examples: in CI the same each time."""

    def many(examples: int) -> hypothesis.settings:
        return hypothesis.settings(
            max_examples=max(1, round(examples * chaos_scale)),
            derandomize=chaos_scale == 1,
            database=None,
            deadline=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )

    return many


class Answering:
    """A receiver that answers /good well and everything else with ``odd``, then hangs up."""

    odd = b""

    def script(self, peer: Peer) -> None:
        while (request := peer.read()) is not None:
            if request.target != "/good":
                peer.send(self.odd)
                return
            peer.send(OK)


@contextmanager
def both() -> Iterator[dict[str, Transport]]:
    made = {kind: make(SETTINGS) for kind, make in MAKERS.items()}
    yield made
    for each in made.values():
        each.close()


def bounded(outcome: Outcome) -> bool:
    headers = outcome.response_headers
    return (
        len(outcome.body) <= 65_536
        and len(outcome.detail) <= 500
        and len(headers) <= 50
        and all(len(name) + len(value) <= 1024 for name, value in headers)
        and "\0" not in outcome.detail + "".join(map("".join, headers))
    )


def seen(response: Response) -> tuple[object, ...]:
    """What a transport made of an answer, but for the texts that its library wrote."""
    outcome = sending.outcome(response)
    assert bounded(outcome), outcome
    return outcome.error, response.status_code, response.headers, response.body


def alike(found: list[tuple[object, ...]], data: bytes) -> bool:
    """Known difference: libcurl takes some status lines that never ended for another protocol."""
    if b"\n" not in data:
        return {error for error, *_ in found} <= CUT_STATUS_LINE
    return found[0] == found[1]


@pytest.mark.timeout(0)  # hypothesis ends by itself, and shrinking a failure takes minutes
def test_both_read_any_answer_alike_and_go_on(fuzzing: Any) -> None:
    """Class, status, headers and body are the same; the next request gets its own answer."""
    answering = Answering()
    with RawServer(answering.script) as server, both() as transports:

        @fuzzing(ANSWERS)
        @given(st.randoms(use_true_random=False))
        def check(random: Random) -> None:
            answering.odd = data = spoilt(random)
            found = []
            for transport in transports.values():
                found.append(seen(send(transport, post(server.url("/odd"), timeout_s=3))))
                good = send(transport, post(server.url("/good"), timeout_s=3))
                assert (good.error, good.status_code, good.body) == (None, 200, b"ok"), data
            assert alike(found, data), (data, found)

        check()


# Bytes that a line may hold: with NUL, a carriage return or a line feed it is another case.
VALUES = st.text(st.characters(max_codepoint=255, exclude_characters="\0\r\n"), max_size=40)
NAMES = st.text(
    st.characters(max_codepoint=255, exclude_characters="\0\r\n:"), min_size=1, max_size=20
).filter(lambda name: name[0] not in " \t")


@pytest.mark.timeout(0)
def test_any_header_of_an_answer_is_reported_as_it_came(fuzzing: Any) -> None:
    """Names and values byte for byte as ISO 8859-1, without the blanks around the values."""
    answering = Answering()
    with RawServer(answering.script) as server, both() as transports:

        @fuzzing(REQUESTS)
        @given(st.lists(st.tuples(NAMES, VALUES), max_size=10))
        def check(headers: list[tuple[str, str]]) -> None:
            lines = "".join(f"{name}:{value}\r\n" for name, value in headers)
            answering.odd = b"HTTP/1.1 500 Odd\r\n" + lines.encode("latin-1") + b"\r\n"
            expected = tuple((name, value.strip(" \t")) for name, value in headers)
            for transport in transports.values():
                response = send(transport, post(server.url("/odd"), timeout_s=3))
                assert (response.error, response.headers) == (None, expected), answering.odd

        check()


@pytest.mark.timeout(0)
def test_any_header_of_a_request_goes_out_as_given_or_not_at_all(fuzzing: Any) -> None:
    """One line on the wire for each, the same from both; what could be two is never sent."""
    answering = Answering()
    text = st.text(st.characters(max_codepoint=255) | st.sampled_from("\r\n\0: \t\u2028"))
    token = st.from_regex(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,20}", fullmatch=True)
    names = token.filter(lambda name: name.lower() not in ("host", "content-length")) | text

    @fuzzing(REQUESTS)
    @given(
        st.lists(st.tuples(names, text), min_size=1, max_size=4, unique_by=lambda h: h[0].lower())
    )
    def check(headers: list[tuple[str, str]]) -> None:
        results = []
        for transport in transports.values():
            server.requests.clear()
            response = send(transport, post(server.url("/good"), headers=tuple(headers)))
            assert sent_as_given(response, server, tuple(headers))
            results.append(response.error)
        assert results[0] == results[1], headers

    with RawServer(answering.script) as server, both() as transports:
        check()


def sent_as_given(response: Response, server: RawServer, headers: Headers) -> bool:
    if response.error is not None:
        return (response.error, server.requests) == (ErrorClass.INTERNAL, [])
    (request,) = server.requests
    host, *middle, length = request.head.decode("latin-1").split("\r\n")[1:]
    own = (host, length) == (f"Host: 127.0.0.1:{server.port}", f"Content-Length: {len(BODY)}")
    return own and middle == [f"{name}: {value}" for name, value in headers]
