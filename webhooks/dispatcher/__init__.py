"""The dispatcher: claim, send, settle. It knows no gunicorn and no HTTP detail."""

from webhooks.dispatcher.dispatcher import Dispatcher

__all__ = ["Dispatcher"]
