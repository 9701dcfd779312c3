"""API keys: what they are stored as, who may use them, and for what.

The secret in a key is 32 random bytes, so its SHA-256 is enough to store. A key has scopes,
and is bound to one tenant or to all.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy import func, or_, select
from sqlalchemy.orm import joinedload

from webhooks import audit, ids
from webhooks.field_error import FieldError
from webhooks.key_format import PREFIX as PREFIX
from webhooks.key_format import generate as generate
from webhooks.key_format import public_id_of as public_id_of
from webhooks.models import ApiKey, Tenant, db
from webhooks.scopes import Scope, granted
from webhooks.web_database import psycopg_connection

LONGEST_NAME = 100
SHORTEST_LIFE_S = 60
LONGEST_LIFE_S = 10 * 365 * 86_400
OVERLAP_S = 86_400
LONGEST_OVERLAP_S = 604_800

_NO_HASH = bytes(32)

# A key of all tenants acts for the tenant default unless a request names another.
_FIND = """
SELECT k.id, k.name, k.key_hash, k.revoked_at IS NOT NULL OR k.expires_at <= now(),
       k.tenant_id IS NULL, t.id, t.key, k.scopes,
       k.last_used_at IS NULL OR k.last_used_at < now() - interval '1 minute'
FROM webhooks.api_keys k
JOIN webhooks.tenants t
  ON t.id = coalesce(k.tenant_id, (SELECT id FROM webhooks.tenants WHERE key = 'default'))
WHERE k.public_id = %s
"""

# SKIP LOCKED: a request never waits for another one that notes the same.
_USED = """
UPDATE webhooks.api_keys SET last_used_at = now()
WHERE id = (SELECT id FROM webhooks.api_keys
            WHERE id = %s AND (last_used_at IS NULL
                               OR last_used_at < now() - interval '1 minute')
            FOR NO KEY UPDATE SKIP LOCKED)
"""


class ApiKeyError(FieldError):
    """A field of an API key is wrong: ``field`` names it, ``message`` says the remedy."""


class LastKey(RuntimeError):
    """Nobody could manage keys by the API afterwards."""


@dataclass(frozen=True, slots=True)
class Credential:
    """Who is asking: an API key, the tenant that it acts for, and what it may do.

    ``all_tenants``: the key may name any tenant; ``tenant_id`` and ``tenant_key`` are
    then those of the tenant default. ``scopes`` are all, those that others include too.
    """

    key_id: UUID
    name: str
    public_id: str
    all_tenants: bool
    tenant_id: UUID
    tenant_key: str
    scopes: frozenset[Scope] = frozenset(Scope)

    @property
    def only_tenant(self) -> UUID | None:
        """The only tenant whose rows the key may see, or None: those of all."""
        return None if self.all_tenants else self.tenant_id

    @property
    def actor(self) -> str:
        """How the audit log names the key."""
        return f"API key {self.name} ({self.public_id})"


def create(
    name: str,
    tenant: Tenant | None,
    *,
    scopes: Iterable[str] = (Scope.ADMIN,),
    expires_in_s: float | None = None,
    actor: str = "command line",
) -> tuple[ApiKey, str]:
    """Make a key of one tenant, or of all (None); answers the row and, only now, the key.

    Raises ApiKeyError for a name, a scope or a life that cannot be.
    """
    checked = _checked(name, scopes, expires_in_s)
    key, text = _add(name.strip(), tenant.id if tenant else None, checked, expires_in_s, actor)
    _audit("key.create", key, actor, scopes=key.scopes)
    db.session.commit()
    return key, text


def rotate(
    key: ApiKey, *, overlap_s: float | None = None, actor: str = "command line"
) -> tuple[ApiKey, str]:
    """A new key that may do the same; the old one goes on for ``overlap_s`` (a day), then ends.

    Raises ApiKeyError for an overlap that cannot be, or a key that has ended.
    """
    overlap_s = OVERLAP_S if overlap_s is None else overlap_s
    if not 0 <= overlap_s <= LONGEST_OVERLAP_S:
        raise ApiKeyError("overlap_s", f"{overlap_s:g} is not 0 to {LONGEST_OVERLAP_S} seconds")
    if not is_live(key):
        raise ApiKeyError("key", "it has ended; create a new one")
    new, text = _add(key.name, key.tenant_id, key.scopes, None, actor)
    ends = datetime.now(UTC) + timedelta(seconds=overlap_s)
    new.expires_at = key.expires_at
    key.expires_at = ends if key.expires_at is None else min(ends, key.expires_at)
    _audit("key.rotate", key, actor, replaced_by=new.public_id, overlap_s=overlap_s)
    db.session.commit()
    return new, text


def authenticate(text: str) -> Credential | None:
    """The credential of a key, or None: malformed, unknown, wrong and ended look alike."""
    public_id = public_id_of(text)
    if public_id is None:
        return None
    with psycopg_connection() as connection:
        row = connection.execute(_FIND, [public_id]).fetchone()
        # An unknown id is compared too, and takes as long.
        stored = row[2] if row else _NO_HASH
        if not hmac.compare_digest(stored, _hash(text)) or row is None or row[3]:
            return None
        key_id, name, _, _, all_tenants, tenant_id, tenant_key, scopes, stale = row
        if stale:
            connection.execute(_USED, [key_id])
    may = granted(map(Scope, scopes))
    return Credential(key_id, name, public_id, all_tenants, tenant_id, tenant_key, may)


def find(reference: str) -> ApiKey | None:
    """The key of this public id or ``key_…`` id, or None."""
    if not reference.isascii() or "\0" in reference:
        return None
    condition = ApiKey.public_id == reference
    with suppress(ValueError):
        condition = or_(condition, ApiKey.id == ids.decode(ids.API_KEY, reference))
    return db.session.scalar(select(ApiKey).options(joinedload(ApiKey.tenant)).where(condition))


def all_keys() -> Sequence[ApiKey]:
    """Every key, ended ones too, oldest first."""
    query = select(ApiKey).options(joinedload(ApiKey.tenant)).order_by(ApiKey.id)
    return db.session.scalars(query).all()


def is_live(key: ApiKey) -> bool:
    """Whether it is accepted, as far as this process's clock can tell."""
    return key.revoked_at is None and (key.expires_at is None or key.expires_at > datetime.now(UTC))


