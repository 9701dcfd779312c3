"""requests' adapter on our own connections, with nothing else in between."""

from __future__ import annotations

from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.structures import CaseInsensitiveDict
from urllib3.util import SKIP_HEADER, Timeout

from webhooks.transports.headers import checked_lines
from webhooks.transports.threaded.attempt import Attempt, current
from webhooks.transports.threaded.connections import Blocked, Pools
from webhooks.transports.threaded.tls import Trust

# A host that falls out of these loses its idle connections, so: rather too many.
MOST_HOSTS = 1_024
# urllib3 would add its own.
NOT_ADDED = ("Accept-Encoding", "User-Agent")


class Adapter(HTTPAdapter):
    """requests' adapter on our connections, with nothing else in between."""

    def __init__(self, trust: Trust, connections: int) -> None:
        self._trust = trust
        super().__init__(MOST_HOSTS, connections, max_retries=0)

    def init_poolmanager(
        self, connections: int, maxsize: int, block: bool = False, **more: Any
    ) -> None:
        self.poolmanager = self.pools = Pools(connections, maxsize)

    def proxy_manager_for(self, proxy: str, **more: Any) -> Any:
        raise Blocked("no proxy is used")

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """The shared context verifies; no file is read here."""

    def get_connection_with_tls_context(
        self, request: requests.PreparedRequest, verify: Any, proxies: Any = None, cert: Any = None
    ) -> Any:
        """The pool of the URL's origin and of whom it trusts; there is no proxy."""
        attempt = current()
        url = attempt.url
        if url.scheme == "http":
            return self.pools.connection_from_host(url.host, url.port, url.scheme)
        tls = {"ssl_context": self._trust.context(attempt.request.ca_pem)}
        return self.pools.connection_from_host(url.host, url.port, url.scheme, tls)

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
        prepared.method, prepared.url = request.method, attempt.url.text
        prepared.body = request.body
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
