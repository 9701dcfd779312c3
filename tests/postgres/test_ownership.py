"""Ownership proof: nothing is sent to an endpoint before it has agreed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from flask import Flask
from markupsafe import Markup

from tests.api import Api, errors
from tests.endpoints import lane
from tests.pages import post, signed_in
from tests.queue import claim, emit, one, register, statuses
from tests.rawserver import Peer, RawServer, replies, reply
from webhooks import proofs
from webhooks.app import create_app
from webhooks.models import db
from webhooks.ownership import NotProven, Proof
from webhooks.prover import Prover
from webhooks.settings import Settings

ORIGIN = "hooks.example.com"

both_modes = pytest.mark.parametrize("mode", ["options", "challenge"])


@pytest.fixture
def mode() -> str:
    """How the installation asks, unless a test says otherwise: most do not depend on it."""
    return "challenge"


@pytest.fixture
def settings(settings: Settings, mode: str) -> Settings:
    """An installation that asks for a proof."""
    return replace(settings, ownership_proof=mode, origin=ORIGIN)


@pytest.fixture
def app(app: Flask, settings: Settings) -> Flask:
    """As the web process makes it."""
    app.extensions["webhooks_prover"] = Prover(settings, app.extensions["webhooks_keyring"])
    return app


@pytest.fixture
def api(app: Flask) -> Api:
    return Api(app, "default")


def agreeing(peer: Peer) -> None:
    """A receiver that agrees in both ways."""
    while (request := peer.read()) is not None:
        body = json.dumps(json.loads(request.body)["data"]).encode() if request.body else b""
        peer.send(reply(200, body, [("WebHook-Allowed-Origin", ORIGIN)]))


@pytest.fixture
def receiver() -> Iterator[RawServer]:
    with RawServer(agreeing) as server:
        yield server


def new(api: Api, url: str, **fields: Any) -> dict[str, Any]:
    answer = api.post("/endpoints", {"url": url, "event_types": ["*"], **fields})
    assert answer.status_code == 201, answer.text
    return dict(answer.json or {})


def shown(api: Api, endpoint: dict[str, Any]) -> dict[str, Any]:
    return dict(api.get(f"/endpoints/{endpoint['id']}").json or {})


def log(connection: psycopg.Connection) -> list[tuple[str, dict[str, Any]]]:
    """What the audit log holds of endpoints, oldest first."""
    return connection.execute(
        "SELECT action, detail FROM webhooks.audit_log WHERE object LIKE 'ep_%' ORDER BY id"
    ).fetchall()


def later(connection: psycopg.Connection) -> None:
    """Time passes for the limit: its entries become older (the log itself cannot be changed)."""
    connection.execute("ALTER TABLE webhooks.audit_log DISABLE TRIGGER audit_log_is_append_only")
    connection.execute(
        "UPDATE webhooks.audit_log SET id = webhooks.uuid7_floor(at - interval '1 min') "
        "WHERE action = 'endpoint.prove'"
    )


@both_modes
def test_a_new_endpoint_waits_for_its_proof(
    api: Api, connection: psycopg.Connection, receiver: RawServer
) -> None:
    """Events are held meanwhile; the proof lets them go."""
    endpoint = new(api, receiver.url("/hook"))
    emit(connection)

    assert endpoint["status"] == "paused"
    assert endpoint["status_reason"].startswith("its owner has not proved it yet: ")
    assert claim(connection, register(connection)) == ()
    assert receiver.requests == []
    answer = api.post(f"/endpoints/{endpoint['id']}/prove")
    assert answer.status_code == 200
    assert answer.json == shown(api, endpoint)
    assert (shown(api, endpoint)["status"], shown(api, endpoint)["status_reason"]) == (
        "active", None
    )  # fmt: skip
    assert len(claim(connection, register(connection))) == 1
    assert len(receiver.requests) == 1


@both_modes
def test_what_was_done_is_in_the_audit_log(
    api: Api, connection: psycopg.Connection, receiver: RawServer, mode: str
) -> None:
    """Made and paused, asked, proved, resumed; a URL's query is no part of it."""
    endpoint = new(api, receiver.url("/hook?token=canary"))
    api.post(f"/endpoints/{endpoint['id']}/prove")

    found = log(connection)
    assert [action for action, _ in found] == [
        "endpoint.create", "endpoint.pause", "endpoint.prove", "endpoint.proven",
        "endpoint.resume",
    ]  # fmt: skip
    assert found[2][1] == {"url": receiver.url("/hook"), "by": mode}
    assert "canary" not in str(found)


