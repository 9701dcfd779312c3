"""POST, GET, PATCH and DELETE /api/v1/endpoints."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest
from flask import Flask
from sqlalchemy import event

from tests.api import URL, Api, errors
from tests.queue import emit, one, statuses
from webhooks.models import db

FIELDS = {
    "id",
    "tenant",
    "url",
    "description",
    "event_types",
    "status",
    "status_reason",
    "status_changed_at",
    "status_evidence",
    "max_in_flight",
    "rate_limit",
    "timeout_s",
    "schemes",
    "headers",
    "ca_certificates",
    "retry_policy",
    "retry_ladder",
    "missing_key",
    "lane",
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


def test_every_field_can_be_given(api: Api) -> None:
    """What is given is shown as it was given."""
    fields = {
        "url": URL,
        "event_types": ["*"],
        "description": "Zoë ☃",
        "max_in_flight": 3,
        "timeout_s": 2.5,
        "retry_policy": {"base_s": 1, "factor": 2, "cap_s": 60, "attempts": 4},
        "rate_limit": {"per_second": 0.5, "burst": 4},
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
    ({"rate_limit": 5}, "rate_limit"),
    ({"rate_limit": {"burst": 5}}, "rate_limit.per_second"),
    ({"rate_limit": {"per_second": 1e300}}, "rate_limit.per_second"),
    ({"rate_limit": {"per_second": 5, "burst": 10**400}}, "rate_limit.burst"),
    ({"rate_limit": {"per_second": 5, "bursts": 1}}, "rate_limit.bursts"),
    ({"retry_policy": []}, "retry_policy"),
    ({"retry_policy": {"attempts": 0}}, "retry_policy.attempts"),
    ({"retry_policy": {"attempts": 10**30}}, "retry_policy.attempts"),
    ({"retry_policy": {"delays_s": [1, "x"]}}, "retry_policy.delays_s[1]"),
    ({"retry_policy": {"\0": 1}}, "retry_policy.\0"),
    ({"headers": 5}, "headers"),
    ({"headers": [["X-A", "b"]]}, "headers"),
    ({"headers": {"X-A": "1\r\nX-B: 2"}}, "headers.X-A"),
    ({"headers": {"X A": "v"}}, "headers.X"),
    ({"headers": {"X-A": "\u0639"}}, "headers.X-A"),
    ({"headers": {"X-A": "a\0b"}}, "headers.X-A"),
    ({"headers": {"X-A": 5}}, "headers.X-A"),
    ({"headers": {"X-A": None}}, "headers.X-A"),
    ({"headers": {"X-Key": None}}, "headers.X-Key"),
    ({"headers": {"Host": "h"}}, "headers.Host"),
    ({"headers": {"Content-Length": "999"}}, "headers.Content-Length"),
    ({"headers": {"Transfer-Encoding": "chunked"}}, "headers.Transfer-Encoding"),
    ({"headers": {"Connection": "close"}}, "headers.Connection"),
    ({"headers": {"webhook-signature": "v1,x"}}, "headers.webhook-signature"),
    ({"headers": {f"X-{n}": "v" for n in range(101)}}, "headers"),
    ({"headers": {"X-A": "v" * 9000}}, "headers.X-A"),
    ({"headers": {f"X-{n}": "v" * 4096 for n in range(4)}}, "headers"),
    ({"ca_pem": 5}, "ca_pem"),
    ({"ca_pem": "not a certificate"}, "ca_pem"),
    ({"ca_certificates": []}, "ca_certificates"),
    ({"event_type": ["a"]}, "event_type"),
    ({"secret": "whsec_x"}, "secret"),
]


def test_a_bad_value_is_refused_by_post_and_by_patch(
    api: Api, connection: psycopg.Connection
) -> None:
    """422 names the field in both; nothing is stored or changed (W153, W022)."""
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
    """null gives the installation's retry policy back and ends a rate limit; not elsewhere."""
    limits = {"retry_policy": {"attempts": 2}, "rate_limit": {"per_second": 2}}
    path = f"/endpoints/{api.endpoint('*', **limits)}"

    taken = api.patch(path, {"retry_policy": None, "rate_limit": None})
    refused = api.patch(path, {"timeout_s": None})

    assert taken.json is not None
    assert (taken.json["retry_policy"], taken.json["rate_limit"]) == (None, None)
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


