"""What an endpoint may give as its own certificate authority."""

from __future__ import annotations

import ssl

import msgspec
import pytest
import trustme

from tests.rawserver import RawServer, replies
from tests.transports import OK, SETTINGS, Make, post, resolver, send
from webhooks.attempt import ErrorClass
from webhooks.transports.base import Response, Transport

HOST = "secure.example"
ROOT = trustme.CA()
MIDDLE = ROOT.create_child_ca()


def serving(certificate: trustme.LeafCert) -> RawServer:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(context)
    return RawServer(replies(OK), tls=context)


def ask(transport: Transport, server: RawServer, ca_pem: str) -> Response:
    request = post(server.url(host=HOST))
    return send(transport, msgspec.structs.replace(request, ca_pem=ca_pem))


def pem(*certificates: trustme.Blob) -> str:
    return "".join(each.bytes().decode() for each in certificates)


def test_what_is_given_ends_the_chain(make: Make) -> None:
    """A root, an intermediate authority though its issuer is unknown, one of several, the leaf."""
    leaf = MIDDLE.issue_cert(HOST)
    given = {
        "root": pem(ROOT.cert_pem),
        "intermediate": pem(MIDDLE.cert_pem),
        "several": pem(trustme.CA().cert_pem, MIDDLE.cert_pem),
        "leaf": pem(leaf.cert_chain_pems[0]),
        "another's": pem(trustme.CA().cert_pem),
    }
    transport = make(SETTINGS, resolver=resolver({HOST: ["127.0.0.1"]}))
    with serving(leaf) as server:
        found = {name: ask(transport, server, ca_pem).error for name, ca_pem in given.items()}
    transport.close()

    assert found == {**dict.fromkeys(given), "another's": ErrorClass.TLS}


@pytest.mark.parametrize("ca_pem", ["\N{SNOWMAN}", "x" * 100_000], ids=["not ASCII", "long"])
def test_odd_text_as_a_ca_is_a_fault_of_tls(make: Make, ca_pem: str) -> None:
    """Whatever it is: nothing is sent, and the attempt has a class and a reason."""
    transport = make(SETTINGS, resolver=resolver({HOST: ["127.0.0.1"]}))
    with serving(ROOT.issue_cert(HOST)) as server:
        found = ask(transport, server, ca_pem)
    transport.close()

    assert (found.error, server.requests) == (ErrorClass.TLS, [])
    assert found.detail.startswith("TLS: ")


def test_plain_http_asks_for_no_ca(transport: Transport) -> None:
    """Not even for one that cannot be read, and its connection serves all."""
    with RawServer(replies(OK)) as server:
        request = post(server.url())
        for ca_pem in (pem(ROOT.cert_pem), "odd", None):
            response = send(transport, msgspec.structs.replace(request, ca_pem=ca_pem))
            assert response.status_code == 200

    assert server.connections == 1