@both_modes
def test_what_did_not_agree_stays_paused(
    api: Api, connection: psycopg.Connection, mode: str
) -> None:
    """The answer says what came, as the audit log does."""
    with RawServer(replies(reply(200, b"ok"))) as server:
        endpoint = new(api, server.url("/hook"))
        answer = api.post(f"/endpoints/{endpoint['id']}/prove")

    told = "lacks WebHook-Allowed-Origin" if mode == "options" else "is not the challenge"
    assert answer.status_code == 422
    assert told in errors(answer)["url"]
    action, detail = log(connection)[-1]
    assert action == "endpoint.not_proven"
    assert told in detail["reason"]
    assert shown(api, endpoint)["status"] == "paused"
    assert lane(connection)["open"] is False


@pytest.mark.parametrize("release", [None, {"mode": "none"}])
def test_an_unproven_endpoint_cannot_be_resumed(
    api: Api, connection: psycopg.Connection, release: dict[str, str] | None
) -> None:
    """The refusal says what to do, and comes before anything held is cancelled."""
    endpoint = new(api, "http://127.0.0.1:9001/hook")
    emit(connection)
    more = {} if release is None else {"release": release}

    answer = api.patch(f"/endpoints/{endpoint['id']}", {"status": "active", **more})

    assert answer.status_code == 422
    assert "/prove" in errors(answer)["status"]
    assert shown(api, endpoint) | {"lane": None} == {
        name: value for name, value in endpoint.items() if name != "secret"
    } | {"lane": None}
    assert statuses(connection) == {"pending": 1}


def test_pausing_and_resuming_is_no_way_around(api: Api, connection: psycopg.Connection) -> None:
    """Whatever status it is given meanwhile, and whatever else is changed with it."""
    path = f"/endpoints/{new(api, 'http://127.0.0.1:9001/hook')['id']}"

    for change in ({"status": "paused", "status_reason": "mine"}, {"status": "disabled"}):
        assert api.patch(path, change).status_code == 200
        for more in ({}, {"description": "x"}, {"url": "http://127.0.0.1:9001/other"}):
            answer = api.patch(path, {"status": "active", **more})
            assert (answer.status_code, *errors(answer)) == (422, "status")
    assert lane(connection)["open"] is False


def test_a_new_url_needs_a_proof_of_its_own(
    api: Api, connection: psycopg.Connection, receiver: RawServer
) -> None:
    """And one that was proved before does not need it again."""
    endpoint = new(api, receiver.url("/hook"))
    path = f"/endpoints/{endpoint['id']}"
    api.post(f"{path}/prove")
    later(connection)

    both = api.patch(path, {"url": receiver.url("/other"), "status": "active"})
    assert (both.status_code, *errors(both)) == (422, "status")
    assert shown(api, endpoint)["url"] == receiver.url("/hook")

    moved = api.patch(path, {"url": receiver.url("/other")}).json
    assert moved is not None
    assert moved["status"] == "paused"
    assert lane(connection)["open"] is False
    back = api.patch(path, {"url": receiver.url("/hook")}).json
    assert back is not None
    assert api.post(f"{path}/prove").status_code == 200
    assert shown(api, endpoint)["status"] == "active"
    assert [each.target for each in receiver.requests] == ["/hook"]


def test_other_changes_need_no_proof(api: Api, receiver: RawServer) -> None:
    """The same URL given again, in any spelling, is no new one."""
    endpoint = new(api, receiver.url("/hook"))
    path = f"/endpoints/{endpoint['id']}"
    api.post(f"{path}/prove")

    same = receiver.url("/hook").replace("http", "HTTP")
    changed = api.patch(path, {"url": same, "description": "new", "max_in_flight": 3})

    assert changed.json is not None
    assert changed.json["status"] == "active"


def test_a_person_s_pause_outlasts_the_proof(api: Api, receiver: RawServer) -> None:
    """The proof only takes away its own reason."""
    endpoint = new(api, receiver.url("/hook"))
    path = f"/endpoints/{endpoint['id']}"
    api.patch(path, {"status": "paused", "status_reason": "maintenance"})

    proved = api.post(f"{path}/prove").json

    assert proved is not None
    assert (proved["status"], proved["status_reason"]) == ("paused", "maintenance")
    assert api.patch(path, {"status": "active"}).status_code == 200


