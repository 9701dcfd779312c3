"""create_app: the web process, wired from its parts."""

from __future__ import annotations

import logging
import os
import re
import uuid
from contextlib import suppress
from typing import Any

import psycopg
import sqlalchemy.exc
from flask import Flask, Response, g, request
from flask_migrate import Migrate
from werkzeug.exceptions import HTTPException, ServiceUnavailable
from werkzeug.middleware.proxy_fix import ProxyFix
from werkzeug.wrappers import Response as AnyResponse

from webhooks import api, dashboard
from webhooks.api import key_sets, problems
from webhooks.api.authentication import check_views
from webhooks.api.limits import Emits
from webhooks.api.problems import Problem
from webhooks.catalog import Catalog
from webhooks.db import sqlalchemy_url
from webhooks.files import find
from webhooks.group_commit import GroupCommit
from webhooks.health import init_health
from webhooks.models import db
from webhooks.secrets import Keyring
from webhooks.settings import Settings, SettingsError
from webhooks.verified_keys import VerifiedKeys
from webhooks.wakeup import Notifier
from webhooks.web_database import ENGINE_OPTIONS, check_pooled

REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
FORM_BYTES = 65_536
READ_FOR_POLITENESS_BYTES = 16 * 1024 * 1024
CHUNK_BYTES = 65_536
# Percent-encoding makes three bytes of one.
ENCODED = 3

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
HSTS = "max-age=31536000"

log = logging.getLogger(__name__)


def create_app(settings: Settings | None = None) -> Flask:
    """Build the web application; SettingsError or KeyringError when a setting is missing."""
    settings = settings or Settings.from_env(os.environ)
    if not settings.database_url:
        raise SettingsError("DATABASE_URL is not set; give postgresql://user@host:port/database")
    keyring = Keyring.parse(settings.keyring)
    app = Flask(
        "webhooks",
        template_folder=str(find("templates")),
        static_folder=str(find("static")),
    )
    app.config.update(_config(settings, keyring))
    app.extensions["webhooks_settings"] = settings
    app.extensions["webhooks_keyring"] = keyring
    app.extensions["webhooks_notifier"] = Notifier(settings.database_url)
    app.extensions["webhooks_verified_keys"] = VerifiedKeys()
    app.extensions["webhooks_catalog"] = Catalog()
    app.extensions["webhooks_emits"] = Emits()
    app.extensions["webhooks_group_commit"] = GroupCommit()
    db.init_app(app)
    with app.app_context():
        check_pooled(db.engine)
    Migrate(app, db, directory=str(find("migrations")))
    _register(app)
    if settings.trusted_proxies:
        hops = settings.trusted_proxies
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=hops, x_proto=hops)  # type: ignore[method-assign]
    return app


def _config(settings: Settings, keyring: Keyring) -> dict[str, Any]:
    current, *older = keyring.derive("flask session")
    form_bytes = settings.max_payload_bytes * ENCODED + FORM_BYTES
    return {
        "SQLALCHEMY_DATABASE_URI": sqlalchemy_url(settings.database_url),
        "SQLALCHEMY_ENGINE_OPTIONS": ENGINE_OPTIONS,
        "SECRET_KEY": current,
        "SECRET_KEY_FALLBACKS": older,
        "MAX_CONTENT_LENGTH": form_bytes,
        "MAX_FORM_MEMORY_SIZE": form_bytes,
    }


def _register(app: Flask) -> None:
    app.before_request(_name_request)
    app.after_request(_secure)
    app.after_request(_read_rest)
    app.register_blueprint(api.blueprint)
    check_views(app, api.blueprint.name)
    app.register_blueprint(key_sets.blueprint)
    app.register_blueprint(dashboard.blueprint)
    init_health(app)
    csrf = dashboard.init_dashboard(app)
    for name, blueprint in app.blueprints.items():
        if name.split(".")[0] == api.blueprint.name:  # it takes no cookies
            csrf.exempt(blueprint)
    app.register_error_handler(Problem, Problem.response)
    app.register_error_handler(HTTPException, _http_error)
    for kind in (
        sqlalchemy.exc.OperationalError,
        sqlalchemy.exc.InterfaceError,
        sqlalchemy.exc.TimeoutError,
        psycopg.OperationalError,
    ):
        app.register_error_handler(kind, _database_away)


def _name_request() -> None:
    given = request.headers.get("X-Request-Id", "")
    g.request_id = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _secure(response: Response) -> Response:
    for name, value in SECURITY_HEADERS.items():
        response.headers.setdefault(name, value)
    if request.is_secure:
        response.headers.setdefault("Strict-Transport-Security", HSTS)
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers["X-Request-Id"] = g.request_id
    return response


def _read_rest(response: Response) -> Response:
    """Let a client that is refused finish sending: one that is cut off never reads why."""
    # Elsewhere a read past the body's end could wait for ever.
    if response.status_code >= 400 and request.environ.get("wsgi.input_terminated"):
        left = READ_FOR_POLITENESS_BYTES
        with suppress(OSError):
            while left > 0 and (data := request.environ["wsgi.input"].read(CHUNK_BYTES)):
                left -= len(data)
    return response


def _http_error(error: HTTPException) -> AnyResponse:
    if _is_api():
        return problems.from_http(error).response()
    return dashboard.error_page(error)


def _database_away(error: Exception) -> AnyResponse:
    log.warning("request %s: the database does not answer: %s", g.request_id, error)
    if _is_api():
        return problems.database_away().response()
    return dashboard.error_page(ServiceUnavailable())


def _is_api() -> bool:
    return request.path.startswith("/api/")
