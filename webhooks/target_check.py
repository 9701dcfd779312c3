"""What a URL's host name stands for, asked once before the URL is stored.

Deliveries look again, each time. Without a resolver, as on the command line, nothing is asked.
"""

from __future__ import annotations

from flask import current_app

from webhooks.addresses import UrlError
from webhooks.endpoint_fields import EndpointError
from webhooks.resolver import check_resolved


def check(url: str) -> str | None:
    """A warning when the name has no address now; EndpointError when one is not allowed.

    Takes up to 3 s; what is remembered of the name, none.
    """
    resolver = current_app.extensions.get("webhooks_resolver")
    if resolver is None:
        return None
    try:
        return check_resolved(url, resolver)
    except UrlError as error:
        raise EndpointError("url", str(error)) from error
