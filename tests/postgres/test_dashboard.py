"""The dashboard through Flask's test client: who may open what, signing in, errors."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import psycopg
import pytest
from flask import Flask
from flask.testing import FlaskClient
from psycopg.errors import QueryCanceled
from sqlalchemy.exc import OperationalError
from werkzeug.test import TestResponse

from tests.browser import seed
from tests.pages import BANNER, HOSTILE, PASSWORD, pages, path_of, post, signed_in
from tests.queue import one
from webhooks import ids
from webhooks.app import create_app
from webhooks.dashboard import queries, site
from webhooks.models import db
from webhooks.settings import Settings


@pytest.fixture
def owner(app: Flask) -> FlaskClient:
    return signed_in(app)


def rules(app: Flask, method: str) -> list[tuple[str, str]]:
    """(endpoint, path) of every dashboard route with this method."""
    found = []
    for rule in app.url_map.iter_rules():
        if rule.endpoint.startswith("dashboard.") and method in (rule.methods or ()):
            path = rule.rule.replace("<int(max=2147483647):number>", "1")
            found.append((rule.endpoint, path.replace("<text>", ids.encode("ep", UUID(int=1)))))
    assert found
    return found


def test_every_route_names_its_permission(app: Flask) -> None:
    """A route that was added without one would be noticed here, and refuses everybody."""
    for name, view in app.view_functions.items():
        if name.startswith("dashboard."):
            assert site.needed(view) is not None, name


def test_a_route_without_a_permission_answers_nobody(
    app: Flask, owner: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deny by default."""
    monkeypatch.delitem(site._needed, app.view_functions["dashboard.overview"])

    assert owner.get("/").status_code == 403


def test_every_route_but_signing_in_asks_for_a_session(app: Flask) -> None:
    """Nobody who is not signed in reads or changes anything."""
    client = app.test_client()
    public = {"dashboard.sign_in", "dashboard.open_session", "dashboard.close_session"}

    for name, path in rules(app, "GET"):
        if name not in public:
            answer = client.get(path)
            assert (answer.status_code, urlsplit(answer.location).path) == (303, "/sign-in"), path
    for name, path in rules(app, "POST"):
        if name not in public | {"dashboard.choose_theme"}:
            answer = post(client, path)
            assert (answer.status_code, answer.location) == (303, "/sign-in"), path


def test_a_viewer_reads_but_changes_nothing(app: Flask, connection: psycopg.Connection) -> None:
    """Every form and every action answers 403; lists and details open, without bodies."""
    viewer = signed_in(app, "viewer")
    rows = seed.platform(connection)
    changing = [p for _, p in rules(app, "POST") if p not in ("/sign-in", "/sign-out", "/theme")]

    for path in changing:
        assert post(viewer, path).status_code == 403, path
    for path in pages(rows):
        form = path.endswith(("/new", "/edit", "/delete", "/resume", "/send"))
        assert viewer.get(path).status_code == (403 if form else 200), path
    html = viewer.get(path_of("dlv", rows["dead"])).text
    assert "Acme GmbH" not in html
    assert "upstream unavailable" not in html
    assert viewer.get(path_of("evt", rows["event"]) + "/payload").status_code == 403
    assert "Replay" not in html


def test_a_developer_sees_no_secret(app: Flask) -> None:
    """They register endpoints, but whoever may see secrets gives the receiver one."""
    answer = post(
        signed_in(app, "developer"), "/endpoints", {"url": "http://127.0.0.1/", "event_types": "*"}
    )

    assert answer.status_code == 201
    assert "whsec_" not in answer.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 303),
        ({"Origin": "http://localhost"}, 303),
        ({"Origin": "null"}, 303),
        ({"Origin": "https://evil.example"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "null"}, 303),
        ({"Sec-Fetch-Site": "none"}, 303),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
)
def test_forms_of_other_sites_are_refused(
    owner: FlaskClient, headers: dict[str, str], status: int
) -> None:
    """Even with a form token."""
    assert post(owner, "/theme", {"theme": "dark"}, headers=headers).status_code == status


def test_a_form_without_its_token_changes_nothing(
    app: Flask, owner: FlaskClient, connection: psycopg.Connection
) -> None:
    """Every POST route asks for the token (CSRF)."""
    for _, path in rules(app, "POST"):
        assert owner.post(path, data={"url": "http://127.0.0.1/"}).status_code == 400, path
    assert one(connection, "SELECT count(*) FROM webhooks.endpoints") == 0


