"""CA certificates: what an endpoint may give as its own, and what is kept of it."""

from __future__ import annotations

import hashlib
import ssl
from datetime import UTC, datetime, timedelta

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import example, given
from hypothesis import strategies as st

from webhooks import ca_certificates
from webhooks.ca_certificates import CertificateError, check, describe

NOW = datetime(2026, 12, 1, tzinfo=UTC)
ROOT = trustme.CA(organization_name="Zoë's Root")
LEAF = ROOT.issue_cert("secure.example")
CA_PEM = ROOT.cert_pem.bytes().decode()
LEAF_PEM = LEAF.cert_chain_pems[0].bytes().decode()
KEY_PEM = LEAF.private_key_pem.bytes().decode()


def self_signed(expires: datetime, subject: str = "one.example") -> str:
    """A server's certificate without extensions that it signed itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, subject)] if subject else [])
    made = x509.CertificateBuilder(
        issuer_name=name,
        subject_name=name,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=datetime(2020, 1, 1, tzinfo=UTC),
        not_valid_after=expires,
    ).sign(key, SHA256())
    return made.public_bytes(Encoding.PEM).decode()


SELF_SIGNED = self_signed(NOW + timedelta(days=1))


def refusal(pem: str) -> str:
    with pytest.raises(CertificateError) as caught:
        check(pem, NOW)
    assert caught.value.field == "ca_pem"
    return caught.value.message


@pytest.mark.parametrize("pem", [CA_PEM, SELF_SIGNED, CA_PEM + SELF_SIGNED])
def test_a_ca_or_a_self_signed_certificate_is_taken(pem: str) -> None:
    """As it was; whatever way its lines end, and whatever else is written around."""
    assert check(pem, NOW) == pem
    assert check("# ours\n" + pem.replace("\n", "\r\n") + "\n\n", NOW) == pem
    assert check(pem + pem, NOW) == pem


def test_people_see_whose_it_is_until_when_and_its_fingerprint() -> None:
    """The fingerprint is that of OpenSSL: SHA-256 of the DER form."""
    (shown,) = describe(check(CA_PEM, NOW))

    assert "Zoë's Root" in shown.subject
    assert shown.sha256 == hashlib.sha256(ssl.PEM_cert_to_DER_cert(CA_PEM)).hexdigest()
    expires = datetime(2038, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert describe(self_signed(expires))[0].expires_at == expires
    assert ca_certificates.fingerprints(CA_PEM) == [shown.sha256]
    assert ca_certificates.fingerprints(None) == []
    assert describe("edited by hand") == ()


@pytest.mark.parametrize(
    ("pem", "reason"),
    [
        ("canary", "-----BEGIN CERTIFICATE-----"),
        ("-----BEGIN CERTIFICATE-----\ncanary\n-----END CERTIFICATE-----\n", "cannot be read"),
        (CA_PEM[:-40], "cannot be read"),
        (CA_PEM.replace("M", "A", 1), "cannot be read"),
        ("\ud83d", "cannot be read"),
        (KEY_PEM, "private key"),
        (CA_PEM + KEY_PEM, "private key"),
        (LEAF_PEM, "somebody else signed; give that CA's"),
        (CA_PEM + LEAF_PEM, "somebody else signed"),
        (self_signed(datetime(2026, 11, 30, 5, tzinfo=UTC)), "one.example expired on 2026-11-30"),
        (CA_PEM + self_signed(NOW), "expired on 2026-12-01"),
        (self_signed(NOW, subject=""), "a certificate without a name expired"),
        ("".join(self_signed(NOW + timedelta(days=1)) for _ in range(21)), "there are 21"),
        (CA_PEM * 200, "give at most 65536"),
    ],
)
def test_what_is_wrong_is_told(pem: str, reason: str) -> None:
    """Which certificate and why, with the date of one that has expired; never what was given."""
    message = refusal(pem)

    assert reason in message
    assert "canary" not in message
    assert "BEGIN EC" not in message


@example(CA_PEM)
@given(st.text() | st.binary().map(lambda data: ssl.DER_cert_to_PEM_cert(data)))
def test_any_text_is_refused_or_readable(pem: str) -> None:
    """No exception of another kind, whatever is in it."""
    try:
        kept = check(pem, NOW)
    except CertificateError:
        return
    assert describe(kept)


# Such as of a serial number below zero, which real ones have too.
@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
@given(st.integers(0, 400), st.integers(1, 255))
def test_a_damaged_certificate_never_crashes(at: int, by: int) -> None:
    """One byte changed anywhere: refused, or still one that TLS can load."""
    der = bytearray(ssl.PEM_cert_to_DER_cert(SELF_SIGNED))
    der[at % len(der)] ^= by
    try:
        kept = check(ssl.DER_cert_to_PEM_cert(bytes(der)), NOW)
    except CertificateError:
        return
    ssl.create_default_context().load_verify_locations(cadata=kept)
