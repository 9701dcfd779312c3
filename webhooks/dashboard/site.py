"""The dashboard's Blueprint: who may open which page, and what every answer carries.

Deny by default: a view that names no permission answers nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import ParamSpec, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

from flask import Blueprint, Response, abort, current_app, g, redirect, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from webhooks import ids, users
from webhooks.addresses import AddressPolicy
from webhooks.models import Session, User
from webhooks.settings import Settings

P = ParamSpec("P")
R = TypeVar("R")

blueprint = Blueprint("dashboard", __name__)


class Permission(StrEnum):
    """What a view asks of whoever opens it. PUBLIC asks for no sign-in."""

    PUBLIC = "public"
    READ = "read"
    READ_BODIES = "read_bodies"
    READ_SECRETS = "read_secrets"
    CHANGE = "change"


OF_ROLE: dict[str, frozenset[Permission]] = {
    users.VIEWER: frozenset({Permission.READ}),
    users.DEVELOPER: frozenset({Permission.READ, Permission.READ_BODIES, Permission.CHANGE}),
    users.ADMIN: frozenset(Permission),
    users.OWNER: frozenset(Permission),
}

THEMES = ("system", "light", "dark")

_needed: dict[object, Permission] = {}


def needs(permission: Permission) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a view with the permission that it asks for."""

    def mark(view: Callable[P, R]) -> Callable[P, R]:
        _needed[view] = permission
        return view

    return mark


def needed(view: object) -> Permission | None:
    """The permission that a view was marked with, or None."""
    return _needed.get(view)


def settings() -> Settings:
    """The application's settings."""
    found: Settings = current_app.extensions["webhooks_settings"]
    return found


def opened(given: Settings) -> str:
    """Which targets the settings allow beyond public https ones, or nothing."""
    kinds = []
    if given.allow_http:
        kinds.append("plain http")
    if AddressPolicy.from_settings(given).loopback():
        kinds.append("loopback")
    return " and ".join(kinds)


def user() -> User:
    """Who is signed in; only where the view's permission is not PUBLIC."""
    signed_in: User = g.user
    return signed_in


def may(permission: Permission) -> bool:
    """Whether whoever is signed in has the permission."""
    signed_in: User | None = g.get("user")
    return signed_in is not None and permission in OF_ROLE.get(signed_in.role, frozenset())


def polling() -> bool:
    """Whether a script asks for what changed; such a request keeps no session alive."""
    return "X-Poll" in request.headers


def row_id(kind: str, text: str) -> UUID:
    """The id in a path; one that is none is a page that is not there."""
    try:
        return ids.decode(kind, text)
    except ValueError:
        abort(404)


@blueprint.app_context_processor
def shared() -> dict[str, object]:
    """What every template may use, those of error pages too."""
    theme = request.cookies.get("theme", "system")
    return {
        "development": settings().development,
        "opened": opened(settings()),
        "theme": theme if theme in THEMES else "system",
        "user": g.get("user"),
        "may": may,
        "Permission": Permission,
        "now": g.setdefault("now", datetime.now(UTC)),
        "here": request.full_path.rstrip("?") if request.method == "GET" else request.path,
    }


@blueprint.before_request
def guard() -> AnyResponse | None:
    """Let in whoever has the view's permission; everybody else signs in or is refused."""
    g.now = datetime.now(UTC)
    _refuse_other_sites()
    permission = needed(current_app.view_functions[str(request.endpoint)])
    if permission is None:
        abort(403)
    if permission is Permission.PUBLIC:
        return None
    session = current_session()
    if session is None:
        return _sign_in_first()
    g.user = session.user
    if not may(permission):
        abort(403)
    return None


@blueprint.after_request
def keep_out_of_caches(response: Response) -> Response:
    """Pages show one user's view of now: no cache and no back button keeps them."""
    response.headers["Cache-Control"] = "no-store"
    return response


def current_session() -> Session | None:
    """The live session of the request's cookie, or None."""
    token = request.cookies.get(session_cookie())
    return users.find_session(token, touch=not polling()) if token else None


def session_cookie() -> str:
    """Name of the session's cookie; browsers accept the prefix over https only."""
    return "session_token" if settings().development else "__Host-session"


def local_path(text: str | None) -> str:
    """A path of this site to go on to; anything else becomes the front page."""
    path = text or ""
    if not path.startswith("/") or path.startswith("//") or "\\" in path or not path.isprintable():
        return url_for("dashboard.overview")
    return path


def _sign_in_first() -> AnyResponse:
    if polling():
        abort(401)
    onward = request.full_path.rstrip("?") if request.method == "GET" else None
    return redirect(url_for("dashboard.sign_in", next=onward), 303)


def _refuse_other_sites() -> None:
    """A second lock beside the CSRF token: a form of another site is refused."""
    if request.method in ("GET", "HEAD", "OPTIONS"):
        return
    site = request.headers.get("Sec-Fetch-Site")
    origin = request.headers.get("Origin", "null")
    if site is not None:
        allowed = site in ("same-origin", "none")
    else:
        allowed = origin == "null" or urlsplit(origin).netloc == request.host
    if not allowed:
        abort(403)
