"""Addresses of static files that change with their content, so that caches may keep them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from flask import current_app, url_for

from webhooks.dashboard.site import blueprint


@blueprint.app_template_global("asset")
def asset(name: str) -> str:
    """The address of a static file, with a part that its content decides."""
    return url_for("static", filename=name, v=_fingerprint(str(current_app.static_folder), name))


@cache
def _fingerprint(folder: str, name: str) -> str:
    return hashlib.sha256((Path(folder) / name).read_bytes()).hexdigest()[:12]
