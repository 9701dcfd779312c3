"""The web application with one more route, which does nothing: what emit is measured against.

It passes the application's own hooks, but checks no API key and asks no database.
"""

from __future__ import annotations

from flask import Flask, Response

from webhooks import web

PATH = "/empty"
ANSWER = b'{"id":"evt_00000000000000000000000000","deliveries":1,"duplicate":false}'


def app() -> Flask:
    """As ``webhooks.web.app``, for gunicorn."""
    made = web.app()
    made.add_url_rule(PATH, "empty", empty, methods=["POST"])
    made.extensions["csrf"].exempt(empty)
    return made


def empty() -> Response:
    """Accepted, and forgotten."""
    return Response(ANSWER, 202, content_type="application/json")
