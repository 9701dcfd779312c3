"""The admin dashboard: server-rendered pages, one module a page group."""

from __future__ import annotations

from flask import Flask
from flask_wtf.csrf import CSRFProtect

from webhooks.dashboard import (
    assets,
    deliveries,
    endpoint_secrets,
    endpoint_states,
    endpoints,
    events,
    formats,
    overview,
    ownership,
    retries,
    sign_in,
)
from webhooks.dashboard.errors import error_page
from webhooks.dashboard.site import blueprint
from webhooks.settings import Settings

__all__ = [
    "assets",
    "blueprint",
    "deliveries",
    "endpoint_secrets",
    "endpoint_states",
    "endpoints",
    "error_page",
    "events",
    "formats",
    "init_dashboard",
    "overview",
    "ownership",
    "retries",
    "sign_in",
]

# As long as a session lives: a form left open over lunch still works.
FORM_TOKEN_S = 12 * 3600
ASSET_AGE_S = 365 * 86_400


def init_dashboard(app: Flask) -> CSRFProtect:
    """Set up form tokens and sign-in limits; whoever has a blueprint without cookies exempts it.

    Needs ``SECRET_KEY`` and ``app.extensions["webhooks_settings"]``.
    """
    settings: Settings = app.extensions["webhooks_settings"]
    app.config.update(
        SESSION_COOKIE_NAME="form_session" if settings.development else "__Host-form_session",
        SESSION_COOKIE_SECURE=not settings.development,
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Lax",
        # Addresses of static files carry their content's hash (see assets.py).
        SEND_FILE_MAX_AGE_DEFAULT=ASSET_AGE_S,
        WTF_CSRF_TIME_LIMIT=FORM_TOKEN_S,
        # Our pages send no Referer; the site guard looks at Sec-Fetch-Site and Origin.
        WTF_CSRF_SSL_STRICT=False,
    )
    protect = CSRFProtect()
    protect.init_app(app)
    return protect
