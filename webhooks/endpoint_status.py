"""An endpoint's status: what may be asked for, and what a new one does to its lane.

Within the caller's transaction, which holds the endpoint's row.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from webhooks import audit, endpoint_lanes, ownership
from webhooks.endpoint_fields import EndpointError, check_reason
from webhooks.field_error import echo
from webhooks.models import Endpoint, db
from webhooks.release import Release
from webhooks.release import check as check_release
from webhooks.settings import Settings

# What each status is called as something that is done.
_ACTIONS = {"active": "resume", "paused": "pause", "disabled": "disable"}


def check(status: str | None, reason: str | None, release: Release | None) -> None:
    """EndpointError when these do not go together; None is what is not given."""
    if status is not None and status not in _ACTIONS:
        raise EndpointError("status", f"{echo(status)} is not one of {', '.join(_ACTIONS)}")
    if reason is not None and status not in ("paused", "disabled"):
        raise EndpointError("status_reason", "give it with the status paused or disabled")
    check_reason(reason)
    if release is not None:
        if status != "active":
            raise EndpointError("release", "give it with the status active")
        check_release(release)


def check_proven(
    endpoint: Endpoint, settings: Settings, values: dict[str, Any], status: str | None
) -> None:
    """EndpointError when it would become active at a URL that its owner has not proved."""
    url = values.get("url", endpoint.url)
    if status != "active" or (endpoint.status == "active" and endpoint.url == url):
        return
    if unproven := ownership.missing(settings, url, endpoint.proven_url):
        raise EndpointError("status", unproven)


def is_new(endpoint: Endpoint, status: str, reason: str | None) -> bool:
    """Whether it has another status, or another reason for it."""
    return status != endpoint.status or reason not in (None, endpoint.status_reason)


def change(
    endpoint: Endpoint, status: str, reason: str | None, actor: str, released: dict[str, Any]
) -> None:
    """Set it, and open or close the lane; ``released`` is what the audit log says of resuming."""
    if status != "active":
        reason = reason or f"{status} by {actor}"
    endpoint.status, endpoint.status_reason = status, reason
    endpoint.status_evidence = None
    endpoint.status_changed_at = endpoint.updated_at = datetime.now(UTC)
    detail = released if reason is None else {"reason": reason}
    audit.record_endpoint(f"endpoint.{_ACTIONS[status]}", endpoint, actor, **detail)
    db.session.flush()
    if reason is None:
        endpoint_lanes.open_again(endpoint)
    else:
        endpoint_lanes.close(endpoint, reason)


def follow_url(endpoint: Endpoint, settings: Settings, actor: str) -> None:
    """What its new URL means: it is to be proved first, or its failures were another's."""
    endpoint_lanes.move(endpoint)
    if endpoint.status != "active":
        return
    if unproven := ownership.missing(settings, endpoint.url, endpoint.proven_url):
        change(endpoint, "paused", unproven, actor, {})
    else:
        endpoint_lanes.open_again(endpoint)
