"""What a command says, in one line, about a mistake or trouble that it can name."""

from __future__ import annotations

import psycopg
import sqlalchemy.exc
from psycopg import errors

from webhooks import keys, tenants, users
from webhooks.backoff import PolicyError
from webhooks.datadir import DataDirError
from webhooks.db import DatabaseTooOld
from webhooks.embedded import EmbeddedError
from webhooks.endpoints import EndpointError
from webhooks.ports import PortError
from webhooks.receiver import BehaviourError
from webhooks.schema import SchemaError
from webhooks.secrets import KeyringError
from webhooks.settings import SettingsError
from webhooks.signing import SigningSecretError
from webhooks.up import UpError

# Their texts name what is wrong and the remedy, and hold no secret.
PLAIN = (
    BehaviourError,
    DataDirError,
    DatabaseTooOld,
    EmbeddedError,
    EndpointError,
    KeyringError,
    PolicyError,
    PortError,
    SchemaError,
    SettingsError,
    SigningSecretError,
    UpError,
    keys.ApiKeyError,
    tenants.TenantError,
    users.UserError,
)
NO_SCHEMA = (errors.UndefinedTable, errors.UndefinedFunction, errors.InvalidSchemaName)


def explain(error: BaseException) -> str | None:
    """One line about an error, or None: it is a fault of ours, which a traceback shows best."""
    if isinstance(error, PLAIN):
        return str(error)
    if isinstance(error, sqlalchemy.exc.DBAPIError) and error.orig is not None:
        return explain(error.orig)
    if isinstance(error, psycopg.Error):
        return _database(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return None


def _database(error: psycopg.Error) -> str | None:
    if isinstance(error, NO_SCHEMA):
        return "the database lacks our schema, or part of it; run `webhooks db upgrade`"
    if error.sqlstate and error.sqlstate.startswith("WH"):  # raised by our own functions
        return error.diag.message_primary
    if error.sqlstate:
        return f"the database refuses: {error.diag.message_primary}"
    if isinstance(error, psycopg.ProgrammingError):
        # Not its text: that quotes the URL, and with it the password.
        return "DATABASE_URL is not understood; give postgresql://user@host:port/database"
    if isinstance(error, psycopg.OperationalError):
        return f"the database cannot be reached: {error}"
    return None