def revoke(key: ApiKey, *, actor: str = "command line", keep_one: bool = False) -> bool:
    """Refuse the key from now on; False when it was revoked before, and stays as it is.

    ``keep_one``: raises LastKey for the last one that may manage keys of all tenants.
    """
    if key.revoked_at is not None:
        return False
    if keep_one and _is_last(key):
        raise LastKey(
            "it is the last key of all tenants with the scope admin; create another first"
        )
    key.revoked_at = datetime.now(UTC)
    _audit("key.revoke", key, actor)
    db.session.commit()
    return True


def _is_last(key: ApiKey) -> bool:
    """Two at once would each leave the other's: the rows are locked."""
    managing = select(ApiKey.id).where(
        ApiKey.tenant_id.is_(None),
        ApiKey.revoked_at.is_(None),
        or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > func.now()),
        ApiKey.scopes.contains([Scope.ADMIN.value]),
    )
    found = set(db.session.scalars(managing.order_by(ApiKey.id).with_for_update()).all())
    return found == {key.id}


def _checked(name: str, scopes: Iterable[str], expires_in_s: float | None) -> list[str]:
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise ApiKeyError("name", f"{name[:70]!r} is not 1 to {LONGEST_NAME} printable characters")
    wanted = sorted(set(scopes))
    for n, scope in enumerate(wanted):
        if scope not in set(Scope):
            raise ApiKeyError(f"scopes[{n}]", f"{scope[:40]!r} is not one of {', '.join(Scope)}")
    if not wanted:
        raise ApiKeyError("scopes", f"give at least one of {', '.join(Scope)}")
    if expires_in_s is not None and not SHORTEST_LIFE_S <= expires_in_s <= LONGEST_LIFE_S:
        raise ApiKeyError(
            "expires_in_s", f"{expires_in_s:g} is not {SHORTEST_LIFE_S} to {LONGEST_LIFE_S} seconds"
        )
    return wanted


def _add(
    name: str,
    tenant_id: UUID | None,
    scopes: list[str],
    expires_in_s: float | None,
    actor: str,
) -> tuple[ApiKey, str]:
    public_id, text = generate()
    key = ApiKey(
        tenant_id=tenant_id,
        name=name,
        public_id=public_id,
        key_hash=_hash(text),
        last_four=text[-4:],
        scopes=scopes,
        created_by=actor,
        expires_at=None
        if expires_in_s is None
        else datetime.now(UTC) + timedelta(seconds=expires_in_s),
    )
    db.session.add(key)
    db.session.flush()
    return key, text


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _audit(action: str, key: ApiKey, actor: str, **detail: object) -> None:
    audit.record(
        action,
        ids.encode(ids.API_KEY, key.id),
        actor=actor,
        tenant_id=key.tenant_id,
        name=key.name,
        public_id=key.public_id,
        **detail,
    )
