"""Custom headers and own CAs of endpoints: stored, shown, changed, sent."""

from __future__ import annotations

import itertools
import json
import ssl
from functools import partial
from typing import Any

import psycopg
import pytest
import trustme
from flask import Flask
from werkzeug.test import TestResponse

from tests.api import URL, Api, errors
from tests.dispatching import dispatching
from tests.queue import claim, emit, one, register, statuses
from tests.rawserver import RawServer, replies
from tests.stack import eventually
from tests.transports import OK
from webhooks import endpoints
from webhooks.attempt import Headers, Outcome
from webhooks.secrets import Keyring, Place
from webhooks.sending import Sender

CANARY = "canary-7d1e"
HEADERS = {"X-Tenant": "a: b", "Authorization": f"Bearer {CANARY}", "x-MiXed": "c"}
MASKED = {"X-Tenant": "a: b", "Authorization": None, "x-MiXed": "c"}
# URL is http://127.0.0.1:8080/hook.
ELSEWHERE = [
    "https://127.0.0.1:8080/hook",
    "http://127.0.0.2:8080/hook",
    "http://127.0.0.1:8081/hook",
    "http://127.0.0.1/hook",
    "http://localhost.example:8080/hook",
]


@pytest.fixture
def api(app: Flask) -> Api:
    """A caller with a key of all tenants."""
    return Api(app)


@pytest.fixture
def path(api: Api) -> str:
    """An endpoint that has HEADERS."""
    return f"/endpoints/{api.endpoint('*', headers=HEADERS)}"


def shown(answer: TestResponse) -> dict[str, Any]:
    assert answer.status_code in (200, 201), answer.text
    found: dict[str, Any] | None = answer.json
    assert found is not None
    return found


def stored(connection: psycopg.Connection) -> str | None:
    found: str | None = one(connection, "SELECT headers FROM webhooks.endpoints")
    return found


def sent(app: Flask, connection: psycopg.Connection) -> Headers:
    """What a worker would send of them now, to whatever URL the endpoint has."""
    emit(connection)
    (claimed, *_) = claim(connection, register(connection))
    settings = app.extensions["webhooks_settings"]
    sender = Sender(settings, app.extensions["webhooks_keyring"])
    request = sender.prepare(claimed, lambda: 1_700_000_000.0)
    assert not isinstance(request, Outcome), request.detail
    names = [name for name, _ in request.headers]
    return request.headers[names.index("webhook-attempt") + 1 :]


def lose_keyring(app: Flask) -> None:
    app.extensions["webhooks_keyring"] = Keyring.parse(Keyring.generate("another"))


def test_they_are_sent_and_their_secrets_never_shown(
    app: Flask, api: Api, connection: psycopg.Connection
) -> None:
    """Each answer has the others' values; the row is encrypted in its own place (W152)."""
    made = api.post("/endpoints", {"url": URL, "event_types": ["*"], "headers": HEADERS})
    path = f"/endpoints/{shown(made)['id']}"

    answers = [made, api.get(path), api.get("/endpoints"), api.patch(path, {"description": "d"})]

    assert [shown(each).get("headers", MASKED) for each in answers] == [MASKED] * 4
    assert list(shown(made)["headers"]) == list(HEADERS)
    assert all(CANARY not in each.text for each in answers)
    ciphertext = stored(connection)
    assert ciphertext is not None
    assert CANARY not in ciphertext
    tenant_id, row_id = connection.execute(
        "SELECT tenant_id, id FROM webhooks.endpoints"
    ).fetchall()[0]
    place = Place("endpoints", tenant_id, row_id, "headers")
    plain = app.extensions["webhooks_keyring"].decrypt(place, ciphertext)
    assert json.loads(plain) == [list(each) for each in HEADERS.items()]
    assert sent(app, connection) == tuple(HEADERS.items())


