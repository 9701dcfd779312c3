"""CA certificates: whom an endpoint's server may be certified by, instead of the usual authorities.

Pure. Certificates alone are kept, as they were parsed: no key, no comment, nothing twice.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec import Struct

from webhooks.field_error import FieldError

MOST_CERTIFICATES = 20
MOST_BYTES = 65_536
LONGEST_SUBJECT = 200
NAMELESS = "a certificate without a name"
MALFORMED = "a certificate is malformed; give it as its authority handed it out"
# What reading one may raise: parts of it are parsed when they are asked for.
FAULTS = (ValueError, UnsupportedAlgorithm, x509.DuplicateExtension, x509.InvalidVersion)
KEPT_DESCRIPTIONS = 256


class CertificateError(FieldError):
    """The certificates are refused; the text gives the reason and the remedy."""

    def __init__(self, message: str) -> None:
        super().__init__("ca_pem", message)


class Certificate(Struct, frozen=True):
    """What people know one by; ``sha256`` is its fingerprint, 64 hexadecimal digits."""

    subject: str
    expires_at: datetime
    sha256: str


def check(pem: str, now: datetime) -> str:
    """The certificates of a PEM text, as they are stored; CertificateError for a wrong one."""
    if len(pem) > MOST_BYTES:
        raise CertificateError(f"it has {len(pem)} characters; give at most {MOST_BYTES}")
    if "PRIVATE KEY" in pem:
        raise CertificateError(
            "there is a private key in it; give certificates alone, and a new key to the server"
        )
    found = {each.fingerprint(SHA256()): each for each in _parse(pem)}
    if len(found) > MOST_CERTIFICATES:
        raise CertificateError(f"there are {len(found)}; give at most {MOST_CERTIFICATES}")
    for each in found.values():
        _check_one(each, now)
    text = "".join(each.public_bytes(Encoding.PEM).decode() for each in found.values())
    _check_readable(text)
    return text


@lru_cache(KEPT_DESCRIPTIONS)
def describe(pem: str) -> tuple[Certificate, ...]:
    """What ``check`` has let through, for people to see; nothing of what cannot be read."""
    try:
        return tuple(_describe(each) for each in x509.load_pem_x509_certificates(pem.encode()))
    except FAULTS:
        return ()


def fingerprints(pem: str | None) -> list[str]:
    """The SHA-256 fingerprints of stored certificates."""
    return [each.sha256 for each in describe(pem)] if pem else []


def _parse(pem: str) -> Iterable[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem.encode("utf-8", "replace"))
    except FAULTS as error:
        raise CertificateError(
            "it cannot be read; give one or more -----BEGIN CERTIFICATE----- blocks (PEM)"
        ) from error


def _check_one(certificate: x509.Certificate, now: datetime) -> None:
    try:
        found = _describe(certificate)
        trusted = _is_authority(certificate) or _signs_itself(certificate)
    except FAULTS as error:
        raise CertificateError(MALFORMED) from error
    if found.expires_at <= now:
        raise CertificateError(
            f"{found.subject} expired on {found.expires_at:%Y-%m-%d}; give the one that follows it"
        )
    if not trusted:
        raise CertificateError(
            f"{found.subject} is a server's certificate that somebody else signed; give that CA's"
        )


def _describe(certificate: x509.Certificate) -> Certificate:
    return Certificate(
        subject=certificate.subject.rfc4514_string()[:LONGEST_SUBJECT] or NAMELESS,
        expires_at=certificate.not_valid_after_utc,
        sha256=certificate.fingerprint(SHA256()).hex(),
    )


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _signs_itself(certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(certificate)
    except (InvalidSignature, TypeError, ValueError):
        return False
    return True


def _check_readable(pem: str) -> None:
    """That what verifies connections reads it too."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem)
    except ssl.SSLError as error:
        raise CertificateError(MALFORMED) from error
