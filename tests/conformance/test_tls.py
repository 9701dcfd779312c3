"""TLS: verified, and its faults told apart."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.rawserver import RawServer, replies
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