def cookies(answer: TestResponse) -> dict[str, Any]:
    jar: SimpleCookie = SimpleCookie()
    for line in answer.headers.getlist("Set-Cookie"):
        jar.load(line)
    return dict(jar)


def test_the_session_cookie_in_development(app: Flask) -> None:
    """Not Secure, as there is no https; out of reach for scripts and other sites."""
    signed_in(app)
    answer = post(app.test_client(), "/sign-in", {"username": "owner", "password": PASSWORD})

    cookie = cookies(answer)["session_token"]
    assert (cookie["secure"], cookie["httponly"], cookie["samesite"], cookie["path"]) == (
        "", True, "Lax", "/",
    )  # fmt: skip


def test_the_session_cookie_in_production(settings: Settings, app: Flask) -> None:
    """__Host- and Secure; forms work over https although pages send no Referer."""
    app = create_app(dataclasses.replace(settings, mode="production"))
    client = signed_in(app, base="https://hooks.example")

    answer = post(
        client, "/sign-in", {"username": "owner", "password": PASSWORD},
        base_url="https://hooks.example",
    )  # fmt: skip

    cookie = cookies(answer)["__Host-session"]
    assert (cookie["secure"], cookie["httponly"], cookie["samesite"], cookie["path"]) == (
        True, True, "Lax", "/",
    )  # fmt: skip
    assert not cookie["domain"]
    assert cookies(client.get("/nowhere", base_url="https://hooks.example")).keys() <= {
        "__Host-form_session"
    }
    assert BANNER not in client.get("/", base_url="https://hooks.example").text
    with app.app_context():
        db.engine.dispose()


def test_every_page_says_that_this_is_development_mode(
    app: Flask, owner: FlaskClient, connection: psycopg.Connection
) -> None:
    """Signed in or not, and on error pages."""
    rows = seed.platform(connection)

    for path in [*pages(rows), "/nowhere"]:
        assert BANNER in owner.get(path).text, path
    assert BANNER in app.test_client().get("/sign-in").text


@pytest.mark.parametrize(
    ("http", "cidrs", "banner", "hint"),
    [
        (True, (), "Development mode: plain http targets are allowed", "Plain http targets are"),
        (
            False,
            ("127.0.0.0/8",),
            "Development mode: loopback targets are allowed",
            "Loopback targets are",
        ),
        (False, ("10.0.0.0/8",), "Development mode", "It must be https"),
    ],
)
def test_pages_say_which_targets_are_allowed(
    settings: Settings, http: bool, cidrs: tuple[str, ...], banner: str, hint: str
) -> None:
    """The settings decide, not the mode: `up --host 0.0.0.0` opens no loopback."""
    opened = tuple(ipaddress.ip_network(text) for text in cidrs)
    app = create_app(dataclasses.replace(settings, allow_http=http, allow_cidrs=opened))

    html = signed_in(app).get("/endpoints/new").text

    assert f"{banner}</div>" in html
    assert hint in html
    with app.app_context():
        db.engine.dispose()


def test_every_failed_sign_in_reads_the_same(app: Flask) -> None:
    """Unknown name and wrong password: same status, same words."""
    signed_in(app)
    client = app.test_client()

    answers = [
        post(client, "/sign-in", {"username": name, "password": "wrong password"})
        for name in ("owner", "nobody")
    ]

    assert [answer.status_code for answer in answers] == [401, 401]
    words = [re.search(r'role="alert">(.*?)</div>', answer.text, re.S) for answer in answers]
    assert words[0]
    assert words[1]
    assert words[0][1] == words[1][1]
    assert 'value="owner"' in answers[0].text
    assert "wrong password" not in answers[0].text


def test_ten_failures_close_the_door_for_a_while(app: Flask) -> None:
    """429 with Retry-After, for the right password too, from this address alone."""
    signed_in(app)
    client = app.test_client()
    for _ in range(10):
        post(client, "/sign-in", {"username": "owner", "password": "wrong password"})

    answer = post(client, "/sign-in", {"username": "owner", "password": PASSWORD})
    other = post(
        client, "/sign-in", {"username": "owner", "password": PASSWORD},
        environ_overrides={"REMOTE_ADDR": "192.0.2.9"},
    )  # fmt: skip

    assert answer.status_code == 429
    assert 0 < int(answer.headers["Retry-After"]) <= 300
    assert other.status_code == 303


