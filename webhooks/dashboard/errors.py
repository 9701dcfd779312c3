"""Error pages: what went wrong, in words, and where to go on."""

from __future__ import annotations

from contextlib import suppress
from http import HTTPStatus

import sqlalchemy.exc
from flask import current_app, g, make_response, render_template
from flask_wtf.csrf import CSRFError
from psycopg.errors import QueryCanceled
from werkzeug.exceptions import HTTPException, ServiceUnavailable
from werkzeug.wrappers import Response

from webhooks.dashboard.site import blueprint, current_session, polling

RETRY_AFTER_S = 5

AWAY = "The database does not answer. Nothing is lost; deliveries go on when it is back."
SLOW = "This look-up took too long and was stopped. Narrow the filter, by endpoint for example."
EXPIRED = "This form is too old or was opened before you signed in. Go back, reload, try again."

WORDS = {
    400: ("This request was not understood", "Go back and try again."),
    401: ("You are signed out", "Sign in to go on."),
    403: ("You may not do this", "Your role does not allow it. Ask an owner or admin."),
    404: (
        "There is nothing here",
        "The address is wrong, or what it named was deleted or is past its retention.",
    ),
    405: ("This address takes no such request", "Go back and use the page's own buttons."),
    413: ("That is too large", "Send less at once; the limit is in the installation's settings."),
    500: ("Something went wrong", "It is in the server's log. Try again; if it stays, report it."),
    503: ("Back in a moment", AWAY),
}


def error_page(error: HTTPException) -> Response:
    """An HTML page for an error, for whoever is signed in or for nobody."""
    code = error.code or 500
    title, words = WORDS.get(code, (HTTPStatus(code).phrase, "Go back and try again."))
    if _says_more(error):
        words = str(error.description)
    if code < HTTPStatus.INTERNAL_SERVER_ERROR:
        _recognise()
    if polling():
        return Response(words, code, content_type="text/plain; charset=utf-8")
    html = render_template("error.html", code=code, title=title, words=words)
    response = make_response(html, code)
    if code == HTTPStatus.SERVICE_UNAVAILABLE:
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
    return response


@blueprint.errorhandler(HTTPException)
def refused(error: HTTPException) -> Response:
    """Whatever a view ended with."""
    return error_page(error)


@blueprint.errorhandler(CSRFError)
def expired(error: CSRFError) -> Response:
    """A form without its token, or with an old one."""
    error.description = EXPIRED
    return error_page(error)


@blueprint.errorhandler(sqlalchemy.exc.OperationalError)
def unavailable(error: sqlalchemy.exc.OperationalError) -> Response:
    """The database is away, or stopped a statement that took too long."""
    current_app.logger.warning("database: %s", error.orig)
    slow = isinstance(error.orig, QueryCanceled)
    return error_page(ServiceUnavailable(SLOW if slow else AWAY))


def _recognise() -> None:
    """An address that is no page of ours came past no guard; keep the menu all the same."""
    with suppress(sqlalchemy.exc.SQLAlchemyError):
        session = None if "user" in g else current_session()
        if session is not None:
            g.user = session.user


def _says_more(error: HTTPException) -> bool:
    """Whether a view gave its own words for this error."""
    return error.description not in (None, type(error).description)
