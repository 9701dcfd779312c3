"""An endpoint's signing secrets: made, imported, rotated, revoked here alone.

All live ones sign, five at most; the database's clock decides which are. The endpoint's row
is locked first, as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import func, select, text, update

from webhooks import audit, ids, signing
from webhooks.db import FOREVER
from webhooks.endpoint_fields import EndpointError
from webhooks.field_error import echo
from webhooks.models import Endpoint, SigningSecret, db
from webhooks.secrets import Keyring, Place
from webhooks.signing import KINDS, Kind, Scheme, SchemeError, Secret, SigningSecretError

MOST_LIVE = 5
OVERLAP_S = 86_400
LONGEST_OVERLAP_S = 7 * 86_400
# A public key stays published for as long after its end: receivers keep them for a while.
PUBLISHED_AFTER = timedelta(days=7)


def add(endpoint: Endpoint, keyring: Keyring, secret: Secret) -> SigningSecret:
    """Store a secret in the caller's transaction; it signs from now on."""
    row_id = db.session.scalar(text("SELECT webhooks.uuid7()"))
    place = Place("signing_secrets", endpoint.tenant_id, row_id, "ciphertext")
    row = SigningSecret(
        id=row_id,
        tenant_id=endpoint.tenant_id,
        endpoint_id=endpoint.id,
        kind=secret.kind.value,
        ciphertext=keyring.encrypt(place, secret.text.encode()),
        public_key=secret.public,
    )
    db.session.add(row)
    return row


def first(schemes: Iterable[str], secret: str | None) -> list[Secret]:
    """The secrets that a new endpoint of these schemes gets: the one given, and new ones for
    kinds that the schemes need beside it. EndpointError names what does not fit.
    """
    found = [] if secret is None else [read(secret)]
    kinds = {each.kind for each in found}
    for kind in signing.needed_kinds(schemes, kinds):
        found.append(signing.import_secret(signing.new_secret(kind)))
    _check_schemes(schemes, {each.kind for each in found})
    return found


def shown(made: Iterable[Secret], imported: str | None) -> str | None:
    """What the receiver must be told of new secrets: the shared one that was made here."""
    texts = [each.text for each in made if each.kind is Kind.HMAC]
    return texts[0] if texts and texts[0] != imported else None


def check(endpoint: Endpoint, schemes: Iterable[str]) -> None:
    """EndpointError unless secrets that have no end can sign by these schemes."""
    _check_schemes(schemes, _lasting(live(endpoint.id)))


def live(endpoint_id: UUID) -> Sequence[SigningSecret]:
    """The secrets that sign now, newest first."""
    # Not now(): whoever waited for the endpoint's lock would see what ended meanwhile.
    query = select(SigningSecret).where(
        SigningSecret.endpoint_id == endpoint_id,
        SigningSecret.valid_until > func.clock_timestamp(),
    )
    return db.session.scalars(query.order_by(SigningSecret.id.desc())).all()


def rotate(
    endpoint: Endpoint,
    keyring: Keyring,
    *,
    actor: str,
    kind: str | None = None,
    secret: str | None = None,
    overlap_s: float | None = None,
) -> tuple[SigningSecret, str | None]:
    """Add a secret; those that it replaces go on signing for ``overlap_s`` (a day), then end.

    It replaces older ones of its kind, and a text an hmac one, or the other way round, where
    the same schemes sign with both. ``secret`` imports the customer's own; without one a new
    one of ``kind`` (hmac) is made. Of more than five live ones the oldest of those that were
    to end do so at once: a rotation is never refused. Answers
    the row, and the text where it was made here and the receiver needs it: of an ed25519 key
    only the public half leaves. Raises EndpointError and changes nothing when a value is wrong.
    """
    overlap_s = _check_overlap(overlap_s)
    new = _new(kind, secret)
    _lock(endpoint)
    _check_use(endpoint.schemes, new.kind)
    replaced = _replaced_by(new.kind, endpoint.schemes)
    _end([row for row in live(endpoint.id) if row.kind in replaced], overlap_s)
    _make_room(endpoint.id)
    row = add(endpoint, keyring, new)
    db.session.flush()
    _audit("secret.rotate", endpoint, actor, row, overlap_s=overlap_s, imported=secret is not None)
    db.session.commit()
    return row, shown([new], secret)


def revoke(endpoint: Endpoint, secret_id: UUID, *, actor: str) -> bool:
    """End a live secret now; False when there is no such one.

    EndpointError when what is left, and does not end by itself, could not sign what the
    endpoint asks for.
    """
    _lock(endpoint)
    rows = live(endpoint.id)
    row = next((each for each in rows if each.id == secret_id), None)
    if row is None:
        db.session.rollback()
        return False
    _check_schemes(endpoint.schemes, _lasting([each for each in rows if each is not row]))
    _end([row], 0)
    _audit("secret.revoke", endpoint, actor, row)
    db.session.commit()
    return True


