"""libcurl through the egress proxy: its options, and whether the proxy is what failed."""

from __future__ import annotations

from typing import Any

import pycurl

from webhooks.transports.proxy import Proxy, answered, unreachable

OPENED = 200
# curl/curl.h; pycurl 7.49 has no name for it.
SUPPRESS_CONNECT_HEADERS = 265


def through(proxy: Proxy) -> dict[int, Any]:
    """Options of a handle that reaches everything by a tunnel, http targets too.

    The endpoint's headers are not the proxy's, and the proxy's answer is not a response.
    """
    options = {
        pycurl.PROXY: f"http://{proxy.address}",
        pycurl.NOPROXY: "",
        pycurl.HTTPPROXYTUNNEL: 1,
        pycurl.HEADEROPT: pycurl.HEADER_SEPARATE,
        SUPPRESS_CONNECT_HEADERS: 1,
    }
    if proxy.username is not None:
        options |= {
            pycurl.PROXYAUTH: pycurl.HTTPAUTH_BASIC,
            pycurl.PROXYUSERNAME: proxy.username,
            pycurl.PROXYPASSWORD: proxy.password,
        }
    return options


def proxy_fault(easy: Any, text: str) -> str:
    """Why nothing was sent, if that is the proxy's doing; "" if its tunnel was open."""
    status = easy.getinfo(pycurl.HTTP_CONNECTCODE)
    if status == OPENED:
        return ""
    return answered(status) if status else unreachable(text or "it did not answer")
