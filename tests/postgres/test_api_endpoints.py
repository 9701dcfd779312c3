"""POST, GET, PATCH and DELETE /api/v1/endpoints."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest
from flask import Flask

from tests.api import URL, Api, errors
from tests.queue import emit, one, statuses

FIELDS = {
    "id",
    "tenant",
    "url",
    "description",
    "event_types",
    "status",
    "status_reason",
    "max_in_flight",
    "timeout_s",
    "retry_policy",
    "created_at",
    "updated_at",
}


@pytest.fixture
def api(app: Flask) -> Api:
    """A caller with a key of all tenants."""
    return Api(app)


def test_creating_answers_the_endpoint_and_its_secret_once(api: Api) -> None:
    """201 with Location; no later answer holds the secret (W013, W152)."""
    body = {"url": URL, "event_types": ["invoice.*", "a"], "description": "Books"}

    made = api.post("/endpoints", body)

    assert made.status_code == 201
    shown = made.json
    assert shown is not None
    secret = shown.pop("secret")
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", secret)
    assert shown.keys() == FIELDS
    assert made.headers["Location"] == f"/api/v1/endpoints/{shown['id']}"
    assert made.headers["Cache-Control"] == "no-store"
    assert shown["event_types"] == ["a", "invoice.*"]
    assert (shown["status"], shown["status_reason"]) == ("active", None)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", shown["created_at"])
    path = f"/endpoints/{shown['id']}"
    assert api.get(path).json == shown
    for answer in (api.get("/endpoints"), api.patch(path, {"description": "x"})):
        assert secret not in answer.text


def test_an_idempotency_key_is_refused_where_it_does_nothing(
    api: Api, connection: psycopg.Connection
) -> None:
    """A caller must not believe that a repeated POST makes one endpoint."""
    body = {"url": URL, "event_types": ["*"]}

    answer = api.post("/endpoints", body, Idempotency_Key="k")

    assert answer.status_code == 422
    assert list(errors(answer)) == ["Idempotency-Key"]
    assert one(connection, "SELECT count(*) FROM webhooks.endpoints") == 0


def test_every_field_can_be_given(api: Api) -> None:
    """What is given is shown as it was given."""
    fields = {
        "url": URL,
        "event_types": ["*"],
        "description": "Zoë ☃",
        "max_in_flight": 3,
        "timeout_s": 2.5,
        "retry_policy": {"base_s": 1, "factor": 2, "cap_s": 60, "attempts": 4},
    }

    made = api.post("/endpoints", fields).json

    assert made is not None
    assert {name: made[name] for name in fields} == fields


BAD: list[tuple[dict[str, Any], str]] = [
    ({"url": 5}, "url"),
    ({"url": None}, "url"),
    ({"url": "ftp://x/"}, "url"),
    ({"event_types": None}, "event_types"),
    ({"event_types": "invoice.paid"}, "event_types"),
    ({"event_types": []}, "event_types"),
    ({"event_types": [1]}, "event_types[0]"),
    ({"event_types": ["a", "b c"]}, "event_types[1]"),
    ({"description": 5}, "description"),
    ({"description": "\0"}, "description"),
    ({"max_in_flight": "5"}, "max_in_flight"),
    ({"max_in_flight": True}, "max_in_flight"),
    ({"max_in_flight": 1.5}, "max_in_flight"),
    ({"max_in_flight": 0}, "max_in_flight"),
    ({"max_in_flight": 10**400}, "max_in_flight"),
    ({"timeout_s": "5"}, "timeout_s"),
    ({"timeout_s": 0}, "timeout_s"),
    ({"timeout_s": 1e300}, "timeout_s"),
    ({"retry_policy": []}, "retry_policy"),
    ({"retry_policy": {"attempts": 0}}, "retry_policy.attempts"),
    ({"retry_policy": {"attempts": 10**30}}, "retry_policy.attempts"),
    ({"retry_policy": {"delays_s": [1, "x"]}}, "retry_policy.delays_s[1]"),
    ({"retry_policy": {"\0": 1}}, "retry_policy.\0"),
    ({"event_type": ["a"]}, "event_type"),
    ({"secret": "whsec_x"}, "secret"),
]


def test_a_bad_value_is_refused_by_post_and_by_patch(
    api: Api, connection: psycopg.Connection
) -> None:
    """422 names the field in both; nothing is stored or changed."""
    path = f"/endpoints/{api.endpoint('*')}"
    before = api.get(path).json

    for bad, field in BAD:
        made = api.post("/endpoints", {"url": URL, "event_types": ["*"], **bad})
        changed = api.patch(path, {"description": "changed", **bad})
        assert (made.status_code, changed.status_code) == (422, 422), bad
        assert (list(errors(made)), list(errors(changed))) == ([field], [field])

    assert api.get(path).json == before
    assert one(connection, "SELECT count(*) FROM webhooks.endpoints") == 1


@pytest.mark.parametrize("missing", ["url", "event_types"])
def test_url_and_event_types_are_needed(api: Api, missing: str) -> None:
    """There is no silent default that sends everything somewhere."""
    body = {"url": URL, "event_types": ["*"]}
    del body[missing]

    answer = api.post("/endpoints", body)

    assert answer.status_code == 422
    assert list(errors(answer)) == [missing]


def test_patch_takes_nulls_only_where_they_mean_something(api: Api) -> None:
    """null gives the installation's retry policy back; elsewhere it is refused."""
    path = f"/endpoints/{api.endpoint('*', retry_policy={'attempts': 2})}"

    taken = api.patch(path, {"retry_policy": None})
    refused = api.patch(path, {"timeout_s": None})

    assert taken.json is not None
    assert taken.json["retry_policy"] is None
    assert refused.status_code == 422
    assert list(errors(refused)) == ["timeout_s"]