def test_an_endpoint_is_disabled_with_a_reason(api: Api) -> None:
    """Held as paused; the reason is the caller's, and resuming forgets it."""
    path = f"/endpoints/{api.endpoint('*')}"

    shown = api.patch(path, {"status": "disabled", "status_reason": "contract ended"}).json
    assert shown is not None
    assert (shown["status"], shown["status_reason"]) == ("disabled", "contract ended")
    assert (shown["lane"]["state"], shown["lane"]["reason"]) == ("disabled", "contract ended")
    assert shown["lane"]["open_at"] is None
    resumed = api.patch(path, {"status": "active"}).json

    assert resumed is not None
    assert (resumed["status"], resumed["status_reason"]) == ("active", None)
    assert resumed["lane"]["state"] == "open"


def test_resuming_releases_what_is_asked_for(api: Api, connection: psycopg.Connection) -> None:
    """``release`` with its mode and time; other fields of the request change with it."""
    path = f"/endpoints/{api.endpoint('*')}"
    api.patch(path, {"status": "paused"})
    emit(connection, 2)
    connection.execute("SELECT pg_sleep(0.005)")
    since = one(connection, "SELECT to_char(now() AT TIME ZONE 'Asia/Tokyo', "
                            "'YYYY-MM-DD\"T\"HH24:MI:SS.US+09:00')")  # fmt: skip
    emit(connection)
    release = {"mode": "since", "since": since}

    shown = api.patch(path, {"status": "active", "release": release, "description": "d"}).json

    assert shown is not None
    assert (shown["status"], shown["description"]) == ("active", "d")
    assert statuses(connection) == {"pending": 1, "cancelled": 2}
    api.patch(path, {"status": "paused"})
    api.patch(path, {"status": "active", "release": {"mode": "none"}})
    assert statuses(connection) == {"cancelled": 3}
    assert one(
        connection,
        "SELECT count(*) FROM webhooks.audit_log WHERE action = 'endpoint.resume' "
        "AND detail @> '{\"release\": \"since\", \"cancelled\": 2}'",
    ) == 1  # fmt: skip


