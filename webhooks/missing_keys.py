"""Missing keys: endpoints whose deliveries wait as nothing can sign them, and so to say it."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import func, select

from webhooks import signing
from webhooks.models import Endpoint, SigningSecret
from webhooks.secrets import KEY_ID_CHARACTERS, VERSION, Keyring, key_id_of
from webhooks.signing import Kind

# As much of a ciphertext as names its key.
BEGINNING = len(VERSION) + KEY_ID_CHARACTERS + 2

# Of an endpoint's live signing secrets; within a query of endpoints.
SIGNED_WITH = (
    select(
        func.array_agg(
            func.concat(SigningSecret.kind, " ", func.left(SigningSecret.ciphertext, BEGINNING))
        )
    )
    .where(SigningSecret.endpoint_id == Endpoint.id, SigningSecret.valid_until > func.now())
    .correlate(Endpoint)
    .scalar_subquery()
)


def explain(
    keyring: Keyring, schemes: Iterable[str], signed_with: Iterable[str] | None, headers: str | None
) -> str | None:
    """Why an endpoint's deliveries wait; None when there is every key that they need.

    ``signed_with`` is what SIGNED_WITH answers, ``headers`` the endpoint's, encrypted.
    """
    secrets = [each.split(" ", 1) for each in signed_with or ()]
    try:
        signing.check_schemes(schemes, {Kind(kind) for kind, _ in secrets})
    except signing.SchemeError as error:
        return f"nothing can be signed: {error}. Deliveries wait"
    for what, stored in (
        ("a signing secret was", [beginning for _, beginning in secrets]),
        ("its custom headers were", [] if headers is None else [headers]),
    ):
        for key_id in map(key_id_of, stored):
            if key_id is not None and key_id not in keyring.key_ids:
                return (
                    f"{what} encrypted with the key {key_id}, which is not in the keyring: "
                    "deliveries wait; put the key back into WEBHOOKS_KEYRING"
                )
    return None