def test_patch_changes_what_it_names_alone(api: Api) -> None:
    """The rest of the endpoint stays; an empty change is allowed."""
    path = f"/endpoints/{api.endpoint('a')}"
    before = api.get(path).json
    assert before is not None

    changed = api.patch(path, {"event_types": ["b"], "max_in_flight": 9}).json
    same = api.patch(path, {}).json

    assert changed is not None
    assert same == changed
    expected = {**before, "event_types": ["b"], "max_in_flight": 9}
    del expected["updated_at"], changed["updated_at"]
    assert changed == expected


def test_an_endpoint_is_paused_and_resumed_by_its_status(api: Api) -> None:
    """The reason names the key that paused it; doing it twice changes nothing."""
    path = f"/endpoints/{api.endpoint('*')}"

    paused = api.patch(path, {"status": "paused"}).json
    again = api.patch(path, {"status": "paused"}).json
    resumed = api.patch(path, {"status": "active"}).json

    assert paused is not None
    assert resumed is not None
    assert paused["status"] == "paused"
    assert "API key test" in paused["status_reason"]
    assert again == paused
    assert (resumed["status"], resumed["status_reason"]) == ("active", None)


@pytest.mark.parametrize("status", ["disabled", "deleted", "", None, 1])
def test_no_other_status_can_be_set(api: Api, status: object) -> None:
    """disabled is the engine's verdict, not a wish."""
    path = f"/endpoints/{api.endpoint('*')}"

    answer = api.patch(path, {"status": status, "description": "x"})

    assert answer.status_code == 422
    assert list(errors(answer)) == ["status"]
    assert (api.get(path).json or {})["description"] == ""


def test_deleting_cancels_what_waits_and_keeps_the_history(
    api: Api, connection: psycopg.Connection
) -> None:
    """204, then 404; its deliveries stay with their reason; the URL is free again (W150)."""
    endpoint = api.endpoint("*")
    emit(connection, 3)

    gone = api.delete(f"/endpoints/{endpoint}")

    assert (gone.status_code, gone.data) == (204, b"")
    assert statuses(connection) == {"cancelled": 3}
    for answer in (
        api.get(f"/endpoints/{endpoint}"),
        api.patch(f"/endpoints/{endpoint}", {"description": "x"}),
        api.delete(f"/endpoints/{endpoint}"),
    ):
        assert answer.status_code == 404
        assert errors(answer) == {}
    assert (api.get("/endpoints").json or {})["data"] == []
    assert len((api.get(f"/deliveries?endpoint={endpoint}").json or {})["data"]) == 3
    assert api.endpoint("*") != endpoint


def test_the_list_is_read_page_by_page_newest_first(api: Api) -> None:
    """Every endpoint once, ``next`` null at the end, even when some come meanwhile."""
    made = [api.endpoint("*") for _ in range(7)]

    first = api.get("/endpoints?limit=3").json
    assert first is not None
    api.endpoint("*")
    second = api.get(f"/endpoints?limit=3&cursor={first['next']}").json
    assert second is not None
    third = api.get(f"/endpoints?limit=3&cursor={second['next']}").json
    assert third is not None

    shown = [e["id"] for page in (first, second, third) for e in page["data"]]
    assert shown == made[::-1]
    assert third["next"] is None


def test_a_page_that_is_just_full_is_the_last(api: Api) -> None:
    """No reader is sent to an empty page."""
    for _ in range(2):
        api.endpoint("*")

    page = api.get("/endpoints?limit=2").json

    assert page is not None
    assert (len(page["data"]), page["next"]) == (2, None)


def test_a_tenants_key_sees_and_changes_its_own_endpoints_alone(app: Flask, api: Api) -> None:
    """Another tenant's endpoint is 404 on every route and in no list (W158)."""
    acme, other = Api(app, "acme"), Api(app, "other")
    endpoint = acme.endpoint("*")
    path = f"/endpoints/{endpoint}"

    for answer in (
        other.get(path),
        other.patch(path, {"description": "x"}),
        other.patch(path, {"status": "paused"}),
        other.delete(path),
    ):
        assert answer.status_code == 404
    assert (other.get("/endpoints").json or {})["data"] == []
    assert [e["id"] for e in (acme.get("/endpoints").json or {})["data"]] == [endpoint]
    assert [e["tenant"] for e in (api.get("/endpoints").json or {})["data"]] == ["acme"]
    assert (acme.get(path).json or {})["status"] == "active"


def test_tenant_is_named_as_in_emit(app: Flask, api: Api) -> None:
    """A key of all tenants may name any; another key only its own (403)."""
    acme = Api(app, "acme")
    api.endpoint("*", tenant="acme")
    api.endpoint("*")

    assert [e["tenant"] for e in (api.get("/endpoints?tenant=acme").json or {})["data"]] == ["acme"]
    assert len((acme.get("/endpoints?tenant=acme").json or {})["data"]) == 1
    refused = {
        403: [
            acme.post("/endpoints", {"url": URL, "event_types": ["*"], "tenant": "default"}),
            acme.get("/endpoints?tenant=default"),
            acme.get("/endpoints?tenant=%00"),
        ],
        422: [
            api.post("/endpoints", {"url": URL, "event_types": ["*"], "tenant": "nobody"}),
            api.get("/endpoints?tenant=nobody"),
            api.get("/endpoints?tenant=%00"),
        ],
    }
    for status, answers in refused.items():
        for answer in answers:
            assert answer.status_code == status
            assert list(errors(answer)) == ["tenant"]