KEPT = f"Bearer {CANARY}"
CHANGES: list[tuple[Any, dict[str, str]]] = [
    ({"X-Tenant": "b"}, {"X-Tenant": "b"}),
    ({"X-New": "n", "Authorization": None}, {"X-New": "n", "Authorization": KEPT}),
    ({"AUTHORIZATION": None}, {"AUTHORIZATION": KEPT}),
    ({"Authorization": "Bearer new"}, {"Authorization": "Bearer new"}),
    (MASKED | {"X-Tenant": "b"}, HEADERS | {"X-Tenant": "b"}),
    ({}, {}),
    (None, {}),
]


def test_a_change_replaces_all_of_them(
    app: Flask, api: Api, connection: psycopg.Connection, path: str
) -> None:
    """null keeps a secret one, whatever its case; without any the column is empty (W174)."""
    for n, (given, expected) in enumerate(CHANGES):
        shown(api.patch(path, {"headers": HEADERS}))
        changed = shown(api.patch(path, {"headers": given, "url": f"{URL}/{n}?a=b"}))

        assert list(changed["headers"]) == list(expected)
        assert sent(app, connection) == tuple(expected.items())
        assert (stored(connection) is None) is (expected == {})


def test_what_is_shown_can_be_given_back(
    api: Api, connection: psycopg.Connection, path: str
) -> None:
    """Reading and writing it back leaves no trace, not even another ciphertext (W174)."""
    before, entries = stored(connection), "SELECT count(*) FROM webhooks.audit_log"
    count = one(connection, entries)

    assert shown(api.patch(path, {"headers": shown(api.get(path))["headers"]}))["headers"] == MASKED

    assert (stored(connection), one(connection, entries)) == (before, count)


def test_only_a_secret_that_is_stored_can_be_kept(api: Api, path: str) -> None:
    """null for another name would make up a value, or move one under a name that shows it."""
    for name in ("X-Tenant", "X-Other-Key", "Proxy-Authorization"):
        answer = api.patch(path, {"headers": {name: None}})
        assert (answer.status_code, list(errors(answer))) == (422, [f"headers.{name}"])
    assert shown(api.get(path))["headers"] == MASKED


WITHOUT: list[dict[str, Any]] = [
    {},
    {"headers": {"Authorization": None}},
    {"headers": {"authorization": None, "X-New": "n"}},
    {"headers": MASKED},
    {"status": "active", "release": {"mode": "none"}},
    {"ca_pem": None, "schemes": ["standard"], "description": "moved"},
]


def test_no_secret_goes_along_to_another_origin(
    api: Api, connection: psycopg.Connection, path: str
) -> None:
    """Another scheme, host or port: 422, whatever else is changed (CVE-2022-4342, -2023-2620).

    Whoever may change an endpoint could read what they may not by sending it to themselves.
    """
    api.patch(path, {"status": "paused"})
    emit(connection)
    before = shown(api.get(path))

    for url, more in itertools.product(ELSEWHERE, WITHOUT):
        answer = api.patch(path, {"url": url, **more})

        assert answer.status_code == 422, (url, more)
        ((field, message),) = errors(answer).items()
        assert field.lower() == "headers.authorization"
        assert "http://127.0.0.1:8080" in message
        assert CANARY not in answer.text
    assert shown(api.get(path)) == before
    assert statuses(connection) == {"pending": 1}


ANEW: list[dict[str, str] | None] = [
    {"Authorization": "Bearer new"},
    {"Authorization": KEPT, "X-Tenant": "b"},
    {"X-Tenant": "a: b"},
    {},
    None,
]


def test_a_new_origin_takes_what_is_given_anew(
    app: Flask, api: Api, connection: psycopg.Connection, path: str
) -> None:
    """In the change of the URL itself; the rest of what was stored is gone."""
    for url, headers in itertools.product(ELSEWHERE, ANEW):
        shown(api.patch(path, {"url": URL, "headers": HEADERS}))
        assert shown(api.patch(path, {"url": url, "headers": headers}))["url"] == url
        assert sent(app, connection) == tuple((headers or {}).items())


