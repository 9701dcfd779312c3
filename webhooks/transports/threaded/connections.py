"""urllib3's connections, hardened: pinned addresses, bounded heads, ages, one deadline.

What an attempt knows reaches them by ``attempting``, for urllib3 makes and reuses them by
itself, in the thread that sends.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ClosedPoolError, ConnectTimeoutError, NewConnectionError

from webhooks.transports.base import IDLE_CONNECTION_S, OLDEST_CONNECTION_S
from webhooks.transports.proxy import Proxy, authority, unreachable
from webhooks.transports.threaded.attempt import Attempt, current
from webhooks.transports.threaded.response import BoundedResponse
from webhooks.transports.threaded.tunnel import ProxyFault, open_tunnel
from webhooks.transports.threaded.watchdog import Cord

MOST_DIALLED = 4
PATIENCE_S = 0.5

if TYPE_CHECKING:
    # They are mixed in before urllib3's own.
    _Connection = HTTPConnection
    _Pool = urllib3.HTTPConnectionPool
else:
    _Connection = _Pool = object


class Blocked(Exception):
    """An address is not allowed. No OSError or HTTPError: urllib3 would try again after one."""


class _Pinned(_Connection):
    """Dials only addresses that were checked, and hands the watchdog a cord to each connection."""

    response_class = BoundedResponse
    cord: Cord | None = None
    born = idle_since = 0.0
    peer: str | None = None
    _unsent: list[bytes] | None = None
    _dns_host: str
    port: int

    def _new_conn(self) -> socket.socket:
        attempt = current()
        due = min(attempt.due, time.monotonic() + attempt.request.connect_timeout_s)
        attempt.watch.move(due)
        if attempt.proxy is not None:
            return self._pass_through(attempt, attempt.proxy, due)
        problem: OSError | None = None
        addresses = attempt.addresses[:MOST_DIALLED]
        for n, address in enumerate(addresses):
            if not attempt.allows(address):
                raise Blocked(address)
            # One that swallows packets must not eat the time of the others.
            last = n == len(addresses) - 1
            try:
                return self._dial(attempt, address, due if last else time.monotonic() + PATIENCE_S)
            except OSError as error:
                problem = error
        if isinstance(problem, TimeoutError) or attempt.watch.fired:
            raise ConnectTimeoutError(self, "no connection in time") from problem
        why = problem.strerror if problem is not None else "the name has no address"
        raise NewConnectionError(self, f"no connection: {why}") from problem

    def _pass_through(self, attempt: Attempt, proxy: Proxy, due: float) -> socket.socket:
        address = attempt.addresses[0]
        if not attempt.allows(address):
            raise Blocked(address)
        try:
            dialled = socket.create_connection((proxy.host, proxy.port), attempt.left_s(due))
        except OSError as error:
            raise ProxyFault(unreachable(error.strerror or str(error))) from error
        try:
            self.cord = attempt.watch.tie(dialled)
            open_tunnel(dialled, proxy, authority(address, (), self.port))
        except BaseException as error:
            dialled.close()
            if isinstance(error, OSError):
                raise ProxyFault(unreachable("it did not answer")) from error
            raise
        self.peer = attempt.peer = address
        self.born = attempt.connected_at = time.monotonic()
        return dialled

    def _dial(self, attempt: Attempt, address: str, due: float) -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        dialled = socket.socket(family, socket.SOCK_STREAM)
        try:
            dialled.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            dialled.settimeout(attempt.left_s(due))
            dialled.connect((address, self.port))
            self.peer = attempt.peer = dialled.getpeername()[0]
            if not attempt.allows(self.peer):
                raise Blocked(self.peer)
            self.cord = attempt.watch.tie(dialled)
        except BaseException:
            dialled.close()
            raise
        self.born = attempt.connected_at = time.monotonic()
        return dialled

    def connect(self) -> None:
        attempt = current()
        attempt.handshaking = True
        super().connect()
        attempt.handshaking = False
        if isinstance(self, HTTPSConnection):
            attempt.secured_at = time.monotonic()
        attempt.watch.move(attempt.due)
        self.sock.settimeout(attempt.left_s(attempt.due))

    def putrequest(self, method: str, url: str, *args: Any, **kwargs: Any) -> None:
        """Begin to send; the target as it is written, which urllib3 would spell in its own way."""
        attempt = current()
        if self.cord is not None:
            attempt.watch.hold(self.cord)
            attempt.peer = self.peer
        super().putrequest(method, attempt.target, *args, **kwargs)

    def request(self, *args: Any, **kwargs: Any) -> None:
        """Send head and body in one write, not in two."""
        self._unsent = []
        super().request(*args, **kwargs)
        data, self._unsent = b"".join(self._unsent), None
        self.send(data)

    def send(self, data: Any) -> None:
        if self._unsent is None:
            super().send(data)
        else:
            self._unsent.append(data)

    def close(self) -> None:
        # First: closing the socket may raise, and would leave its twin.
        if self.cord is not None:
            self.cord.close()
            self.cord = None
        super().close()

    def is_old(self, now: float) -> bool:
        """Whether it has been open, or idle, for too long to be used again."""
        old = now - self.born > OLDEST_CONNECTION_S
        return old or now - self.idle_since > IDLE_CONNECTION_S


class PlainConnection(_Pinned, HTTPConnection):
    """http://, pinned."""


