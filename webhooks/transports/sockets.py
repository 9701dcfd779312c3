"""The sockets that libcurl uses: watched over epoll (Linux) or poll, with a wake-up call."""

from __future__ import annotations

import contextlib
import select
import socket
from typing import Any

import pycurl

MOST_EVENTS = 1024
IDLE = 0  # a descriptor that is watched, though libcurl asks for nothing
TO_POLL = {
    pycurl.POLL_IN: select.POLLIN,
    pycurl.POLL_OUT: select.POLLOUT,
    pycurl.POLL_INOUT: select.POLLIN | select.POLLOUT,
}


class Sockets:
    """What the event loop waits for. Only ``wake`` may be called from another thread."""

    def __init__(self) -> None:
        self._poll: Any = select.epoll() if hasattr(select, "epoll") else _Poll()
        self._wanted: set[int] = set()
        # What the kernel has been told, and how many sockets had been opened by then.
        self._registered: dict[int, tuple[int, int]] = {}
        self._opened = 0
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._poll.register(self._woken.fileno(), select.POLLIN)

    def opened(self) -> None:
        """A socket was opened: it may have the number of one that was closed meanwhile."""
        self._opened += 1

    def watch(self, what: int, descriptor: int, _multi: Any, _data: Any) -> None:
        """libcurl's M_SOCKETFUNCTION: watch a socket for ``what``, or no longer.

        A kept-alive one stays registered between two requests: no system call at all for
        the next one, unless its number may be another socket's by now. The kernel has
        dropped a socket that was closed: then modify fails.
        """
        events = TO_POLL.get(what, IDLE)
        if events == IDLE:
            self._wanted.discard(descriptor)
            return
        self._wanted.add(descriptor)
        registered = self._registered.get(descriptor)
        if registered == (events, self._opened):
            return
        self._registered[descriptor] = events, self._opened
        if registered is not None:
            with contextlib.suppress(FileNotFoundError):
                self._poll.modify(descriptor, events)
                return
        self._poll.register(descriptor, events)

    def wait(self, timeout_s: float) -> tuple[bool, list[tuple[int, int]]]:
        """Whether ``wake`` was called, and (socket, CSELECT_*) for each that is ready."""
        woken = False
        ready = []
        for descriptor, events in self._poll.poll(timeout_s, MOST_EVENTS):
            if descriptor in self._wanted:
                ready.append((descriptor, _to_curl(events)))
            elif descriptor == self._woken.fileno():
                woken = True
                self._swallow()
            else:
                self._forget(descriptor)
        return woken, ready

    def wake(self) -> None:
        """Make ``wait`` return, this one or the next."""
        # Full: it will wake. Closed: nobody waits.
        with contextlib.suppress(OSError):
            self._waker.send(b"!")

    def close(self) -> None:
        self._poll.close()
        self._woken.close()
        self._waker.close()

    def _swallow(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass

    def _forget(self, descriptor: int) -> None:
        """An idle connection was closed by its peer; libcurl will see when it looks at it."""
        self._registered.pop(descriptor, None)
        with contextlib.suppress(OSError):
            self._poll.unregister(descriptor)


class Lent:
    """A socket of which pycurl takes a duplicate; ours is closed when it lets go of this."""

    def __init__(self, original: socket.socket) -> None:
        self._original = original

    def fileno(self) -> int:
        return self._original.fileno()

    def __del__(self) -> None:
        self._original.close()


class _Poll:
    """select.poll as epoll looks, for systems that have no epoll."""

    def __init__(self) -> None:
        poll = select.poll()
        self.register, self.modify, self.unregister = poll.register, poll.modify, poll.unregister
        self._poll = poll.poll

    def poll(self, timeout_s: float, most: int) -> list[tuple[int, int]]:
        return self._poll(timeout_s * 1000)[:most]

    def close(self) -> None:
        """A poll object holds nothing to close."""


def _to_curl(events: int) -> int:
    ready = pycurl.CSELECT_IN if events & (select.POLLIN | select.POLLHUP) else 0
    ready |= pycurl.CSELECT_OUT if events & select.POLLOUT else 0
    return ready | (pycurl.CSELECT_ERR if events & select.POLLERR else 0)