def test_an_endpoint_is_asked_once_in_ten_seconds(
    app: Flask, settings: Settings, connection: psycopg.Connection
) -> None:
    """By whatever web process: a proof is a request to somebody who may not want it."""
    other = create_app(settings)
    other.extensions["webhooks_prover"] = Prover(settings, other.extensions["webhooks_keyring"])
    here, there = Api(app, "default"), Api(other, "default")
    with RawServer(replies(reply(404))) as server:
        path = f"/endpoints/{new(here, server.url('/hook'))['id']}"
        first, second, third = (each.post(f"{path}/prove") for each in (here, here, there))
        here.patch(path, {"url": server.url("/other")})
        moved = there.post(f"{path}/prove")
        asked = len(server.requests)
        later(connection)
        again = there.post(f"{path}/prove")

    assert [each.status_code for each in (first, second, third, moved, again)] == [
        422, 429, 429, 429, 422
    ]  # fmt: skip
    assert second.headers["Retry-After"] == "10"
    assert errors(second) == {}
    assert (asked, len(server.requests)) == (1, 2)
    with other.app_context():
        db.engine.dispose()


def test_one_host_is_asked_so_often_an_hour_whoever_asks(
    app: Flask, connection: psycopg.Connection, receiver: RawServer
) -> None:
    """Endpoints of several tenants at one victim do not flood it with questions (row 60)."""
    apis = [Api(app, "acme"), Api(app, "other")]
    connection.execute(
        "INSERT INTO webhooks.audit_log (actor, action, object, detail) "
        "SELECT 'ada', 'endpoint.prove', 'ep_' || n, jsonb_build_object('url', %s::text) "
        "FROM generate_series(1, 59) AS n",
        [receiver.url("/asked")],
    )
    first, second = (api.endpoint(url=receiver.url(f"/{n}")) for n, api in enumerate(apis))

    assert apis[0].post(f"/endpoints/{first}/prove").status_code != 429
    asked = len(receiver.requests)
    refused = apis[1].post(f"/endpoints/{second}/prove")

    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "600")
    assert "60 times" in refused.json["detail"]
    assert len(receiver.requests) == asked


def test_only_a_proved_url_is_written_down(
    api: Api, app: Flask, connection: psycopg.Connection, receiver: RawServer
) -> None:
    """What is changed, or deleted, while its endpoint is being asked is not proved by it."""
    path = f"/endpoints/{new(api, receiver.url('/hook'))['id']}"

    def change(target: Any) -> Proof:
        connection.execute("UPDATE webhooks.endpoints SET url = 'http://127.0.0.1:9001/victim'")
        return Proof()

    app.extensions["webhooks_prover"] = change
    assert "changed meanwhile" in errors(api.post(f"{path}/prove"))["url"]
    later(connection)
    app.extensions["webhooks_prover"] = lambda target: Proof() if api.delete(path) else None
    assert "deleted meanwhile" in errors(api.post(f"{path}/prove"))["endpoint"]
    assert one(connection, "SELECT proven_url FROM webhooks.endpoints") is None
    assert lane(connection)["open"] is False


def test_no_transaction_is_open_while_an_endpoint_is_asked(
    api: Api, app: Flask, connection: psycopg.Connection
) -> None:
    """Ten seconds of a held row would hold up who else changes it."""
    endpoint = new(api, "http://127.0.0.1:9001/hook")
    found: list[int] = []

    def look(target: Any) -> Proof:
        found.append(one(connection, "SELECT count(*) FROM pg_stat_activity "
                         "WHERE datname = current_database() AND xact_start IS NOT NULL "
                         "AND pid <> pg_backend_pid()"))  # fmt: skip
        raise NotProven("no")

    app.extensions["webhooks_prover"] = look
    api.post(f"/endpoints/{endpoint['id']}/prove")

    assert found == [0]


@pytest.mark.parametrize("mode", ["options"])
@pytest.mark.parametrize(
    ("own", "allowed", "per_second"),
    [
        (None, "90", 1.5),
        ({"per_second": 5, "burst": 9}, "120", 2.0),
        ({"per_second": 1, "burst": 9}, "120", 1.0),
        (None, "*", None),
        ({"per_second": 1}, "*", 1.0),
        (None, "600000000", None),
    ],
)
def test_the_permitted_rate_becomes_the_limit_unless_its_own_is_lower(
    api: Api,
    connection: psycopg.Connection,
    own: dict[str, float] | None,
    allowed: str,
    per_second: float | None,
) -> None:
    """WebHook-Allowed-Rate is requests a minute (CloudEvents 4.2.2); the lane follows it."""
    answer = reply(200, b"", [("WebHook-Allowed-Origin", "*"), ("WebHook-Allowed-Rate", allowed)])
    with RawServer(replies(answer)) as server:
        endpoint = new(api, server.url("/hook"), rate_limit=own)
        proved = api.post(f"/endpoints/{endpoint['id']}/prove").json

    assert proved is not None
    assert proved["status"] == "active"
    assert (proved["rate_limit"] or {}).get("per_second") == per_second
    assert lane(connection)["rate_limit"] == per_second


