"""GET and PATCH /failure-groups."""

from __future__ import annotations

import psycopg
import pytest
from flask import Flask

from tests.api import Api, errors
from tests.queue import claim, one, outcome, register
from webhooks import ids, rollups
from webhooks.attempt import Claim, ErrorClass
from webhooks.tally import Tally

KINDS = (ErrorClass.DNS, ErrorClass.TLS, ErrorClass.TIMEOUT)


@pytest.fixture
def api(app: Flask) -> Api:
    return Api(app)


@pytest.fixture
def claimed(api: Api, connection: psycopg.Connection) -> Claim:
    api.endpoint()
    api.event()
    (found,) = claim(connection, register(connection))
    return found


def fail(connection: psycopg.Connection, claim: Claim, *kinds: ErrorClass) -> None:
    """Failures of these kinds, each flushed by itself, so that they have their order."""
    for kind in kinds:
        tally = Tally()
        tally.add([(claim, outcome(kind, detail=f"failed after {len(kind)} s"), False)])
        rollups.flush(connection, tally.take())


def test_the_last_to_fail_comes_first(
    api: Api, connection: psycopg.Connection, claimed: Claim
) -> None:
    """By pages, both ways; a group that fails again moves to the top with its count."""
    fail(connection, claimed, *KINDS)

    first = api.get("/failure-groups?limit=2").json
    rest = api.get(f"/failure-groups?limit=2&cursor={first['next']}").json

    kinds = [group["error_class"] for group in (*first["data"], *rest["data"])]
    assert kinds == ["timeout", "tls", "dns"]
    assert rest["next"] is None
    back = api.get(f"/failure-groups?limit=2&cursor={rest['prev']}").json
    assert back["data"] == first["data"]

    fail(connection, claimed, ErrorClass.DNS)
    top = api.get("/failure-groups").json["data"][0]
    assert (top["error_class"], top["failures"], top["detail"]) == ("dns", 2, "failed after 3 s")
    assert top["endpoint"] == ids.encode(ids.ENDPOINT, claimed.endpoint_id)
    assert top["last_delivery"] == ids.encode(ids.DELIVERY, claimed.delivery_id)
    assert top["first_at"] < top["last_at"]


def test_groups_are_filtered(
    app: Flask, api: Api, connection: psycopg.Connection, claimed: Claim
) -> None:
    """By state, endpoint and tenant; muted ones are shown to nobody who does not ask."""
    fail(connection, claimed, *KINDS)
    connection.execute("UPDATE webhooks.failure_groups SET state = 'muted' "
                       "WHERE error_class = 'dns'")  # fmt: skip
    other = api.endpoint()
    Api(app, "acme")

    def found(query: str) -> set[str]:
        return {group["error_class"] for group in api.get(f"/failure-groups?{query}").json["data"]}

    assert found("") == {"tls", "timeout"}
    assert found("state=muted") == {"dns"}
    assert found(f"endpoint={other}") == set()
    assert found(f"endpoint={ids.encode(ids.ENDPOINT, claimed.endpoint_id)}") == {"tls", "timeout"}
    assert found("tenant=default") == {"tls", "timeout"}
    assert found("tenant=acme") == set()
    for query, field in (("state=loud", "state"), ("endpoint=x", "endpoint"), ("id=1", "id"),
                         ("cursor=AAAA", "cursor"), ("tenant=nobody", "tenant")):  # fmt: skip
        answer = api.get(f"/failure-groups?{query}")
        assert (answer.status_code, set(errors(answer))) == (422, {field})


def test_a_person_sets_the_state(
    api: Api, connection: psycopg.Connection, claimed: Claim
) -> None:  # fmt: skip
    """It is on record who it was; the same state again leaves no trace."""
    fail(connection, claimed, ErrorClass.DNS)
    (group,) = api.get("/failure-groups").json["data"]
    path = f"/failure-groups/{group['id']}"
    assert (group["state"], group["state_by"], group["state_at"]) == ("open", None, None)

    for _ in range(2):
        changed = api.patch(path, {"state": "acknowledged"}).json
        assert changed["state"] == "acknowledged"
        assert changed["state_by"].startswith("API key test (")
        assert changed["state_at"] is not None
    assert api.patch(path, {"state": "muted"}).json["state"] == "muted"

    entries = connection.execute(
        "SELECT object, detail FROM webhooks.audit_log WHERE action = 'failure_group.update' "
        "ORDER BY id"
    ).fetchall()
    assert entries == [
        (group["id"], {"state": ["open", "acknowledged"]}),
        (group["id"], {"state": ["acknowledged", "muted"]}),
    ]
    assert one(connection, "SELECT failures FROM webhooks.failure_groups") == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [({}, "state"), ({"state": "loud"}, "state"), ({"state": None}, "state"),
     ({"sate": "open"}, "sate"), ([], "body")],
)  # fmt: skip
def test_other_bodies_are_refused(
    api: Api, connection: psycopg.Connection, claimed: Claim, body: object, field: str
) -> None:
    """422 with the field; an id that is none is a 404."""
    fail(connection, claimed, ErrorClass.DNS)
    (group,) = api.get("/failure-groups").json["data"]

    answer = api.patch(f"/failure-groups/{group['id']}", body)

    assert (answer.status_code, set(errors(answer))) == (422, {field})
    for odd in ("fgr_1", group["id"].upper(), "ep_" + group["id"][4:], "%00"):
        assert api.patch(f"/failure-groups/{odd}", {"state": "open"}).status_code == 404
