"""What a person should know first of an endpoint: its state, its failures, what comes next.

The functions take rows of ``queries``: an endpoint with its lane, and the database's time.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from webhooks import lanes
from webhooks.dashboard.site import blueprint, settings
from webhooks.evidence import Evidence
from webhooks.lanes import State

# This many failed attempts in a row are worth a person's look.
FAILING = 3

Row = Mapping[str, Any]

NAMES = {
    "active": "Active",
    "failing": "Failing",
    State.RATE_LIMITED.value: "Rate limited",
    State.THROTTLED.value: "Throttled",
    State.BROKEN.value: "Broken",
    State.PAUSED.value: "Paused",
    State.DISABLED.value: "Disabled",
}


@blueprint.app_template_global("endpoint_state")
def endpoint_state(endpoint: Row) -> str:
    """The lane's state; an open lane is active, or failing after a few failures in a row."""
    if endpoint["failures"] is None:  # no lane
        return str(endpoint["status"])
    state = lanes.state(
        endpoint["status"],
        endpoint["open_at"],
        endpoint["rate_open_at"],
        endpoint["broken_s"],
        endpoint["database_now"],
    )
    if state not in (State.OPEN, State.RATE_LIMITED):
        return state.value
    if endpoint["failures"] >= FAILING:
        return "failing"
    return "active" if state is State.OPEN else state.value


@blueprint.app_template_filter("endpoint_state_name")
def endpoint_state_name(state: str) -> str:
    """An endpoint's state as a label."""
    return NAMES.get(state, state)


@blueprint.app_template_global("disable_at")
def disable_at(endpoint: Row) -> datetime | None:
    """When it is disabled unless an attempt succeeds; None before its owner was warned."""
    return lanes.disable_at(
        endpoint["status"],
        endpoint["failing_since"],
        endpoint["warned_at"],
        settings().disable_after_s,
    )


@blueprint.app_template_global("evidence")
def evidence(endpoint: Row) -> Evidence | None:
    """Why the engine closed it; None where a person did, or it is active."""
    stored = endpoint["status_evidence"]
    return None if stored is None else Evidence.read(stored)
