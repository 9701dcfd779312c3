"""TLS: verified, and its faults told apart."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.rawserver import Peer, RawServer, Script, replies, reply
from tests.transports import (
    OK,
    SETTINGS,
    Make,
    post,
    resolver,
    send,
)
from webhooks.attempt import ErrorClass
from webhooks.transports.base import Transport


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def tls_context(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(context)
    return context


@pytest.fixture
def trusting(make: Make, authority: trustme.CA, tmp_path: Path) -> Iterator[Transport]:
    """A transport that trusts the test's own authority and knows secure.example."""
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(bundle)
    names = {"secure.example": ["127.0.0.1"], "other.example": ["127.0.0.1"]}
    made = make(SETTINGS, resolver=resolver(names), ca_file=str(bundle))
    yield made
    made.close()


def test_tls_with_a_good_certificate(authority: trustme.CA, trusting: Transport) -> None:
    """The certificate is checked against the name, which is also what SNI and Host say."""
    seen: list[str | None] = []
    context = tls_context(authority.issue_cert("secure.example"))
    context.sni_callback = lambda _socket, name, _context: seen.append(name)
    with RawServer(replies(OK), tls=context) as server:
        responses = [send(trusting, post(server.url(host="secure.example"))) for _ in range(2)]

    assert [response.status_code for response in responses] == [200, 200]
    assert (seen, server.connections) == (["secure.example"], 1)
    timings = responses[0].timings
    assert timings.connect_ms is not None
    assert timings.tls_ms is not None
    assert timings.connect_ms <= timings.tls_ms


def test_tls_faults_are_told_apart(authority: trustme.CA, trusting: Transport) -> None:
    """Unknown authority, wrong name and plain HTTP: class tls, each with its reason (W043)."""
    good = authority.issue_cert("secure.example")
    contexts = {
        "secure.example": tls_context(trustme.CA().issue_cert("secure.example")),
        "other.example": tls_context(good),
    }
    details = []
    for host, context in contexts.items():
        with RawServer(replies(OK), tls=context) as server:
            response = send(trusting, post(server.url(host=host)))
            assert (response.error, server.requests) == (ErrorClass.TLS, [])
            details.append(response.detail)
    with RawServer(lambda peer: peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as server:
        url = server.url(host="secure.example").replace("http:", "https:")
        response = send(trusting, post(url))
        assert response.error is ErrorClass.TLS
        details.append(response.detail)

    assert "certificate" in details[0]
    assert "other.example" in details[1]
    assert len(set(details)) == 3


def test_expired_certificate(authority: trustme.CA, trusting: Transport) -> None:
    """An expired certificate is refused by that reason (W043)."""
    past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    expired = authority.issue_cert("secure.example", not_after=past)
    with RawServer(replies(OK), tls=tls_context(expired)) as server:
        response = send(trusting, post(server.url(host="secure.example")))

    assert (response.error, server.requests) == (ErrorClass.TLS, [])
    assert "expired" in response.detail


def test_old_versions_are_refused(authority: trustme.CA, trusting: Transport) -> None:
    """A receiver that offers no TLS 1.2 gets nothing."""
    context = tls_context(authority.issue_cert("secure.example"))
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1 is deprecated"):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with RawServer(replies(OK), tls=context) as server:
        response = send(trusting, post(server.url(host="secure.example")))

    assert (response.error, server.requests) == (ErrorClass.TLS, [])


def answering(data: bytes | None) -> Script:
    """Reads what the client says first, and answers with bytes, or with a reset."""

    def script(peer: Peer) -> None:
        peer.read_some()
        if data is None:
            peer.reset()
        else:
            peer.send(data)

    return script


@pytest.mark.parametrize(
    "data", [None, b"", b"\x16\x03\x03\x00\x50", b"\x16\x03\x03 no handshake at all"],
    ids=["reset", "close", "cut", "garbage"],
)  # fmt: skip
def test_broken_handshake(trusting: Transport, data: bytes | None) -> None:
    """Whatever ends the handshake: class tls, with a reason."""
    with RawServer(answering(data)) as server:
        url = server.url(host="secure.example").replace("http:", "https:")
        response = send(trusting, post(url))

    assert (response.error, response.status_code) == (ErrorClass.TLS, None)
    assert response.detail


def test_environment_names_no_other_authorities(
    authority: trustme.CA, trusting: Transport, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A CA bundle in the environment neither replaces the transport's own nor adds to it (W044)."""
    stranger = trustme.CA()
    stranger.cert_pem.write_to_path(tmp_path / "other.pem")
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "other.pem"))
    found = []
    for issuer in (authority, stranger):
        context = tls_context(issuer.issue_cert("secure.example"))
        with RawServer(replies(OK), tls=context) as server:
            found.append(send(trusting, post(server.url(host="secure.example"))).error)

    assert found == [None, ErrorClass.TLS]


@pytest.mark.parametrize("how", ["close", "reset"])
def test_dead_kept_tls_connection_costs_no_attempt(
    authority: trustme.CA, trusting: Transport, how: str
) -> None:
    """Closed or reset under the second request: it goes out again, once, on a new connection."""

    def script(peer: Peer) -> None:
        peer.read()
        peer.send(reply(200, b"first"))
        if peer.number == 1 and peer.read() is not None and how == "reset":
            peer.reset()

    with RawServer(script, tls=tls_context(authority.issue_cert("secure.example"))) as server:
        url = server.url(host="secure.example")
        found = [send(trusting, post(url)) for _ in range(2)]

    assert [each.status_code for each in found] == [200, 200]
    assert [request.connection for request in server.requests] == [1, 1, 2]
