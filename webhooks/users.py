"""People who sign in to the dashboard: their passwords and their sessions.

Passwords are hashed with argon2id at OWASP's minimum (19 MiB, two passes, one
lane). A session is a row; the cookie holds a random token and the row its hash,
so a copy of the database opens no session.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import unicodedata
from datetime import UTC, datetime, timedelta
from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from sqlalchemy import delete, func, or_, select, text, update
from sqlalchemy.orm import joinedload

from webhooks import audit
from webhooks.field_error import FieldError
from webhooks.models import Session, User, db

OWNER, ADMIN, DEVELOPER, VIEWER = ROLES = ("owner", "admin", "developer", "viewer")

CLI = "command line"

LONGEST_USERNAME = 100
SHORTEST_PASSWORD = 8
LONGEST_PASSWORD = 1024

IDLE = timedelta(minutes=30)
LONGEST_SESSION = timedelta(hours=12)
# A session's last use is written at most this often, not with every page.
TOUCH_EVERY = timedelta(minutes=1)
TOKEN_BYTES = 32

_hasher = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
# Each hash takes 19 MiB and a core; sign-ins beyond this many wait for their turn.
_hashing = threading.BoundedSemaphore(2)


class UserError(FieldError):
    """A username, password or role that cannot be taken; ``field`` names which."""


def create(username: str, password: str, role: str | None = None, *, actor: str = CLI) -> User:
    """Add a user; UserError when a value is wrong or the name is taken.

    Without a role the first user becomes the owner and later ones viewers.
    """
    username = _clean_username(username)
    _check_password(password)
    if role is not None and role not in ROLES:
        raise UserError("role", f"{role[:40]!r} is not one of {', '.join(ROLES)}")
    hashed = _hash(password)
    # Two first users at once would both be owners.
    db.session.execute(text("LOCK TABLE webhooks.users IN SHARE ROW EXCLUSIVE MODE"))
    if find(username) is not None:
        db.session.rollback()
        raise UserError("username", f"{username!r} is taken; choose another")
    first = db.session.scalar(select(User.id).limit(1)) is None
    user = User(username=username, password_hash=hashed, role=role or (OWNER if first else VIEWER))
    db.session.add(user)
    audit.record("user.create", username, actor=actor, tenant_id=None, role=user.role)
    db.session.commit()
    return user


def set_password(username: str, password: str, *, actor: str = CLI) -> None:
    """Give a user another password and end all of their sessions; UserError if wrong."""
    _check_password(password)
    user = find(username)
    if user is None:
        raise UserError("username", f"{username[:LONGEST_USERNAME]!r} does not exist")
    user.password_hash = _hash(password)
    db.session.execute(delete(Session).where(Session.user_id == user.id))
    audit.record("user.password", user.username, actor=actor, tenant_id=None)
    db.session.commit()


def find(username: str) -> User | None:
    """The user of this name, or None."""
    if "\0" in username or len(username) > LONGEST_USERNAME:
        return None
    return db.session.scalar(select(User).where(User.username == username))


def authenticate(username: str, password: str) -> User | None:
    """The user whose password this is, or None: unknown name and wrong password take as long."""
    user = find(unicodedata.normalize("NFC", username.strip()))
    stored = user.password_hash if user else _dummy_hash()
    if not _verify(stored, password[: LONGEST_PASSWORD + 1]) or user is None:
        return None
    if _hasher.check_needs_rehash(stored):
        user.password_hash = _hash(password)
        db.session.commit()
    return user


def open_session(user: User, *, address: str | None = None, user_agent: str | None = None) -> str:
    """Sign a user in and answer the cookie's token. Sessions that are over are removed."""
    now = datetime.now(UTC)
    token = secrets.token_urlsafe(TOKEN_BYTES)
    db.session.execute(
        delete(Session).where(
            or_(Session.seen_at <= now - IDLE, Session.created_at <= now - LONGEST_SESSION)
        )
    )
    db.session.add(
        Session(
            token_hash=_token_hash(token),
            user_id=user.id,
            address=address,
            user_agent=user_agent[:300] if user_agent else None,
        )
    )
    audit.record(
        "session.open", user.username, actor=user.username, tenant_id=None, address=address
    )
    db.session.commit()
    return token


def find_session(token: str, *, touch: bool = True) -> Session | None:
    """The live session of a token with its user, or None.

    A session lives for 12 hours at most and 30 minutes after its last use; without
    ``touch`` this look-up is no use (a page that only polls signs out too).
    """
    session = db.session.scalar(
        select(Session)
        .options(joinedload(Session.user))
        .where(
            Session.token_hash == _token_hash(token),
            Session.seen_at > func.now() - IDLE,
            Session.created_at > func.now() - LONGEST_SESSION,
        )
    )
    if session is None:
        return None
    # Detached, so that a commit later in the request does not read it again.
    db.session.expunge(session.user)
    db.session.expunge(session)
    if touch and datetime.now(UTC) - session.seen_at > TOUCH_EVERY:
        db.session.execute(
            update(Session)
            .where(Session.token_hash == session.token_hash)
            .values(seen_at=func.now())
        )
        db.session.commit()
    return session


def close_session(token: str) -> None:
    """Sign out: the token opens nothing any more."""
    db.session.execute(delete(Session).where(Session.token_hash == _token_hash(token)))
    db.session.commit()


def _clean_username(username: str) -> str:
    name = unicodedata.normalize("NFC", username.strip())
    if not 1 <= len(name) <= LONGEST_USERNAME or not name.isprintable():
        raise UserError("username", f"give 1 to {LONGEST_USERNAME} printable characters")
    return name


def _check_password(password: str) -> None:
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise UserError("password", f"give {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters")


def _hash(password: str) -> str:
    with _hashing:
        return _hasher.hash(password.encode(errors="surrogatepass"))


def _verify(stored: str, password: str) -> bool:
    try:
        with _hashing:
            return _hasher.verify(stored, password.encode(errors="surrogatepass"))
    except (VerificationError, InvalidHashError):
        return False


@cache
def _dummy_hash() -> str:
    """What an unknown user's password is verified against, so that it takes as long."""
    return _hash(secrets.token_urlsafe(TOKEN_BYTES))


def _token_hash(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()
