"""Schemes: how a delivery is signed, chosen for each endpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from enum import StrEnum

from webhooks.signing.compatible import GitHub, Shopify, Slack, Stripe
from webhooks.signing.http_signature import HttpSignature
from webhooks.signing.keys import Kind, Secret
from webhooks.signing.message import Headers, Message, Signs
from webhooks.signing.standard import ID_HEADER, Standard, Svix
from webhooks.signing.tokens import Jwt

ISSUER = "webhooks"


class SchemeError(ValueError):
    """An endpoint's schemes are wrong or lack a key; the text gives the remedy."""


class Scheme(StrEnum):
    """STANDARD: Standard Webhooks v1 and v1a · SVIX: the same under Svix's names · RFC9421:
    HTTP message signatures · JWT: a token with the body's hash · the others: as these send."""

    STANDARD = "standard"
    SVIX = "svix"
    GITHUB = "github"
    STRIPE = "stripe"
    SHOPIFY = "shopify"
    SLACK = "slack"
    RFC9421 = "rfc9421"
    JWT = "jwt"


_PAIRS = frozenset({Kind.HMAC, Kind.ED25519})
_TEXTS = frozenset({Kind.HMAC, Kind.TEXT})
# Which kinds of keys a scheme signs with; the first is made for an endpoint that has none.
KINDS: dict[Scheme, tuple[Kind, Set[Kind]]] = {
    Scheme.STANDARD: (Kind.HMAC, _PAIRS),
    Scheme.SVIX: (Kind.HMAC, _PAIRS),
    Scheme.GITHUB: (Kind.HMAC, _TEXTS),
    Scheme.STRIPE: (Kind.HMAC, _TEXTS),
    Scheme.SHOPIFY: (Kind.HMAC, _TEXTS),
    Scheme.SLACK: (Kind.HMAC, _TEXTS),
    Scheme.RFC9421: (Kind.ED25519, _PAIRS),
    Scheme.JWT: (Kind.ED25519, frozenset({Kind.ED25519})),
}

ONE_SIGNATURE = frozenset({Scheme.GITHUB, Scheme.SHOPIFY, Scheme.SLACK})

_OF_SECRETS: dict[Scheme, Callable[[Sequence[Secret]], Signs]] = {
    Scheme.STANDARD: Standard,
    Scheme.SVIX: Svix,
    Scheme.GITHUB: GitHub,
    Scheme.STRIPE: Stripe,
    Scheme.SHOPIFY: Shopify,
    Scheme.SLACK: Slack,
}


class Signer:
    """Signs an endpoint's deliveries: ``keys`` are ``(key id, secret)``, newest first.

    ``issuer``: who signs, as tokens name it. SchemeError when a scheme is unknown or none of
    the keys is of a kind that it can use.
    """

    def __init__(
        self, schemes: Iterable[str], keys: Sequence[tuple[str, Secret]], issuer: str = ISSUER
    ) -> None:
        wanted = read_schemes(schemes)
        check_schemes(wanted, {secret.kind for _, secret in keys})
        self._schemes = [_make(scheme, _usable(scheme, keys, wanted), issuer) for scheme in wanted]
        # Every request names its message, whatever signs it.
        self._names_id = Scheme.STANDARD in wanted

    def headers(self, message: Message) -> Headers:
        """The headers of all schemes. ValueError when the id holds a dot."""
        if len(self._schemes) == 1 and self._names_id:
            return self._schemes[0](message)
        first = () if self._names_id else ((ID_HEADER, message.id),)
        return sum((sign(message) for sign in self._schemes), first)


def check_schemes(schemes: Iterable[str], kinds: Set[Kind]) -> None:
    """SchemeError unless each scheme is known, named once, and has a key of ``kinds``."""
    for scheme in read_schemes(schemes):
        _, usable = KINDS[scheme]
        if not usable & kinds:
            names = " or ".join(sorted(usable))
            raise SchemeError(f"{scheme} needs a secret of the kind {names}; add one")


def needed_kinds(schemes: Iterable[str], kinds: Set[Kind]) -> list[Kind]:
    """The kinds of keys to make so that every scheme can sign beside those there are."""
    found: list[Kind] = []
    for scheme in read_schemes(schemes):
        usual, usable = KINDS[scheme]
        if not usable & (kinds | set(found)):
            found.append(usual)
    return found


def read_schemes(schemes: Iterable[str]) -> list[Scheme]:
    """The schemes of these names; SchemeError when one is unknown or there twice, or none is."""
    names = list(schemes)
    unknown = [name for name in names if name not in list(Scheme)]
    if unknown:
        raise SchemeError(f"{unknown[0][:40]!r} is not one of {', '.join(Scheme)}")
    if not names or len(set(names)) != len(names):
        raise SchemeError("give each scheme once, and at least one")
    return [Scheme(name) for name in names]


def _usable(
    scheme: Scheme, keys: Sequence[tuple[str, Secret]], wanted: Sequence[Scheme]
) -> list[tuple[str, Secret]]:
    _, usable = KINDS[scheme]
    found = [key for key in keys if key[1].kind in usable]
    if scheme in ONE_SIGNATURE and any(_needs_hmac(other) for other in wanted):
        # A text is there for these schemes alone: a whsec_ that another one needs must not
        # take its place where the form holds one signature.
        return [key for key in found if key[1].kind is Kind.TEXT] or found
    return found


def _needs_hmac(scheme: Scheme) -> bool:
    _, usable = KINDS[scheme]
    return Kind.HMAC in usable and Kind.TEXT not in usable


def _make(scheme: Scheme, keys: list[tuple[str, Secret]], issuer: str) -> Signs:
    if scheme is Scheme.RFC9421:
        return HttpSignature(keys)
    if scheme is Scheme.JWT:
        return Jwt(keys, issuer)
    return _OF_SECRETS[scheme]([secret for _, secret in keys])
