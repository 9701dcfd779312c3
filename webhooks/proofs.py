"""Proofs: an endpoint is asked whether it wants to be sent to, and becomes active by its yes.

Two transactions; none is open while the endpoint is asked. That it is asked at most once in
10 s, and one host, for whatever endpoints and tenants, at most 60 times an hour, all web
processes read in the audit log: asking must not be a way to have somebody flooded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from flask import current_app
from sqlalchemy import select, text

from webhooks import audit, deliveries, endpoints, ids, ownership
from webhooks.attempt import Target
from webhooks.endpoint_fields import FASTEST_RATE, EndpointError
from webhooks.models import Endpoint, db
from webhooks.ownership import Mode, NotProven, Proof
from webhooks.settings import Settings
from webhooks.web_database import psycopg_connection

ONCE_IN_S = 10
MOST_OF_HOST = 60
HOST_WINDOW_S = 3600
HOST_WAIT_S = 600
ASKED = "endpoint.prove"

Prover: TypeAlias = Callable[[Target], Proof]

_LATELY = text("""
SELECT EXISTS (
    SELECT FROM webhooks.audit_log
    WHERE id >= webhooks.uuid7_floor(now() - make_interval(secs => :once_in_s))
      AND object = :object AND action = :action)
""")


# Whoever counts a host's is the only one until it is written down.
_HOST_LOCK = text("SELECT pg_advisory_xact_lock(webhooks.host_of(:url))")
_OF_HOST = text("""
SELECT count(*) FROM webhooks.audit_log
WHERE id >= webhooks.uuid7_floor(now() - make_interval(secs => :window_s))
  AND action = :action AND webhooks.host_of(detail ->> 'url') = webhooks.host_of(:url)
""")


class TooSoon(EndpointError):
    """The endpoint, or its host, was asked lately; ``wait_s`` seconds later it may be again."""

    def __init__(self, message: str, wait_s: int) -> None:
        super().__init__("url", message)
        self.wait_s = wait_s


def prove(endpoint: Endpoint, *, actor: str) -> None:
    """Ask it, and make it active where only the proof was missing. Nothing is sent if its URL
    is proved already.

    Raises TooSoon, or EndpointError when it did not say yes; both texts are for the owner.
    """
    settings: Settings = current_app.extensions["webhooks_settings"]
    if settings.ownership_proof == Mode.OFF:
        raise EndpointError("url", "this installation asks for no proof; nothing was sent")
    if ownership.missing(settings, endpoint.url, endpoint.proven_url) is None:
        _accept(endpoint, settings, endpoint.url, Proof(), actor)
        return
    target = _begin(endpoint, settings, actor)
    prover: Prover = current_app.extensions["webhooks_prover"]
    try:
        proof = prover(target)
    except NotProven as error:
        _record("endpoint.not_proven", endpoint, actor, url=target.url, reason=str(error))
        db.session.commit()
        raise EndpointError("url", f"it is not proved: {error}") from error
    _accept(endpoint, settings, target.url, proof, actor)


def _begin(endpoint: Endpoint, settings: Settings, actor: str) -> Target:
    """What to ask, after the database knows that it will be asked."""
    endpoint_id = endpoint.id
    _lock(endpoint)
    values = {"object": _public_id(endpoint), "action": ASKED, "once_in_s": ONCE_IN_S}
    if db.session.scalar(_LATELY, values):
        db.session.rollback()
        raise TooSoon(f"it was asked a moment ago; try again in {ONCE_IN_S} s", ONCE_IN_S)
    _check_host(endpoint.url)
    _record(ASKED, endpoint, actor, url=endpoint.url, by=settings.ownership_proof)
    db.session.commit()
    with psycopg_connection() as connection:
        target = deliveries.target(connection, endpoint_id)
    if target is None:
        raise EndpointError("endpoint", "it was deleted meanwhile")
    return target


def _check_host(url: str) -> None:
    db.session.execute(_HOST_LOCK, {"url": url})
    values = {"window_s": HOST_WINDOW_S, "action": ASKED, "url": url}
    if (db.session.scalar(_OF_HOST, values) or 0) >= MOST_OF_HOST:
        db.session.rollback()
        why = f"its host was asked {MOST_OF_HOST} times within an hour; try again later"
        raise TooSoon(why, HOST_WAIT_S)


def _accept(endpoint: Endpoint, settings: Settings, url: str, proof: Proof, actor: str) -> None:
    _lock(endpoint)
    if endpoint.url != url:
        db.session.rollback()
        raise EndpointError("url", "it was changed meanwhile; prove the new one")
    if endpoint.proven_url != url:
        endpoint.proven_url = url
        _record("endpoint.proven", endpoint, actor, url=url, per_minute=proof.per_minute)
        db.session.flush()
    changes = _limit(endpoint, proof)
    if endpoint.status == "paused" and (endpoint.status_reason or "").startswith(
        ownership.UNPROVEN
    ):
        changes["status"] = "active"
    if changes:
        endpoints.update(endpoint, settings, actor=actor, **changes)
    db.session.commit()


def _limit(endpoint: Endpoint, proof: Proof) -> dict[str, Any]:
    """The rate that the endpoint permits, unless its own limit is lower."""
    if proof.per_minute is None:
        return {}
    per_second = proof.per_minute / 60
    if per_second >= (endpoint.rate_limit or FASTEST_RATE):
        return {}
    return {"rate_limit": {"per_second": per_second}}


def _lock(endpoint: Endpoint) -> None:
    """Lock the row and see it as it is now; EndpointError when it was deleted meanwhile."""
    row = select(Endpoint.id).where(Endpoint.id == endpoint.id, Endpoint.deleted_at.is_(None))
    if db.session.scalar(row.with_for_update(key_share=True)) is None:
        db.session.rollback()
        raise EndpointError("endpoint", "it was deleted meanwhile")
    db.session.expire(endpoint)


def _record(action: str, endpoint: Endpoint, actor: str, *, url: str, **detail: Any) -> None:
    """An audit entry, without the URL's query, which is often a token."""
    audit.record(
        action, _public_id(endpoint), actor=actor, tenant_id=endpoint.tenant_id,
        url=url.partition("?")[0], **detail,
    )  # fmt: skip


def _public_id(endpoint: Endpoint) -> str:
    return ids.encode(ids.ENDPOINT, endpoint.id)