@pytest.mark.parametrize("mode", ["off"])
def test_without_the_setting_nothing_changes(api: Api, receiver: RawServer) -> None:
    """Active at once; there is nothing to prove, and nothing is sent for it."""
    endpoint = new(api, receiver.url("/hook"))

    answer = api.post(f"/endpoints/{endpoint['id']}/prove")

    assert endpoint["status"] == "active"
    assert "asks for no proof" in errors(answer)["url"]
    assert receiver.requests == []


def test_what_was_active_before_the_setting_goes_on(
    api: Api, connection: psycopg.Connection
) -> None:
    """It may be changed, and its lane opened again; once paused it needs the proof."""
    endpoint = new(api, "http://127.0.0.1:9001/hook")
    path = f"/endpoints/{endpoint['id']}"
    connection.execute("UPDATE webhooks.endpoints SET status = 'active', status_reason = NULL")
    connection.execute("UPDATE webhooks.lanes SET open_at = now() + interval '1 h', broken_s = 9")

    assert api.patch(path, {"status": "active", "description": "x"}).status_code == 200
    assert lane(connection)["open"] is True
    assert api.patch(path, {"status": "paused"}).status_code == 200
    assert api.patch(path, {"status": "active"}).status_code == 422


def test_another_tenant_s_endpoint_is_not_there(api: Api, app: Flask, receiver: RawServer) -> None:
    """404, and nothing is sent."""
    endpoint = new(api, receiver.url("/hook"))

    for path in (f"/endpoints/{endpoint['id']}/prove", "/endpoints/ep_x/prove"):
        assert Api(app, "other").post(path).status_code == 404
    assert receiver.requests == []


@both_modes
def test_its_own_headers_go_with_the_challenge_alone(
    api: Api, receiver: RawServer, mode: str
) -> None:
    """As with any delivery; the handshake needs none."""
    endpoint = new(api, receiver.url("/hook"), headers={"Authorization": "Bearer canary"})
    api.post(f"/endpoints/{endpoint['id']}/prove")

    wanted = "Bearer canary" if mode == "challenge" else None
    assert receiver.requests[0].header("Authorization") == wanted


def words(html: str) -> str:
    return re.sub(r"\s+", " ", Markup(html).striptags())


@both_modes
def test_the_page_says_what_is_missing_and_has_the_button(
    app: Flask, api: Api, receiver: RawServer, mode: str
) -> None:
    """In place of Resume; afterwards it says that deliveries are on their way."""
    path = f"/endpoints/{new(api, receiver.url('/hook'))['id']}"
    client = signed_in(app)

    before = client.get(path).text
    wanted = f"WebHook-Allowed-Origin: {ORIGIN}" if mode == "options" else "webhooks.ownership"
    assert "its owner has not proved it yet" in words(before)
    assert wanted in words(before)
    assert f'formaction="{path}/prove"' in before
    assert "Resume…" not in before
    answer = post(client, f"{path}/prove")
    assert (answer.status_code, answer.headers["Location"]) == (303, path)
    after = client.get(path).text
    assert "Proved. Deliveries that were held are on their way." in words(after)
    assert "/prove" not in after


def test_the_page_says_what_came_instead(app: Flask, api: Api) -> None:
    """In words, with nothing of the answer's body, and the button is still there."""
    with RawServer(replies(reply(503, b"<b>canary</b>"))) as server:
        path = f"/endpoints/{new(api, server.url('/hook'))['id']}"
        client = signed_in(app)
        post(client, f"{path}/prove")
        html = client.get(path).text

    assert "it is not proved: status 503" in words(html)
    assert "canary" not in html
    assert f'formaction="{path}/prove"' in html


def test_the_page_that_resumes_refuses_too(app: Flask, api: Api) -> None:
    """Whoever opened it before sees why."""
    path = f"/endpoints/{new(api, 'http://127.0.0.1:9001/hook')['id']}"
    client = signed_in(app)

    answer = post(client, f"{path}/resume", {"release": "all"})

    assert answer.status_code == 422
    assert "its owner has not proved it yet" in words(answer.text)


def test_a_viewer_cannot_ask(app: Flask, api: Api, receiver: RawServer) -> None:
    """It is a change, as resuming is."""
    path = f"/endpoints/{new(api, receiver.url('/hook'))['id']}"
    client = signed_in(app, "viewer")

    assert post(client, f"{path}/prove").status_code == 403
    assert "Prove ownership</button>" not in client.get(path).text
    assert receiver.requests == []


def test_the_limit_is_the_documented_one() -> None:
    """README: 429 within 10 s of the last time."""
    assert proofs.ONCE_IN_S == 10
