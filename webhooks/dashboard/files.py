"""Stored bytes as a download that no browser opens as a page."""

from __future__ import annotations

from flask import Response


def attachment(data: bytes, name: str) -> Response:
    """The bytes as they are, under a name made of our own characters."""
    response = Response(data, mimetype="application/octet-stream")
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response