class SecureConnection(_Pinned, HTTPSConnection):
    """https://, pinned."""


class _Ageing(_Pool):
    """Hands out no connection that is too old, and a new one to an attempt that asks for it."""

    def _get_conn(self, timeout: float | None = None) -> Any:
        attempt = current()
        try:
            connection: Any = super()._get_conn(timeout)
        except ClosedPoolError:  # it was dropped a moment ago; nobody's fault
            connection = self._new_conn()
        if connection.sock is not None and (attempt.fresh or connection.is_old(time.monotonic())):
            connection.close()  # and it connects anew; its place in the pool stays its own
        attempt.reused = connection.sock is not None
        return connection

    def idle_since(self) -> list[float]:
        """Since when its open connections have been idle."""
        waiting = self.pool
        if waiting is None:
            return []
        with waiting.mutex:
            return [each.idle_since for each in waiting.queue if each and each.sock]

    def sweep(self, now: float, since: float) -> None:
        """Close what is too old, or idle since then or longer; it keeps its place in the pool."""
        waiting = self.pool
        if waiting is None:
            return
        with waiting.mutex:
            for connection in filter(None, waiting.queue):
                if connection.is_old(now) or connection.idle_since <= since:
                    connection.close()

    def _put_conn(self, connection: Any) -> None:
        if connection is not None:
            connection.idle_since = time.monotonic()
            if current().excess:
                connection.close()
        super()._put_conn(connection)


class PlainPool(_Ageing, urllib3.HTTPConnectionPool):
    ConnectionCls = PlainConnection


class SecurePool(_Ageing, urllib3.HTTPSConnectionPool):
    ConnectionCls = SecureConnection


class Pools(urllib3.PoolManager):
    """Every connection is one of ours; a pool belongs to one origin and one TLS context."""

    def __init__(self, hosts: int, each: int) -> None:
        super().__init__(num_pools=hosts, maxsize=each, block=False)
        self.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}
        # urllib3 leaves what it drops to the garbage collector, which comes late: an error
        # holds its pool in a cycle.
        self.pools.dispose_func = urllib3.HTTPConnectionPool.close

    def sweep(self, most: int) -> None:
        """Close idle connections: those too old to be used again, all but the last ``most``."""
        now = time.monotonic()
        found: list[Any] = [self.pools.get(key) for key in list(self.pools.keys())]
        pools = [pool for pool in found if pool is not None]
        idle = sorted((since for pool in pools for since in pool.idle_since()), reverse=True)
        for pool in pools:
            pool.sweep(now, idle[most] if len(idle) > most else float("-inf"))