def reveal(endpoint: Endpoint, keyring: Keyring, secret_id: UUID, *, actor: str) -> str | None:
    """A live secret's text as its receiver needs it, or None: there is no such one.

    Of an ed25519 key the public half. Raises SecretError when the keyring lacks its key.
    """
    row = next((each for each in live(endpoint.id) if each.id == secret_id), None)
    if row is None:
        return None
    if row.public_key is not None:
        return signing.show_public(row.public_key)
    place = Place("signing_secrets", endpoint.tenant_id, row.id, "ciphertext")
    text = keyring.decrypt(place, row.ciphertext).decode()
    _audit("secret.reveal", endpoint, actor, row)
    db.session.commit()
    return text


def published(endpoint_id: UUID) -> Sequence[SigningSecret]:
    """The ed25519 keys whose public half receivers may need: live, or ended a short while ago.

    What was revoked is not among them.
    """
    query = select(SigningSecret).where(
        SigningSecret.endpoint_id == endpoint_id,
        SigningSecret.kind == Kind.ED25519.value,
        SigningSecret.revoked.is_(False),
        SigningSecret.valid_until > func.now() - PUBLISHED_AFTER,
    )
    return db.session.scalars(query.order_by(SigningSecret.id.desc())).all()


def read(text: str) -> Secret:
    """A secret that a customer brings; EndpointError says what is wrong and never shows it."""
    try:
        return signing.import_secret(text)
    except SigningSecretError as error:
        raise EndpointError("secret", str(error)) from error


def _replaced_by(kind: Kind, schemes: Iterable[str]) -> Set[Kind]:
    """The kinds that a new secret of this kind takes the place of."""

    def users(other: Kind) -> Set[str]:
        return {scheme for scheme in schemes if other in KINDS[Scheme(scheme)][1]}

    shared = {Kind.HMAC, Kind.TEXT}
    both = kind in shared and users(Kind.HMAC) == users(Kind.TEXT)
    return shared if both else {kind}


def _make_room(endpoint_id: UUID) -> None:
    """End the oldest of those that were to end, so that one more is not too many."""
    rows = live(endpoint_id)
    ending = [row for row in rows if row.valid_until != FOREVER]
    surplus = len(rows) - (MOST_LIVE - 1)
    _end(ending[max(0, len(ending) - surplus) :] if surplus > 0 else [], 0, revoked=False)


def _lasting(rows: Sequence[SigningSecret]) -> Set[Kind]:
    """The kinds of those that have no end."""
    return {Kind(row.kind) for row in rows if row.valid_until == FOREVER}


def _new(kind: str | None, secret: str | None) -> Secret:
    if kind is not None and kind not in list(Kind):
        raise EndpointError("kind", f"{echo(kind)} is not one of {', '.join(Kind)}")
    if secret is None:
        return signing.import_secret(signing.new_secret(Kind(kind or Kind.HMAC)))
    found = read(secret)
    if kind is not None and found.kind != kind:
        raise EndpointError("secret", f"it is of the kind {found.kind}, not {kind}")
    return found


def _check_overlap(overlap_s: float | None) -> float:
    if overlap_s is None:
        return OVERLAP_S
    number = not isinstance(overlap_s, bool) and isinstance(overlap_s, int | float)
    if not number or not 0 <= overlap_s <= LONGEST_OVERLAP_S:
        raise EndpointError(
            "overlap_s", f"{echo(overlap_s)} is not a number from 0 to {LONGEST_OVERLAP_S} (7 days)"
        )
    return overlap_s


def _check_use(schemes: Iterable[str], kind: Kind) -> None:
    if not any(kind in KINDS[Scheme(scheme)][1] for scheme in schemes):
        db.session.rollback()
        raise EndpointError(
            "kind", f"none of its schemes ({', '.join(schemes)}) signs with a secret of the kind "
            f"{kind}; change the schemes first"
        )  # fmt: skip


def _check_schemes(schemes: Iterable[str], kinds: Set[Kind]) -> None:
    try:
        signing.check_schemes(schemes, kinds)
    except SchemeError as error:
        db.session.rollback()
        raise EndpointError("schemes", str(error)) from error


def _lock(endpoint: Endpoint) -> None:
    row = select(Endpoint.id).where(Endpoint.id == endpoint.id, Endpoint.deleted_at.is_(None))
    if db.session.scalar(row.with_for_update(key_share=True)) is None:
        db.session.rollback()
        raise EndpointError("endpoint", "it was deleted meanwhile")
    db.session.expire(endpoint)


def _end(rows: Sequence[SigningSecret], overlap_s: float, *, revoked: bool | None = None) -> None:
    """Let them sign for so much longer, if they would have; at once means revoked, if not told."""
    revoked = overlap_s == 0 if revoked is None else revoked
    until = func.now() + timedelta(seconds=overlap_s)
    db.session.execute(
        update(SigningSecret)
        .where(SigningSecret.id.in_([row.id for row in rows]))
        .values(
            valid_until=func.least(SigningSecret.valid_until, until),
            revoked=SigningSecret.revoked | revoked,
        )
    )


def _audit(action: str, endpoint: Endpoint, actor: str, row: SigningSecret, **detail: Any) -> None:
    audit.record(
        action, ids.encode(ids.ENDPOINT, endpoint.id), actor=actor, tenant_id=endpoint.tenant_id,
        secret=ids.encode(ids.SECRET, row.id), kind=row.kind, **detail,
    )  # fmt: skip
