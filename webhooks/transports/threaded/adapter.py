"""requests' adapter on our own connections, with nothing else in between."""

from __future__ import annotations

import ssl
from typing import Any

import certifi
import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.structures import CaseInsensitiveDict
from urllib3.util import SKIP_HEADER, Timeout

from webhooks.transports.headers import checked_lines
from webhooks.transports.threaded.attempt import Attempt, current
from webhooks.transports.threaded.connections import Blocked, Pools

# A host that falls out of these loses its idle connections, so: rather too many.
MOST_HOSTS = 1_024
# urllib3 would add its own.
NOT_ADDED = ("Accept-Encoding", "User-Agent")


class Adapter(HTTPAdapter):
    """requests' adapter on our connections, with nothing else in between."""

    def __init__(self, tls: ssl.SSLContext, connections: int) -> None:
        self._tls = tls
        super().__init__(MOST_HOSTS, connections, max_retries=0)

    def init_poolmanager(
        self, connections: int, maxsize: int, block: bool = False, **more: Any
    ) -> None:
        self.poolmanager = self.pools = Pools(connections, maxsize, self._tls)

    def proxy_manager_for(self, proxy: str, **more: Any) -> Any:
        raise Blocked("no proxy is used")

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """The shared context verifies; no file is read here."""

    def get_connection_with_tls_context(
        self, request: requests.PreparedRequest, verify: Any, proxies: Any = None, cert: Any = None
    ) -> Any:
        """The pool of the URL's origin: it is parsed already, and there is no proxy."""
        url = current().url
        return self.pools.connection_from_host(url.host, url.port, url.scheme)

    def request_url(self, request: requests.PreparedRequest, proxies: Any) -> str:
        return current().target

    def build_response(self, req: requests.PreparedRequest, resp: Any) -> requests.Response:
        """Only what is read: no cookies, no encoding, no history."""
        response = requests.Response()
        response.raw = resp
        return response

    def post(self, attempt: Attempt) -> urllib3.BaseHTTPResponse:
        """Send the attempt's request as it stands and answer with its head read.

        Raises requests' exceptions, and ValueError for a header that is malformed.
        """
        request = attempt.request
        checked_lines(request.headers)
        prepared = requests.PreparedRequest()
        prepared.method, prepared.url, prepared.body = "POST", attempt.url.text, request.body
        prepared.headers = CaseInsensitiveDict(request.headers)
        prepared.headers["Content-Length"] = str(len(request.body))
        for name in NOT_ADDED:
            prepared.headers.setdefault(name, SKIP_HEADER)
        left = attempt.left_s(attempt.due)
        timeout: Any = Timeout(connect=min(request.connect_timeout_s, left), read=left)
        raw: urllib3.BaseHTTPResponse = self.send(
            prepared, stream=True, timeout=timeout, proxies={}
        ).raw
        return raw


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """One for all connections: certificates and names verified, TLS 1.2 at least."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(ca_file or certifi.where())
    return context
