"""Regions of a page that a script keeps fresh.

A page is rendered whole every time; a poll is answered with its regions only, or with
304 when they read the same. Times that count by themselves do not make a change.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

from flask import Response, g, make_response, render_template, request
from markupsafe import Markup

from webhooks.dashboard.site import blueprint, polling

TIME_TEXT = re.compile(r"(<time\b[^>]*>)[^<]*")


def page(template: str, **context: Any) -> Response:
    """Render a page, or the answer to a poll of it."""
    g.regions = []
    html = render_template(template, **context)
    if not polling() or request.method != "GET":
        return make_response(html)
    response = make_response("".join(g.regions))
    response.set_etag(live_tag())
    response.make_conditional(request)
    return response


@blueprint.app_template_global("live")
def live(region: str, caller: Callable[[], str], rows: bool = False) -> Markup:
    """Template call block: a region with this id. ``rows``: a list whose rows keep their place."""
    kind = Markup(" data-rows") if rows else ""
    html = Markup('<div id="{}" data-live{}>{}</div>').format(region, kind, caller())
    g.regions.append(html)
    return html


@blueprint.app_template_global("live_tag")
def live_tag() -> str:
    """Fingerprint of the regions rendered so far; empty without any."""
    if not g.get("regions"):
        return ""
    text = TIME_TEXT.sub(r"\1", "".join(g.regions))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