def test_what_is_no_secret_moves_along(
    app: Flask, api: Api, connection: psycopg.Connection
) -> None:
    """Whoever may change the URL may read it anyway."""
    path = f"/endpoints/{api.endpoint('*', headers={'X-Tenant': 'a'})}"
    shown(api.patch(path, {"url": ELSEWHERE[1]}))
    assert sent(app, connection) == (("X-Tenant", "a"),)


def test_another_spelling_of_the_origin_is_no_other_one(api: Api, path: str) -> None:
    """The canonical forms are compared: letter case, and a port that goes without saying."""
    first = {"url": "https://receiver.example/a", "headers": HEADERS}
    shown(api.patch(path, first))
    changed = shown(api.patch(path, {"url": "HTTPS://Receiver.Example:443/b"}))
    assert (changed["url"], changed["headers"]) == ("https://receiver.example/b", MASKED)


def test_a_secret_that_came_a_moment_before_does_not_go_along(
    app: Flask, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the endpoint has is looked at again under its lock."""
    path = f"/endpoints/{api.endpoint('*')}"
    other = Api(app)

    def meanwhile(*_: object) -> int:
        monkeypatch.undo()
        shown(other.patch(path, {"headers": HEADERS}))
        return 0

    monkeypatch.setattr(endpoints, "_cancel_rest", meanwhile)
    answer = api.patch(path, {"url": ELSEWHERE[1]})

    assert list(errors(answer)) == ["headers.Authorization"]
    assert (shown(api.get(path))["url"], shown(api.get(path))["headers"]) == (URL, MASKED)


def test_the_audit_log_names_them_alone(
    api: Api, connection: psycopg.Connection, path: str
) -> None:
    """Who set which and removed which, never a value."""
    api.patch(path, {"headers": {"Authorization": f"Bearer 2{CANARY}", "X-Tenant": "a: b"}})

    entries = connection.execute(
        "SELECT action, detail FROM webhooks.audit_log WHERE action LIKE 'endpoint.%%' ORDER BY id"
    ).fetchall()
    assert [entry[0] for entry in entries] == ["endpoint.create", "endpoint.update"]
    assert entries[0][1]["headers"] == ["X-Tenant", "Authorization", "x-MiXed"]
    assert entries[1][1] == {"headers": {"set": ["Authorization"], "removed": ["x-MiXed"]}}
    assert CANARY not in json.dumps(entries)


def test_a_lost_keyring_is_a_state_and_no_crash(
    app: Flask, api: Api, connection: psycopg.Connection, path: str
) -> None:
    """They are shown as null; nothing is kept or taken along; given anew, all is well again."""
    lose_keyring(app)

    assert shown(api.get(path))["headers"] is None
    assert shown(api.get("/endpoints"))["data"][0]["headers"] is None
    assert shown(api.patch(path, {"description": "d"}))["headers"] is None
    kept = api.patch(path, {"headers": {"Authorization": None}})
    moved = api.patch(path, {"url": ELSEWHERE[1]})
    assert (list(errors(kept)), list(errors(moved))) == (["headers.Authorization"], ["headers"])
    assert shown(api.patch(path, {"headers": HEADERS}))["headers"] == MASKED


def delivered(connection: psycopg.Connection, count: int) -> bool:
    return statuses(connection).get("delivered", 0) == count


def test_a_delivery_takes_those_of_now_and_records_no_secret(
    app: Flask, api: Api, connection: psycopg.Connection
) -> None:
    """A replay carries what the endpoint has by then; the record masks secrets (W173, W152)."""
    settings = app.extensions["webhooks_settings"]
    with RawServer(replies(OK)) as server, dispatching(settings):
        path = f"/endpoints/{api.endpoint('*', url=server.url('/'), headers=HEADERS)}"
        api.event()
        eventually(lambda: delivered(connection, 1))
        delivery = shown(api.get("/deliveries"))["data"][0]["id"]
        shown(api.patch(path, {"headers": {"Authorization": "Bearer 2", "X-Tenant": "b"}}))
        assert api.post(f"/deliveries/{delivery}/replay").status_code in (200, 202)
        server.wait_for_requests(2)
        eventually(lambda: delivered(connection, 1))

    first, second = (request.headers for request in server.requests)
    assert first[-4:-1] == list(HEADERS.items())
    assert second[-3:-1] == [("Authorization", "Bearer 2"), ("X-Tenant", "b")]
    answer = api.get(f"/deliveries/{delivery}")
    recorded = [attempt["request_headers"] for attempt in shown(answer)["attempts"]]
    assert sorted(headers[-1] for headers in recorded) == [["X-Tenant", "b"], ["x-MiXed", "c"]]
    assert all(["Authorization", "•••"] in headers for headers in recorded)
    dump = connection.execute("SELECT a::text FROM webhooks.attempts a").fetchall()
    assert CANARY not in answer.text + str(dump)


def pem(*authorities: trustme.CA) -> str:
    return "".join(each.cert_pem.bytes().decode() for each in authorities)


def test_an_own_ca_is_stored_shown_and_audited(
    app: Flask, api: Api, connection: psycopg.Connection
) -> None:
    """Its certificates with subject, expiry and fingerprint; null takes the CA away (W043)."""
    first, second = trustme.CA(organization_name="First"), trustme.CA()
    made = shown(
        api.post("/endpoints", {"url": URL, "event_types": ["*"], "ca_pem": pem(first, second)})
    )
    path = f"/endpoints/{made['id']}"

    certificates = made["ca_certificates"]
    assert "First" in certificates[0]["subject"]
    assert certificates[0]["expires_at"] == "3000-01-01T00:00:00.000000Z"
    emit(connection)
    (claimed,) = claim(connection, register(connection))
    assert claimed.target is not None
    assert claimed.target.ca_pem == pem(first, second)
    shown(api.patch(path, {"ca_pem": pem(second)}))
    assert shown(api.patch(path, {"ca_pem": None}))["ca_certificates"] is None
    details = connection.execute(
        "SELECT detail->'ca_pem' FROM webhooks.audit_log WHERE detail ? 'ca_pem' ORDER BY id"
    ).fetchall()
    one_, two = (each["sha256"] for each in certificates)
    assert [row[0] for row in details] == [[one_, two], [[one_, two], [two]], [[two], []]]


def half_delivered(connection: psycopg.Connection, count: int) -> bool:
    return statuses(connection) == {"delivered": count, "dead_lettered": count}


def test_an_own_ca_is_trusted_for_its_endpoint_alone(
    app: Flask, api: Api, connection: psycopg.Connection
) -> None:
    """Of two endpoints on one server the one that names its CA is delivered to (W043, W044)."""
    authority = trustme.CA()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    settings = app.extensions["webhooks_settings"]
    policy = {"attempts": 1}
    with RawServer(replies(OK), tls=tls) as server, dispatching(settings):
        api.endpoint("*", url=server.url("/with"), ca_pem=pem(authority), retry_policy=policy)
        api.endpoint("*", url=server.url("/without"), retry_policy=policy)
        for count in (1, 2, 3):
            api.event()
            eventually(partial(half_delivered, connection, count))

    assert [request.target for request in server.requests] == ["/with"] * 3
    classes = connection.execute("SELECT DISTINCT error_class FROM webhooks.attempts ORDER BY 1")
    assert classes.fetchall() == [("tls",), (None,)]


def test_twenty_certificates_fit_into_a_request(api: Api) -> None:
    """64 kB of them beside the other fields."""
    text = pem(*(trustme.CA(organization_name="o" * 60) for _ in range(20)))
    comment = "# padding\n" * ((65_000 - len(text)) // 10)
    made = api.post("/endpoints", {"url": URL, "event_types": ["*"], "ca_pem": text + comment})
    assert len(shown(made)["ca_certificates"]) == 20
