"""Which transport a worker uses: ``WEBHOOKS_TRANSPORT``."""

from __future__ import annotations

import logging

from webhooks.settings import Settings, SettingsError
from webhooks.transports.base import Transport

CURL, REQUESTS, AUTO = "curl", "requests", "auto"

log = logging.getLogger(__name__)


def choose(wanted: str) -> str:
    """CURL or REQUESTS; AUTO is libcurl where pycurl can be loaded.

    SettingsError when libcurl is wanted by name and cannot be loaded.
    """
    if wanted == REQUESTS:
        return REQUESTS
    try:
        import pycurl  # noqa: F401 - whether it loads is the question
    except ImportError as error:
        if wanted == CURL:
            raise SettingsError(
                f"WEBHOOKS_TRANSPORT='curl': {error}; pip install 'webhooks-platform[curl]', "
                "or give requests"
            ) from error
        return REQUESTS
    return CURL


def make(settings: Settings) -> Transport:
    """The transport that the settings want; the log says which one it is, and why."""
    chosen = choose(settings.transport)
    why = "pycurl is not installed" if chosen == REQUESTS else "pycurl is installed"
    log.info("transport: %s (%s)", chosen, why if settings.transport == AUTO else "as set")
    # Only the one that is used is loaded: the other's library may be missing.
    if chosen == REQUESTS:
        from webhooks.transports.threaded import ThreadsTransport

        return ThreadsTransport(settings)
    from webhooks.transports.curl import CurlTransport

    return CurlTransport(settings)