def test_a_release_that_takes_too_long_is_asked_for_again(
    api: Api, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """409 with how far it is, the endpoint as it was; the next request goes on."""
    path = f"/endpoints/{api.endpoint('*')}"
    api.patch(path, {"status": "paused"})
    emit(connection)
    wanted = {"status": "active", "release": {"mode": "none"}, "description": "d"}
    monkeypatch.setattr("webhooks.release.LONGEST_S", 0)

    answer = api.patch(path, wanted)

    monkeypatch.undo()
    assert (answer.status_code, (answer.json or {})["detail"].partition(",")[0]) == (
        409, "not released and cancelled so far: 1; there are more",
    )  # fmt: skip
    shown = api.get(path).json
    assert shown is not None
    assert (shown["status"], shown["description"]) == ("paused", "")
    again = api.patch(path, wanted).json
    assert again is not None
    assert (again["status"], again["description"]) == ("active", "d")


@pytest.mark.parametrize(
    ("release", "field"),
    [
        (None, "release"),
        ("all", "release"),
        ({}, "release.mode"),
        ({"mode": "some"}, "release.mode"),
        ({"mode": ["all"]}, "release.mode"),
        ({"mode": "since"}, "release.since"),
        ({"mode": "none", "since": "2026-11-30T00:00:00Z"}, "release.since"),
        ({"mode": "all", "until": 1}, "release.until"),
        *(
            ({"mode": "since", "since": text}, "release.since")
            for text in (
                "", "yesterday", 1764540000, "2026-11-30", "2026-11-30T12:00:00",
                "2026-02-30T12:00:00Z", "2026-11-30T24:00:00Z", "2026-11-30T23:59:60Z",
                "10000-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00", "infinity", "now",
                "2026-11-30T12:00:00+99:00", "0000-01-01T00:00:00Z", "\0",
            )
        ),
    ],
)  # fmt: skip
def test_a_wrong_release_is_named_and_changes_nothing(
    api: Api, connection: psycopg.Connection, release: Any, field: str
) -> None:
    """422, the endpoint stays paused, all is still held (W203)."""
    path = f"/endpoints/{api.endpoint('*')}"
    api.patch(path, {"status": "paused"})
    emit(connection)

    answer = api.patch(path, {"status": "active", "release": release, "description": "x"})

    assert answer.status_code == 422
    assert list(errors(answer)) == [field]
    shown = api.get(path).json
    assert shown is not None
    assert (shown["status"], shown["description"]) == ("paused", "")
    assert statuses(connection) == {"pending": 1}


LANES: list[tuple[str, dict[str, Any]]] = [
    ("", {"state": "open", "open_at": None, "reason": None, "failures": 0}),
    ("rate_open_at = 'infinity'", {"state": "rate_limited", "reason": None}),
    (
        "open_at = '2090-01-01T00:00:00Z', closed_reason = 'slow down', failures = 2",
        {"state": "throttled", "open_at": "2090-01-01T00:00:00.000000Z", "reason": "slow down"},
    ),
    (
        "open_at = now() - interval '1 s', broken_s = 60, closed_reason = 'breaker', "
        "failures = 12, failing_since = '2026-11-30T12:00:00Z', failed_at = now(), "
        "last_error = 'http_5xx', last_status_code = 502, "
        "last_delivery_id = '00000000-0000-0000-0000-000000000000'",
        {"state": "broken", "open_at": None, "reason": "breaker", "failures": 12,
         "failing_since": "2026-11-30T12:00:00.000000Z", "last_error": "http_5xx",
         "last_status_code": 502, "last_delivery": f"dlv_{26 * '0'}",
         "broken_s": 60, "warned_at": None, "disable_at": None},
    ),
    (
        "failing_since = '2026-11-28T12:00:00Z', warned_at = '2026-11-30T12:00:00Z'",
        {"warned_at": "2026-11-30T12:00:00.000000Z", "disable_at": "2026-12-03T12:00:00.000000Z"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "expected"), LANES)
def test_the_lane_is_shown_as_it_stands(
    api: Api, connection: psycopg.Connection, columns: str, expected: dict[str, Any]
) -> None:
    """Its state by the database's clock, the last failure, when it is disabled; in lists too."""
    endpoint = api.endpoint("*")
    if columns:
        connection.execute(f"UPDATE webhooks.lanes SET {columns}")

    one_lane = (api.get(f"/endpoints/{endpoint}").json or {})["lane"]
    listed = (api.get("/endpoints").json or {})["data"][0]["lane"]

    assert {name: one_lane[name] for name in expected} == expected
    assert listed == one_lane


def test_the_evidence_of_the_engine_is_shown(api: Api, connection: psycopg.Connection) -> None:
    """With public ids and times in UTC; a delivery can be looked up by it."""
    endpoint = api.endpoint("*")
    connection.execute(
        "UPDATE webhooks.endpoints SET status = 'disabled', status_evidence = jsonb_build_object("
        "'failures', 214, 'failing_since', '2026-11-25T12:00:00.5+02:00'::timestamptz, "
        "'failed_at', '2026-11-30T10:00:00Z'::timestamptz, 'last_error', 'timeout', "
        "'last_status_code', NULL, 'last_delivery_id', webhooks.uuid7())"
    )

    shown = (api.get(f"/endpoints/{endpoint}").json or {})["status_evidence"]

    assert re.fullmatch(r"dlv_[0-9a-z]{26}", shown.pop("last_delivery"))
    assert shown == {
        "failures": 214,
        "failing_since": "2026-11-25T10:00:00.500000Z",
        "failed_at": "2026-11-30T10:00:00.000000Z",
        "last_error": "timeout",
        "last_status_code": None,
    }


def test_the_retry_ladder_in_force_is_shown_with_its_source(
    api: Api, connection: psycopg.Connection
) -> None:
    """The endpoint's own, else its tenant's, else the installation's."""
    path = f"/endpoints/{api.endpoint('*')}"

    def ladder() -> tuple[str, list[float]]:
        shown = (api.get(path).json or {})["retry_ladder"]
        assert shown["attempts"] == len(shown["rungs"])
        assert shown["total_s"] == shown["rungs"][-1]["elapsed_s"]
        return shown["source"], [rung["wait_s"] for rung in shown["rungs"]]

    usual = [0, 10, 40, 160, 640, 2560, 10_240, 40_960, 86_400, 86_400]
    assert ladder() == ("installation", usual)
    connection.execute("UPDATE webhooks.tenants SET retry_policy = '{\"delays_s\": [5, 6]}'")
    assert ladder() == ("tenant", [0, 5, 6])
    api.patch(path, {"retry_policy": {"base_s": 1, "factor": 1, "attempts": 3}})
    assert ladder() == ("endpoint", [0, 1, 1])


def test_a_list_asks_as_often_for_many_endpoints_as_for_one(app: Flask, api: Api) -> None:
    """No query per row."""
    counts = []
    for more in (1, 8):
        for _ in range(more):
            api.endpoint("*")
        seen: list[str] = []
        with app.app_context():
            engine = db.engine

        def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
            seen.append(statement)  # noqa: B023 - used within the round alone

        event.listen(engine, "before_cursor_execute", note)
        assert len((api.get("/endpoints").json or {})["data"]) >= more
        event.remove(engine, "before_cursor_execute", note)
        counts.append(len(seen))

    assert counts[0] == counts[1]


@pytest.mark.parametrize("status", ["deleted", "", None, 1])
def test_no_other_status_can_be_set(api: Api, status: object) -> None:
    """Active, paused and disabled are all there is."""
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
