"""/failure-groups: what goes wrong, each kind of failure of an endpoint once."""

from __future__ import annotations

import msgspec
from flask import Blueprint, Response, request
from sqlalchemy import Row, Select, select, tuple_

from webhooks import failure_groups, ids
from webhooks.api import bodies, pages
from webhooks.api.authentication import credential, tenant_to_read
from webhooks.api.bodies import Timestamp, answer, rfc3339, timestamp
from webhooks.api.operations import Parameter, operation
from webhooks.api.pages import Page
from webhooks.api.problems import not_found
from webhooks.attempt import ErrorClass
from webhooks.failure_groups import State
from webhooks.models import FailureGroup, Tenant, db
from webhooks.scopes import Scope

PARAMETERS = (
    Parameter("state", f"One of {', '.join(State)}; without it all but the muted ones"),
    Parameter("endpoint", "Those of this endpoint (ep_…)"),
    Parameter("tenant", "Those of this tenant; for a key of all tenants"),
)

blueprint = Blueprint("failure_groups", __name__)


class ShownGroup(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Failures of one endpoint that have class, code and words but for numbers in common.

    ``detail``: the last one's words; ``dead_lettered``: deliveries whose last try was among
    them; ``state_by`` and ``state_at``: who set a state last.
    """

    id: str
    tenant: str
    endpoint: str
    error_class: ErrorClass
    status_code: int | None
    detail: str
    first_at: Timestamp
    last_at: Timestamp
    failures: int
    dead_lettered: int
    last_delivery: str
    state: State
    state_by: str | None
    state_at: Timestamp | None


class GroupChange(msgspec.Struct, forbid_unknown_fields=True):
    """``acknowledged``: somebody is at it, and it opens again by itself when it fails after an
    hour's quiet; ``muted``: for good.
    """

    state: State


_change = msgspec.json.Decoder(GroupChange)


@blueprint.get("/failure-groups")
@operation(
    Scope.DELIVERIES_READ,
    answer=Page[ShownGroup],
    parameters=(*PARAMETERS, *pages.PARAMETERS),
)
def list_() -> Response:
    """Groups of failures, the last to fail first; one that fails again moves to the top."""
    pages.check_parameters(*(each.name for each in PARAMETERS), "limit", "cursor")
    size = pages.limit()
    args = sorted((k, v) for k, v in request.args.items() if k not in ("limit", "cursor"))
    context = pages.context_of(request.path, args)
    query, begins = _wanted(), pages.cursor(context)
    place = tuple_(FailureGroup.last_at, FailureGroup.id)
    if begins.place is not None:
        edge = tuple_(*begins.place)
        query = query.where(place > edge if begins.backwards else place < edge)
    order = [each.asc() if begins.backwards else each.desc()
             for each in (FailureGroup.last_at, FailureGroup.id)]  # fmt: skip
    with pages.search():
        rows = db.session.execute(query.order_by(*order).limit(size + 1)).all()
    return answer(
        pages.page(
            rows, size, lambda row: (row[0].last_at, row[0].id), _shown, begins, context
        )
    )  # fmt: skip


@blueprint.patch("/failure-groups/<group_id>")
@operation(Scope.DELIVERIES_REPLAY, body=GroupChange, answer=ShownGroup)
def update(group_id: str) -> Response:
    """Say that somebody is at it, that nobody has to be, or that it is open again."""
    who, wanted = credential(), bodies.read_struct(_change)
    try:
        value = ids.decode(ids.FAILURE_GROUP, group_id)
    except ValueError as error:
        raise not_found("failure group") from error
    there = failure_groups.change(value, who.only_tenant, wanted.state, actor=who.actor)
    row = db.session.execute(_query().where(FailureGroup.id == value)).first() if there else None
    if row is None:
        raise not_found("failure group")
    return answer(_shown(row))


def _query() -> Select[FailureGroup, str]:
    return select(FailureGroup, Tenant.key).join(Tenant, Tenant.id == FailureGroup.tenant_id)


def _wanted() -> Select[FailureGroup, str]:
    query, state = _query(), pages.choice("state", list(State))
    if state is None:
        query = query.where(FailureGroup.state != State.MUTED)
    else:
        query = query.where(FailureGroup.state == state)
    if (tenant_id := tenant_to_read(request.args.get("tenant"))) is not None:
        query = query.where(FailureGroup.tenant_id == tenant_id)
    if (endpoint_id := pages.id_parameter("endpoint", ids.ENDPOINT)) is not None:
        query = query.where(FailureGroup.endpoint_id == endpoint_id)
    return query


def _shown(row: Row[FailureGroup, str]) -> ShownGroup:
    group, tenant = row
    return ShownGroup(
        id=ids.encode(ids.FAILURE_GROUP, group.id),
        tenant=tenant,
        endpoint=ids.encode(ids.ENDPOINT, group.endpoint_id),
        error_class=ErrorClass(group.error_class),
        status_code=group.status_code,
        detail=group.detail,
        first_at=rfc3339(group.first_at),
        last_at=rfc3339(group.last_at),
        failures=group.failures,
        dead_lettered=group.dead_lettered,
        last_delivery=ids.encode(ids.DELIVERY, group.last_delivery_id),
        state=State(group.state),
        state_by=group.state_by,
        state_at=timestamp(group.state_at),
    )
