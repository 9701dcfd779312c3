"""API keys: ``whk_live_`` + public id + ``_`` + secret + checksum, stored as a hash.

The secret is 32 random bytes, so SHA-256 is enough; the checksum (CRC-32 of all that
stands before it) lets a secret scanner tell a key from other text without asking us.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import or_, select
from sqlalchemy.orm import joinedload

from webhooks import audit, ids
from webhooks.models import ApiKey, Tenant, db
from webhooks.web_database import psycopg_connection

PREFIX = "whk_live_"
BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
PUBLIC_ID_LENGTH = 8
SECRET_BYTES = 32
SECRET_LENGTH = 43  # 62 ** 43 > 256 ** 32
CHECKSUM_LENGTH = 6  # 62 ** 6 > 2 ** 32
LONGEST_NAME = 100

_FORM = re.compile(
    rf"{PREFIX}([0-9A-Za-z]{{{PUBLIC_ID_LENGTH}}})_"
    rf"[0-9A-Za-z]{{{SECRET_LENGTH}}}([0-9A-Za-z]{{{CHECKSUM_LENGTH}}})"
)
_NO_HASH = bytes(32)

# A key of all tenants acts for the tenant default unless a request names another.
_FIND = """
SELECT k.id, k.name, k.key_hash, k.revoked_at IS NOT NULL,
       k.tenant_id IS NULL, t.id, t.key,
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


class KeyNameError(ValueError):
    """An API key's name cannot be taken."""


@dataclass(frozen=True, slots=True)
class Credential:
    """Who is asking: an API key, and the tenant that it acts for.

    ``all_tenants``: the key may name any tenant; ``tenant_id`` and ``tenant_key`` are
    then those of the tenant default.
    """

    key_id: UUID
    name: str
    public_id: str
    all_tenants: bool
    tenant_id: UUID
    tenant_key: str

    @property
    def scope(self) -> UUID | None:
        """The only tenant whose rows the key may see, or None: those of all."""
        return None if self.all_tenants else self.tenant_id

    @property
    def actor(self) -> str:
        """How the audit log names the key."""
        return f"API key {self.name} ({self.public_id})"


def create(name: str, tenant: Tenant | None, *, actor: str = "command line") -> tuple[ApiKey, str]:
    """Make a key of one tenant, or of all (None); answers the row and, only now, the key.

    Raises KeyNameError when the name is empty, too long or not printable.
    """
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise KeyNameError(f"name: {name[:70]!r} is not 1 to {LONGEST_NAME} printable characters")
    public_id, text = generate()
    key = ApiKey(
        tenant_id=tenant.id if tenant else None,
        name=name.strip(),
        public_id=public_id,
        key_hash=_hash(text),
        last_four=text[-4:],
    )
    db.session.add(key)
    db.session.flush()
    _audit("key.create", key, actor)
    db.session.commit()
    return key, text


def generate() -> tuple[str, str]:
    """A new key: its public id and its whole text."""
    public_id = "".join(secrets.choice(BASE62) for _ in range(PUBLIC_ID_LENGTH))
    body = f"{PREFIX}{public_id}_{_base62(secrets.randbits(SECRET_BYTES * 8), SECRET_LENGTH)}"
    return public_id, body + _checksum(body)


def public_id_of(text: str) -> str | None:
    """The public id in a key, or None when the text has not the form or the checksum of one."""
    form = _FORM.fullmatch(text)
    if form is None or form[2] != _checksum(text[:-CHECKSUM_LENGTH]):
        return None
    return form[1]


def authenticate(text: str) -> Credential | None:
    """The credential of a key, or None: malformed, unknown, wrong and revoked look alike."""
    public_id = public_id_of(text)
    if public_id is None:
        return None
    with psycopg_connection() as connection:
        row = connection.execute(_FIND, [public_id]).fetchone()
        # An unknown id is compared too, and takes as long.
        stored = row[2] if row else _NO_HASH
        if not hmac.compare_digest(stored, _hash(text)) or row is None or row[3]:
            return None
        key_id, name, _, _, all_tenants, tenant_id, tenant_key, stale = row
        if stale:
            connection.execute(_USED, [key_id])
    return Credential(key_id, name, public_id, all_tenants, tenant_id, tenant_key)


def find(reference: str) -> ApiKey | None:
    """The key of this public id or ``key_…`` id, or None."""
    if not reference.isascii() or "\0" in reference:
        return None
    condition = ApiKey.public_id == reference
    with suppress(ValueError):
        condition = or_(condition, ApiKey.id == ids.decode(ids.API_KEY, reference))
    return db.session.scalar(select(ApiKey).options(joinedload(ApiKey.tenant)).where(condition))


def all_keys() -> Sequence[ApiKey]:
    """Every key, revoked ones too, oldest first."""
    query = select(ApiKey).options(joinedload(ApiKey.tenant)).order_by(ApiKey.id)
    return db.session.scalars(query).all()


def revoke(key: ApiKey, *, actor: str = "command line") -> bool:
    """Refuse the key from now on; False when it was revoked before, and stays as it is."""
    if key.revoked_at is not None:
        return False
    key.revoked_at = datetime.now(UTC)
    _audit("key.revoke", key, actor)
    db.session.commit()
    return True


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), CHECKSUM_LENGTH)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(BASE62[digit])
    return "".join(reversed(digits))


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _audit(action: str, key: ApiKey, actor: str) -> None:
    subject = ids.encode(ids.API_KEY, key.id)
    audit.record(
        action,
        subject,
        actor=actor,
        tenant_id=key.tenant_id,
        name=key.name,
        public_id=key.public_id,
    )
