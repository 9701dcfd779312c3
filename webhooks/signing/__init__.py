"""Signing: keys, schemes, and the verification of what was signed. Pure functions."""

from webhooks.signing.diagnosis import diagnose
from webhooks.signing.http_signature import CONTENT_TYPE
from webhooks.signing.keys import (
    PREFIX,
    Kind,
    Secret,
    SigningSecretError,
    decode_secret,
    import_secret,
    new_secret,
    show_public,
)
from webhooks.signing.message import Headers, Message
from webhooks.signing.schemes import (
    ISSUER,
    KINDS,
    Scheme,
    SchemeError,
    Signer,
    check_schemes,
    needed_kinds,
    read_schemes,
)
from webhooks.signing.standard import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER
from webhooks.signing.tokens import KEY_SET_MAX_AGE_S, jwks
from webhooks.signing.verification import TOLERANCE_S, SignatureError, Step, verify

__all__ = [
    "CONTENT_TYPE",
    "ID_HEADER",
    "ISSUER",
    "KEY_SET_MAX_AGE_S",
    "KINDS",
    "PREFIX",
    "SIGNATURE_HEADER",
    "TIMESTAMP_HEADER",
    "TOLERANCE_S",
    "Headers",
    "Kind",
    "Message",
    "Scheme",
    "SchemeError",
    "Secret",
    "SignatureError",
    "Signer",
    "SigningSecretError",
    "Step",
    "check_schemes",
    "decode_secret",
    "diagnose",
    "import_secret",
    "jwks",
    "needed_kinds",
    "new_secret",
    "read_schemes",
    "show_public",
    "verify",
]
