"""GET and PATCH /api/v1/tenant, POST /api/v1/retry-policies/preview, and their command."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result
from flask import Flask

from tests.api import Api, errors
from tests.queue import one
from webhooks import cli


@pytest.fixture
def api(app: Flask) -> Api:
    """A caller with a key of all tenants."""
    return Api(app)


def test_a_policys_ladder_can_be_looked_at_before_it_is_stored(
    api: Api, connection: psycopg.Connection
) -> None:
    """Every attempt with its wait and the time since the first; jitter is told, not drawn."""
    shown = api.post("/retry-policies/preview", {"base_s": 1, "factor": 3, "attempts": 4}).json

    assert shown == {
        "attempts": 4,
        "total_s": 13,
        "jitter": 0.2,
        "rungs": [
            {"attempt": 1, "wait_s": 0, "elapsed_s": 0},
            {"attempt": 2, "wait_s": 1, "elapsed_s": 1},
            {"attempt": 3, "wait_s": 3, "elapsed_s": 4},
            {"attempt": 4, "wait_s": 9, "elapsed_s": 13},
        ],
    }
    assert one(connection, "SELECT count(*) FROM webhooks.audit_log WHERE action <> %s",
               "key.create") == 0  # fmt: skip


BAD: list[tuple[Any, str, int]] = [
    ({"base_s": -1}, "base_s", 422),
    ({"base_s": 1e300}, "base_s", 422),
    ({"base_s": True}, "base_s", 422),
    ({"factor": "4"}, "factor", 422),
    ({"attempts": 10**400}, "attempts", 422),
    ({"attempts": 0}, "attempts", 422),
    ({"delays_s": [1, -1]}, "delays_s[1]", 422),
    ({"delays_s": [[1]]}, "delays_s[0]", 422),
    ({"delays_s": [1] * 100}, "delays_s", 422),
    ({"delays_s": [1], "base_s": 1}, "delays_s", 422),
    ({"tries": 1}, "tries", 422),
    ([], "body", 422),
    (b"{", "body", 400),
    (b'{"base_s": NaN}', "body", 400),
    (b'{"base_s": 1e400}', "body", 422),
    (b'{"attempts": 1' + b"0" * 5000 + b"}", "body", 422),
]


def test_a_wrong_policy_is_named(api: Api) -> None:
    """422 names the field in a preview and in a tenant's change; nothing is stored (W084)."""
    before = api.get("/tenant").json
    for policy, field, status in BAD:
        answer = api.post("/retry-policies/preview", policy)
        assert answer.status_code == status, policy
        assert list(errors(answer)) == [field], policy
        if isinstance(policy, dict):
            changed = api.patch("/tenant", {"retry_policy": policy})
            assert list(errors(changed)) == [f"retry_policy.{field}"]

    assert api.get("/tenant").json == before


def test_a_tenants_policy_holds_for_its_endpoints(
    app: Flask, api: Api, connection: psycopg.Connection
) -> None:
    """Set, shown, taken back; each change leaves one entry, the same value none."""
    acme = Api(app, "acme")
    endpoint = f"/endpoints/{acme.endpoint('*')}"
    policy = {"delays_s": [1, 2]}

    changed = acme.patch("/tenant", {"retry_policy": policy}).json
    acme.patch("/tenant", {"retry_policy": policy})
    acme.patch("/tenant", {})

    assert changed is not None
    assert changed == acme.get("/tenant").json == api.get("/tenant?tenant=acme").json
    assert changed.keys() == {
        "id", "key", "name", "retry_policy", "payload_days", "unknown_event_types",
        "retry_ladder", "created_at",
    }  # fmt: skip
    assert (changed["key"], changed["retry_policy"]) == ("acme", policy)
    assert changed["retry_ladder"]["source"] == "tenant"
    assert (acme.get(endpoint).json or {})["retry_ladder"]["source"] == "tenant"
    taken = api.call("PATCH", "/tenant?tenant=acme", {"retry_policy": None}).json
    assert taken is not None
    assert (taken["retry_policy"], taken["retry_ladder"]["source"]) == (None, "installation")
    rows = connection.execute(
        "SELECT actor, object, detail FROM webhooks.audit_log WHERE action = 'tenant.update' "
        "ORDER BY id"
    ).fetchall()
    assert [row[2] for row in rows] == [
        {"retry_policy": [None, policy]},
        {"retry_policy": [policy, None]},
    ]
    assert {row[1] for row in rows} == {changed["id"]}


def test_a_key_reaches_its_own_tenant_alone(app: Flask, api: Api) -> None:
    """Another one is 403, an unknown one 422; a key of all tenants is default's by itself."""
    acme = Api(app, "acme")

    assert (api.get("/tenant").json or {})["key"] == "default"
    for answer in (
        acme.get("/tenant?tenant=default"),
        acme.call("PATCH", "/tenant?tenant=default", {"retry_policy": None}),
    ):
        assert (answer.status_code, list(errors(answer))) == (403, ["tenant"])
    for path in ("/tenant?tenant=nobody", "/tenant?tenant=%00", "/tenant?tenat=x"):
        assert api.get(path).status_code == 422


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, ["tenant", "retry-policy", *arguments])


def test_the_command_shows_and_sets_a_tenants_policy(
    database_url: str, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose policy it is, and its ladder in words; a wrong one is named in one line."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    usual = "after 10 s, 40 s, 2 min 40 s … 24 h: 10 attempts over about 2.6 days"

    assert run("default").stdout == f"installation\n{usual}\n"
    assert run("default", '{"delays_s": [60]}').stdout == (
        'tenant: {"delays_s": [60]}\nafter 1 min: 2 attempts over about 60 seconds\n'
    )
    assert one(connection, "SELECT retry_policy FROM webhooks.tenants") == {"delays_s": [60]}
    assert run("default", "--reset").stdout == f"installation\n{usual}\n"
    for arguments, named in (
        (["default", '{"attempts": NaN}'], "retry_policy.attempts"),
        (["default", "[]"], "object"),
        (["default", "{"], "JSON"),
        (["default", "{}", "--reset"], "--reset"),
        (["nobody"], "nobody"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2
        assert named in result.stderr
    actions = connection.execute("SELECT action FROM webhooks.audit_log").fetchall()
    assert actions == [("tenant.update",)] * 2
