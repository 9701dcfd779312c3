"""What new fields do to an endpoint's row, and what the audit log says of them.

Within the caller's transaction, which holds the endpoint's row.
"""

from __future__ import annotations

from collections.abc import Set
from datetime import UTC, datetime
from typing import Any

from webhooks import audit, ca_certificates, endpoint_headers
from webhooks.attempt import Headers
from webhooks.models import Endpoint, Subscription, db
from webhooks.secrets import Keyring, SecretError


def apply(endpoint: Endpoint, keyring: Keyring, values: dict[str, Any], actor: str) -> Set[str]:
    """Set what differs from what is stored; answers the names of those fields."""
    before = {name: _value(endpoint, keyring, name) for name in values}
    changes = {name: new for name, new in values.items() if before[name] != new}
    for name, new in changes.items():
        _set(endpoint, keyring, name, new)
    if changes:
        endpoint.updated_at = datetime.now(UTC)
        detail = {name: _logged_change(name, before[name], new) for name, new in changes.items()}
        audit.record_endpoint("endpoint.update", endpoint, actor, **detail)
        db.session.flush()
    return changes.keys()


def subscribe(endpoint: Endpoint, patterns: list[str]) -> None:
    """Keep the subscriptions that stay, so that their ids do."""
    kept = [each for each in endpoint.subscriptions if each.pattern in patterns]
    new = sorted(set(patterns) - {each.pattern for each in kept})
    endpoint.subscriptions = kept + [
        Subscription(tenant_id=endpoint.tenant_id, endpoint_id=endpoint.id, pattern=pattern)
        for pattern in new
    ]


def logged(name: str, value: Any) -> Any:
    """A field for the audit log: of a URL no query, often a token; of headers no value."""
    if name == "url":
        return value.partition("?")[0]
    if name == "headers":
        return [header for header, _ in value]
    return ca_certificates.fingerprints(value) if name == "ca_pem" else value


def _value(endpoint: Endpoint, keyring: Keyring, name: str) -> Any:
    if name == "event_types":
        return [each.pattern for each in endpoint.subscriptions]
    if name == "headers":
        try:
            return endpoint_headers.read(endpoint, keyring)
        except SecretError:  # no longer readable: whatever comes is another
            return None
    return getattr(endpoint, name)


def _set(endpoint: Endpoint, keyring: Keyring, name: str, value: Any) -> None:
    if name == "event_types":
        subscribe(endpoint, value)
    elif name == "headers":
        endpoint.headers = endpoint_headers.seal(endpoint, keyring, value)
    else:
        setattr(endpoint, name, value)


def _logged_change(name: str, before: Any, new: Any) -> Any:
    if name == "headers":
        return _logged_headers(before or (), new)
    return [logged(name, before), logged(name, new)]


def _logged_headers(before: Headers, new: Headers) -> dict[str, list[str]]:
    return {
        "set": [name for name, value in new if (name, value) not in before],
        "removed": [name for name, _ in before if name not in dict(new)],
    }
