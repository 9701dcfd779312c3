"""TLS: verified, and its faults told apart."""

from __future__ import annotations

import datetime
import os
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

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


def self_signed(name: str) -> ssl.SSLContext:
    """A server whose certificate is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return loaded(private + certificate.public_bytes(serialization.Encoding.PEM))


def loaded(pem: bytes) -> ssl.SSLContext:
    """A server that sends the certificates in ``pem`` and no others."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.NamedTemporaryFile() as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)
    return context


def without_intermediate(authority: trustme.CA) -> ssl.SSLContext:
    """A server whose certificate an intermediate authority issued, which it does not send."""
    leaf = authority.create_child_ca().issue_cert("secure.example")
    return loaded(leaf.private_key_pem.bytes() + leaf.cert_chain_pems[0].bytes())


def stranger(name: str) -> ssl.SSLContext:
    """A server with a good chain up to an authority of its own, which it sends too."""
    other = trustme.CA()
    leaf = other.issue_cert(name)
    chain = b"".join(pem.bytes() for pem in leaf.cert_chain_pems)
    return loaded(leaf.private_key_pem.bytes() + chain + other.cert_pem.bytes())


def old(authority: trustme.CA) -> ssl.SSLContext:
    """A server that speaks nothing newer than TLS 1.1."""
    context = tls_context(authority.issue_cert("secure.example"))
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1 is deprecated"):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context


PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
FUTURE = datetime.datetime(2099, 1, 1, tzinfo=datetime.UTC)
LATER = datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)
UNKNOWN_ISSUER = (
    "TLS: the certificate's issuer is not known: its authority is not trusted, "
    "or the server does not send an intermediate certificate"
)
FAULTS: dict[str, tuple[str, Callable[[trustme.CA], ssl.SSLContext]]] = {
    "wrong name": (
        "TLS: the certificate is for another name than secure.example",
        lambda ca: tls_context(ca.issue_cert("other.example")),
    ),
    "expired": (
        "TLS: the certificate has expired",
        lambda ca: tls_context(ca.issue_cert("secure.example", not_after=PAST)),
    ),
    "not yet valid": (
        "TLS: the certificate is not valid yet",
        lambda ca: tls_context(
            ca.issue_cert("secure.example", not_before=FUTURE, not_after=LATER)
        ),
    ),
    "self-signed": (
        "TLS: the certificate is self-signed and not trusted",
        lambda _ca: self_signed("secure.example"),
    ),
    "unknown authority": (
        UNKNOWN_ISSUER,
        lambda _ca: tls_context(trustme.CA().issue_cert("secure.example")),
    ),
    "unknown authority, sent": (
        "TLS: the certificate's authority is not trusted",
        lambda _ca: stranger("secure.example"),
    ),
    "missing intermediate": (UNKNOWN_ISSUER, without_intermediate),
    "too old": (
        "TLS: nothing in common with the server: it must offer TLS 1.2 or newer",
        old,
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_the_text_names_the_fault(fault: str, authority: trustme.CA, trusting: Transport) -> None:
    """Whatever is wrong with TLS: class tls, the fault in plain words, no request sent (W043)."""
    text, server_for = FAULTS[fault]
    with RawServer(replies(OK), tls=server_for(authority)) as server:
        response = send(trusting, post(server.url(host="secure.example")))

    assert (response.error, response.detail) == (ErrorClass.TLS, text)
    assert (server.requests, response.status_code) == ([], None)


def test_plain_http_is_no_tls(trusting: Transport) -> None:
    """A server that answers https with plain HTTP is told from a bad certificate (W043)."""
    with RawServer(lambda peer: peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as server:
        url = server.url(host="secure.example").replace("http:", "https:")
        response = send(trusting, post(url))

    assert response.error is ErrorClass.TLS
    assert response.detail == "TLS: what answers at that port does not speak TLS"


def pem(authority: trustme.CA) -> str:
    return authority.cert_pem.bytes().decode()


def test_own_authority_is_trusted_where_it_is_given(make: Make) -> None:
    """A request's own CA reaches its private server; without it, or with another, none does.

    The connection that one of them keeps alive is never another's (W044).
    """
    private = trustme.CA()
    own, other = pem(private), pem(trustme.CA())
    transport = make(SETTINGS, resolver=resolver({"secure.example": ["127.0.0.1"]}))
    context = tls_context(private.issue_cert("secure.example"))
    with RawServer(replies(OK), tls=context) as server:
        request = post(server.url(host="secure.example"))
        found = [
            send(transport, msgspec.structs.replace(request, ca_pem=ca))
            for ca in (own, own, None, other, own, None)
        ]
    transport.close()

    refused = ErrorClass.TLS
    assert [each.error for each in found] == [None, None, refused, refused, None, refused]
    assert found[2].detail == found[3].detail == UNKNOWN_ISSUER
    assert [request.connection for request in server.requests] == [1, 1, 1]


def test_own_authority_replaces_the_usual_ones(authority: trustme.CA, trusting: Transport) -> None:
    """With a CA of its own, an endpoint trusts no other, not even for a kept connection."""
    context = tls_context(authority.issue_cert("secure.example"))
    with RawServer(replies(OK), tls=context) as server:
        request = post(server.url(host="secure.example"))
        found = [
            send(trusting, msgspec.structs.replace(request, ca_pem=ca)).error
            for ca in (None, pem(trustme.CA()), None)
        ]

    assert found == [None, ErrorClass.TLS, None]
    assert [each.connection for each in server.requests] == [1, 1]


@pytest.mark.parametrize(
    "ca_pem",
    ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----\n"],
)
def test_own_authority_that_cannot_be_read(
    authority: trustme.CA, trusting: Transport, ca_pem: str
) -> None:
    """A damaged CA trusts nobody and is named; the next request is served."""
    context = tls_context(authority.issue_cert("secure.example"))
    with RawServer(replies(OK), tls=context) as server:
        request = post(server.url(host="secure.example"))
        bad = send(trusting, msgspec.structs.replace(request, ca_pem=ca_pem))
        good = send(trusting, request)

    assert bad.error is ErrorClass.TLS
    assert bad.detail == "TLS: the endpoint's own CA cannot be read"
    assert (good.status_code, len(server.requests)) == (200, 1)


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
    """A CA bundle in the environment neither replaces the transport's own nor adds to it (W044).

    A proxy for https is not asked either (W046).
    """
    stranger = trustme.CA()
    stranger.cert_pem.write_to_path(tmp_path / "other.pem")
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "other.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    found = []
    with RawServer(replies(OK)) as proxy:
        for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url())
        for issuer in (authority, stranger):
            context = tls_context(issuer.issue_cert("secure.example"))
            with RawServer(replies(OK), tls=context) as server:
                found.append(send(trusting, post(server.url(host="secure.example"))).error)

    assert (found, proxy.connections) == ([None, ErrorClass.TLS], 0)


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


KEY_LOG = """
import sys
from types import SimpleNamespace

from webhooks import worker

worker.check_settings = lambda: None  # there is no database here
worker.on_starting(SimpleNamespace(cfg=SimpleNamespace(graceful_timeout=70)))

from tests.conformance.conftest import MAKERS
from tests.transports import SETTINGS, post, resolver, send

kind, url, ca_file = sys.argv[1:]
made = MAKERS[kind](
    SETTINGS, resolver=resolver({"secure.example": ["127.0.0.1"]}), ca_file=ca_file
)
print(send(made, post(url)).status_code)
"""


@pytest.mark.parametrize("kind", ["curl", "requests"])
def test_no_key_log_is_written(kind: str, authority: trustme.CA, tmp_path: Path) -> None:
    """SSLKEYLOGFILE in a worker's environment does not record the connections' keys."""
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    log = tmp_path / "keys"
    env = {
        **os.environ,
        "SSLKEYLOGFILE": str(log),
        "PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "metrics"),
    }
    with RawServer(replies(OK), tls=tls_context(authority.issue_cert("secure.example"))) as server:
        url = server.url(host="secure.example")
        arguments = [sys.executable, "-c", KEY_LOG, kind, url, str(tmp_path / "ca.pem")]
        done = subprocess.run(
            arguments, env=env, capture_output=True, text=True, timeout=60, check=False
        )

    assert done.stdout == "200\n", done.stderr
    assert not log.exists()