@pytest.mark.parametrize(
    ("onward", "location"),
    [
        ("/deliveries?state=pending", "/deliveries?state=pending"),
        ("", "/"),
        ("https://evil.example/", "/"),
        ("//evil.example/", "/"),
        ("/\\evil.example/", "/"),
        ("/a\r\nSet-Cookie: x=1", "/"),
    ],
)
def test_signing_in_goes_on_within_this_site(app: Flask, onward: str, location: str) -> None:
    """To the page that was asked for, never to another site."""
    signed_in(app)
    data = {"username": "owner", "password": PASSWORD, "next": onward}

    assert post(app.test_client(), "/sign-in", data).location == location


def test_signing_in_makes_a_new_session_and_ends_the_old_one(owner: FlaskClient) -> None:
    """A session id that somebody planted or copied before is worth nothing after it."""
    before = owner.get_cookie("session_token")
    post(owner, "/sign-in", {"username": "owner", "password": PASSWORD})
    after = owner.get_cookie("session_token")
    assert before is not None
    assert after is not None
    assert before.value != after.value

    owner.set_cookie("session_token", before.value)

    assert owner.get("/").status_code == 303


def test_signing_out_ends_the_session_on_the_server(owner: FlaskClient) -> None:
    """The cookie is useless afterwards, and GET does not sign out."""
    cookie = owner.get_cookie("session_token")
    assert cookie is not None
    assert owner.get("/sign-out").status_code == 405

    assert post(owner, "/sign-out").location == "/sign-in"

    owner.set_cookie("session_token", cookie.value)
    assert owner.get("/").status_code == 303


def test_the_theme_is_remembered_in_a_cookie(app: Flask) -> None:
    """The server writes it into the page, so nothing flashes; other values are ignored."""
    client = app.test_client()

    assert post(client, "/theme", {"theme": "dark", "next": "/sign-in"}).location == "/sign-in"
    assert 'data-theme="dark"' in client.get("/sign-in").text
    client.set_cookie("theme", HOSTILE)
    assert 'data-theme="system"' in client.get("/sign-in").text


def test_error_pages_are_ours(app: Flask, owner: FlaskClient) -> None:
    """For whoever is signed in with the menu, for others without."""
    assert 'aria-label="Main"' in owner.get("/nowhere").text
    stranger = app.test_client().get("/nowhere")

    assert stranger.status_code == 404
    assert "There is nothing here" in stranger.text
    assert 'aria-label="Main"' not in stranger.text


def test_a_database_that_is_away_is_503(settings: Settings) -> None:
    """With Retry-After; the sign-in form itself needs no database."""
    app = create_app(
        dataclasses.replace(settings, database_url="postgresql://nobody@127.0.0.1:1/none")
    )
    client = app.test_client()
    assert client.get("/sign-in").status_code == 200
    client.set_cookie("session_token", "x")

    answer = client.get("/")

    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) > 0
    assert "The database does not answer" in answer.text


def test_a_lookup_that_took_too_long_says_what_to_do(
    owner: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement that was stopped is not the database being away."""

    def slow(_: object) -> None:
        raise OperationalError("SELECT", {}, QueryCanceled("statement timeout"))

    monkeypatch.setattr(queries, "overview", slow)

    answer = owner.get("/")

    assert answer.status_code == 503
    assert "Narrow the filter" in answer.text


def test_a_mistake_of_ours_shows_no_detail(
    app: Flask, owner: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500, a page, and the traceback only in the log."""

    def broken(_: object) -> None:
        raise RuntimeError("the secret detail")

    monkeypatch.setattr(queries, "overview", broken)

    answer = owner.get("/")

    assert answer.status_code == 500
    assert "Something went wrong" in answer.text
    assert "secret detail" not in answer.text


def test_the_api_keeps_its_own_errors(app: Flask) -> None:
    """Problem details, no page and no form token."""
    answer = app.test_client().post("/api/v1/events", json={})

    assert answer.status_code == 401
    assert answer.mimetype == "application/problem+json"


def test_static_files_are_kept_by_caches_until_they_change(app: Flask) -> None:
    """Their address holds a part that the content decides, so a new release is seen at once."""
    client = app.test_client()
    address = re.search(r'href="(/static/app\.css\?v=[0-9a-f]{12})"', client.get("/sign-in").text)
    assert address is not None

    with client.get(address[1]) as answer:
        assert answer.status_code == 200
        assert "max-age=31536000" in answer.headers["Cache-Control"]
