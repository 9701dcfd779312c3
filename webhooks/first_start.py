"""What the first `webhooks up` makes: the keyring, the admin, an API key."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select

from webhooks import datadir, keys, users
from webhooks.database_app import open_app
from webhooks.keyring_check import check_keyring
from webhooks.models import ApiKey, SigningSecret, User, db
from webhooks.secrets import Keyring, KeyringError
from webhooks.settings import Settings

USERNAME = "admin"
KEY_NAME = "default"
PASSWORD_BYTES = 12


@dataclass(frozen=True, slots=True)
class Made:
    """What was made just now and can be shown this once; None: it was there before."""

    password: str | None
    api_key: str | None


def prepare(database_url: str, data_dir: Path, settings: Settings) -> Made:
    """Make what is missing; KeyringError when the keyring is lost, malformed or another."""
    with open_app(database_url, "up"):
        keyring = Keyring.parse(settings.keyring or _keyring(data_dir))
        check_keyring(database_url, keyring)
        return Made(_admin(), _api_key())


def _keyring(data_dir: Path) -> str:
    kept = datadir.read_keyring(data_dir)
    if kept is not None:
        return kept
    if db.session.scalar(select(SigningSecret.id).limit(1)) is not None:
        raise KeyringError(
            f"{data_dir / datadir.KEYRING} is missing, and the database holds secrets that it "
            "encrypted; put it back, or set WEBHOOKS_KEYRING"
        )
    made = Keyring.generate()
    datadir.write_keyring(data_dir, made)
    return made


def _admin() -> str | None:
    if db.session.scalar(select(User.id).limit(1)) is not None:
        return None
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    users.create(USERNAME, password, actor="webhooks up")
    return password


def _api_key() -> str | None:
    if db.session.scalar(select(ApiKey.id).where(ApiKey.name == KEY_NAME).limit(1)) is not None:
        return None
    return keys.create(KEY_NAME, None, actor="webhooks up")[1]
