"""Signatures in the forms of GitHub, Stripe, Shopify and Slack.

For teams that move over without touching their receivers. The key is the secret's whole
text in UTF-8, also where it begins with ``whsec_``: so these senders do it. Sources: the
vendors' pages on verifying webhooks; Slack's v0.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence
from uuid import NAMESPACE_URL, uuid5

from webhooks.signing.keys import Secret
from webhooks.signing.message import Headers, Message


class GitHub:
    """``sha256=`` and the hex HMAC of the body, by the newest key: the form holds one."""

    def __init__(self, secrets: Sequence[Secret]) -> None:
        self._key = secrets[0].text.encode()

    def __call__(self, message: Message) -> Headers:
        # GitHub's delivery ids are UUIDs, and some receivers parse them: the same for each try.
        delivery = uuid5(NAMESPACE_URL, message.id)
        return (
            ("X-GitHub-Event", message.event_type),
            ("X-GitHub-Delivery", str(delivery)),
            ("X-Hub-Signature-256", f"sha256={_hex(self._key, message.body)}"),
        )


class Stripe:
    """``t=…,v1=…`` with one ``v1`` for each key, over ``timestamp.body``."""

    def __init__(self, secrets: Sequence[Secret]) -> None:
        self._keys = [secret.text.encode() for secret in secrets]

    def __call__(self, message: Message) -> Headers:
        content = b"%d.%b" % (message.timestamp, message.body)
        signatures = [f"v1={_hex(key, content)}" for key in self._keys]
        return (("Stripe-Signature", ",".join([f"t={message.timestamp}", *signatures])),)


class Shopify:
    """The base64 HMAC of the body, by the newest key, and the topic."""

    def __init__(self, secrets: Sequence[Secret]) -> None:
        self._key = secrets[0].text.encode()

    def __call__(self, message: Message) -> Headers:
        digest = hmac.digest(self._key, message.body, "sha256")
        return (
            ("X-Shopify-Topic", message.event_type),
            ("X-Shopify-Webhook-Id", message.id),
            ("X-Shopify-Hmac-Sha256", base64.b64encode(digest).decode()),
        )


class Slack:
    """``v0=`` and the hex HMAC of ``v0:timestamp:body``, by the newest key."""

    def __init__(self, secrets: Sequence[Secret]) -> None:
        self._key = secrets[0].text.encode()

    def __call__(self, message: Message) -> Headers:
        content = b"v0:%d:%b" % (message.timestamp, message.body)
        return (
            ("X-Slack-Request-Timestamp", str(message.timestamp)),
            ("X-Slack-Signature", f"v0={_hex(self._key, content)}"),
        )


def _hex(key: bytes, content: bytes) -> str:
    return hmac.digest(key, content, "sha256").hex()
