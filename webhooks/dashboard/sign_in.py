"""Signing in and out, and the choice of colours."""

from __future__ import annotations

from math import ceil

from flask import current_app, g, make_response, redirect, request, session, url_for
from werkzeug.wrappers import Response

from webhooks import users
from webhooks.dashboard import throttle
from webhooks.dashboard.live import page
from webhooks.dashboard.site import (
    THEMES,
    Permission,
    blueprint,
    current_session,
    local_path,
    needs,
    session_cookie,
    settings,
)

THEME_AGE_S = 365 * 86_400

WRONG = "This username and password do not match. Check both and try again."


@blueprint.get("/sign-in")
@needs(Permission.PUBLIC)
def sign_in() -> Response:
    """The form; who is signed in already goes on."""
    onward = local_path(request.args.get("next"))
    if current_session() is not None:
        return redirect(onward, 303)
    return page("sign_in.html", onward=onward)


@blueprint.post("/sign-in")
@needs(Permission.PUBLIC)
def open_session() -> Response:
    """Check name and password; every failure reads the same."""
    username = request.form.get("username", "")
    address = request.remote_addr or ""
    wait_s = throttle.wait_s(username, address)
    if wait_s:
        return _too_many(username, wait_s)
    user = users.authenticate(username, request.form.get("password", ""))
    if user is None:
        throttle.failed(username, address)
        current_app.logger.warning("sign-in failed for %r from %s", username[:100], address)
        return _again(username, WRONG, 401)
    _forget_session()
    token = users.open_session(user, address=address, user_agent=request.user_agent.string)
    response = redirect(local_path(request.form.get("next")), 303)
    response.set_cookie(
        session_cookie(),
        token,
        secure=not settings().development,
        httponly=True,
        samesite="Lax",
        path="/",
    )
    return response


@blueprint.post("/sign-out")
@needs(Permission.PUBLIC)
def close_session() -> Response:
    """End the session and forget its cookie."""
    _forget_session()
    response = redirect(url_for("dashboard.sign_in"), 303)
    response.delete_cookie(
        session_cookie(), path="/", secure=not settings().development, httponly=True
    )
    return response


@blueprint.post("/theme")
@needs(Permission.PUBLIC)
def choose_theme() -> Response:
    """Remember light, dark or the system's colours in a cookie that the server reads."""
    theme = request.form.get("theme")
    response = redirect(local_path(request.form.get("next")), 303)
    response.set_cookie(
        "theme",
        theme if theme in THEMES else "system",
        max_age=THEME_AGE_S,
        secure=not settings().development,
        httponly=True,
        samesite="Lax",
        path="/",
    )
    return response


def _too_many(username: str, wait_s: float) -> Response:
    minutes = ceil(wait_s / 60)
    words = "1 minute" if minutes == 1 else f"{minutes} minutes"
    response = _again(username, f"Too many failed attempts. Try again in {words}.", 429)
    response.headers["Retry-After"] = str(ceil(wait_s))
    return response


def _again(username: str, error: str, status: int) -> Response:
    g.user = None
    onward = local_path(request.form.get("next"))
    html = page("sign_in.html", onward=onward, username=username[:100], error=error)
    return make_response(html, status)


def _forget_session() -> None:
    """A new sign-in never continues an old session, and no form token outlives one."""
    if token := request.cookies.get(session_cookie()):
        users.close_session(token)
    session.clear()
