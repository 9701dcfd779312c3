"""The transport on requests: threads, hardened connections, one watchdog."""

from webhooks.transports.threaded.transport import ThreadsTransport

__all__ = ["ThreadsTransport"]
