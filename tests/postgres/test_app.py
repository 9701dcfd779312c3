"""The web application as a whole: headers, errors, database, settings."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import flask
import psycopg
import pytest
from flask import Flask
from sqlalchemy import text

from tests.api import Api, errors
from tests.queue import one
from tests.support import KEYRING
from webhooks import health, keys, web_database
from webhooks.app import create_app
from webhooks.models import db
from webhooks.secrets import Keyring, KeyringError
from webhooks.settings import Settings, SettingsError
from webhooks.web_database import psycopg_connection


@pytest.fixture
def away() -> Iterator[Flask]:
    """The application while its database is away: nothing listens on the port."""
    app = create_app(Settings(database_url="postgresql://x@127.0.0.1:1/x", keyring=KEYRING))
    yield app
    with app.app_context():
        db.engine.dispose()


PATHS = (
    "/healthz",
    "/livez",
    "/api/v1/endpoints",
    "/api/v1/nowhere",
    "/nowhere",
    "/static/app.css",
)


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_carries_the_security_headers(app: Flask, path: str) -> None:
    """No inline script or style, no framing, no sniffing, no referrer (SECURITY §4)."""
    with app.test_client().get(path) as answer:
        headers = answer.headers

    assert headers["Content-Security-Policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert "Permissions-Policy" in headers
    assert "Cache-Control" in headers
    assert "Strict-Transport-Security" not in headers


def test_https_answers_ask_for_https_from_then_on(app: Flask) -> None:
    """HSTS is sent where it means something."""
    answer = app.test_client().get("/healthz", base_url="https://localhost")

    assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"


@pytest.mark.parametrize("given", ["abc-DEF_1", "x" * 64])
def test_a_request_id_is_taken_from_the_request(app: Flask, given: str) -> None:
    """One id through all logs of a caller's system."""
    answer = app.test_client().get("/api/v1/nowhere", headers={"X-Request-Id": given})

    assert answer.headers["X-Request-Id"] == given
    assert answer.json is not None
    assert answer.json["request_id"] == given


@pytest.mark.parametrize("given", ["", "x" * 65, "a b", "é", "<script>"])
def test_an_odd_request_id_is_replaced(app: Flask, given: str) -> None:
    """What goes into logs and answers is ours unless it is harmless."""
    answer = app.test_client().get("/healthz", headers={"X-Request-Id": given})

    assert re.fullmatch(r"[0-9a-f]{32}", answer.headers["X-Request-Id"])


def test_the_process_lives_without_its_database_but_is_not_healthy(away: Flask) -> None:
    """/livez is for who restarts processes: that would not bring the database back (W113)."""
    live, healthy = (away.test_client().get(path) for path in ("/livez", "/healthz"))

    assert (live.status_code, live.json) == (200, {"status": "ok"})
    assert (healthy.status_code, healthy.json) == (
        503,
        {"status": "the database does not answer"},
    )


def test_a_database_that_says_nothing_is_not_healthy(
    app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer comes in bounded time, and the next question gets its own answer."""
    monkeypatch.setattr(health, "KEEP_S", 0)
    client = app.test_client()
    healthy = client.get("/healthz").status_code
    with monkeypatch.context() as patched:
        patched.setattr(health, "QUESTION", b"SELECT pg_sleep(60)")
        patched.setattr(health, "PATIENCE_S", 0.2)
        begun = time.monotonic()
        silent = client.get("/healthz").status_code
        took_s = time.monotonic() - begun
        patched.setattr(health, "QUESTION", b"SELECT 1 / 0")
        odd = client.get("/healthz").status_code

    assert (healthy, silent, odd, client.get("/healthz").status_code) == (200, 503, 503, 200)
    assert 0.2 <= took_s < 1


def test_the_database_is_asked_once_however_many_want_to_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """/healthz needs no key: it must not be a way to keep the database busy."""
    asked: list[int] = []

    def ask() -> bool:
        asked.append(len(asked))
        time.sleep(0.05)
        return len(asked) < 2

    monkeypatch.setattr(health, "KEEP_S", 0.3)
    verdict = health.Verdict(ask)
    with ThreadPoolExecutor(20) as pool:
        first = list(pool.map(lambda _: verdict(), range(40)))
    once = len(asked)
    time.sleep(0.35)

    assert (set(first), once) == ({True}, 1)
    assert (verdict(), verdict(), len(asked)) == (False, False, 2)


def test_an_unknown_api_route_is_a_problem(app: Flask) -> None:
    """JSON for programs, also where no route matched; a page for people elsewhere."""
    client = app.test_client()

    for path in ("/api/v1/nowhere", "/api/", "/api/v1/events/", "/api/v2/events"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert errors(answer) == {}
    assert client.get("/nowhere").content_type.startswith("text/html")


def test_a_wrong_method_is_answered_with_the_right_ones(app: Flask) -> None:
    """405 with Allow; no key is needed to learn it."""
    answer = app.test_client().put("/api/v1/endpoints")

    assert answer.status_code == 405
    assert errors(answer) == {}
    assert {"GET", "POST"} <= set(answer.headers["Allow"].split(", "))


def test_head_and_options_are_answered(app: Flask) -> None:
    """HEAD as GET without a body; OPTIONS lists the methods."""
    api = Api(app)

    head = api.call("HEAD", "/endpoints")
    options = app.test_client().options("/api/v1/endpoints")

    assert (head.status_code, head.data) == (200, b"")
    assert options.status_code == 200
    assert {"GET", "POST"} <= set(options.headers["Allow"].split(", "))


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic dXNlcjpwYXNz",
        "Bearer whk_live_",
        "Bearer \u00e9",
        "Bearer " + "x" * 10_000,
        "Bearer whk_live_AAAAAAAA_" + "A" * 49,
    ],
    ids=lambda header: header[:24],
)
def test_a_missing_or_wrong_key_is_401(app: Flask, header: str) -> None:
    """The answer says how to send one and nothing about which keys exist."""
    answer = app.test_client().get(
        "/api/v1/endpoints", headers={"Authorization": header} if header else {}
    )

    assert answer.status_code == 401
    assert errors(answer) == {}
    assert answer.headers["WWW-Authenticate"].startswith('Bearer realm="webhooks"')


# What says nothing of an installation but its version.
PUBLIC = {"/api/v1/openapi.json"}


def test_every_api_route_wants_a_key(app: Flask) -> None:
    """No route of the API answers anybody: a new one cannot be forgotten."""
    client = app.test_client()
    rules = [rule for rule in app.url_map.iter_rules() if rule.rule.startswith("/api/")]

    assert len(rules) >= 13
    for rule in rules:
        path = re.sub(r"<[^>]*>", "x", rule.rule)
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}:
            expected = 200 if rule.rule in PUBLIC else 401
            assert client.open(path, method=method).status_code == expected, (method, path)


def test_the_scheme_is_not_case_sensitive(app: Flask) -> None:
    """RFC 9110: bearer and Bearer are the same."""
    api = Api(app)

    answer = api.call("GET", "/endpoints", headers={"Authorization": f"bearer  {api.key} "})

    assert answer.status_code == 200


def test_a_bug_shows_no_internals(app: Flask, caplog: pytest.LogCaptureFixture) -> None:
    """500 with the request's id, by which the traceback is found in the log."""

    def fail() -> str:
        raise RuntimeError("canary secret")

    app.add_url_rule("/api/v1/fail", "fail", fail)
    app.add_url_rule("/fail", "fail_page", fail)

    for path in ("/api/v1/fail", "/fail"):
        answer = app.test_client().get(path, headers={"X-Request-Id": "find-me"})
        assert answer.status_code == 500
        assert answer.headers["X-Request-Id"] == "find-me"
        assert "canary" not in answer.text
        assert "Traceback" not in answer.text
    assert errors(app.test_client().get("/api/v1/fail")) == {}
    assert "canary secret" in caplog.text


def test_a_database_that_is_away_is_503(away: Flask) -> None:
    """A problem with Retry-After, and nothing about where the database is."""
    _, key = keys.generate()

    answer = away.test_client().post(
        "/api/v1/events",
        headers={"Authorization": f"Bearer {key}"},
        json={"type": "a", "payload": 1},
    )

    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "5"
    assert errors(answer) == {}
    assert "127.0.0.1" not in answer.text


def test_a_page_without_its_database_is_503(away: Flask) -> None:
    """A view outside the API answers with a page that says when to come back."""

    def look() -> str:
        return str(db.session.scalar(text("SELECT 1")))

    away.add_url_rule("/look", "look", look)

    answer = away.test_client().get("/look")

    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert answer.content_type.startswith("text/html")
    assert "127.0.0.1" not in answer.text


def test_a_statement_that_takes_too_long_is_503(
    app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement's own timeout ends it; the caller may try again."""
    monkeypatch.setattr(web_database, "LIMITS", "SET LOCAL statement_timeout = '50ms'")

    def sleep() -> str:
        return str(db.session.scalar(text("SELECT pg_sleep(20)")))

    app.add_url_rule("/api/v1/sleep", "sleep", sleep)

    answer = app.test_client().get("/api/v1/sleep")

    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")


def test_connections_that_the_server_closed_are_replaced(
    app: Flask, connection: psycopg.Connection
) -> None:
    """After a restart of the database the very next request is answered (W113)."""
    api = Api(app)
    event = {"type": "a", "payload": 1}
    assert api.post("/events", event).status_code == 202
    assert api.get("/endpoints").status_code == 200

    for _ in range(2):
        gone = connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name = 'webhooks web'"
        ).fetchall()
        assert gone
        assert api.post("/events", event).status_code == 202
        assert api.get("/endpoints").status_code == 200


def test_transactions_are_bounded_and_read_committed(app: Flask) -> None:
    """The limits are the transaction's own, so a transaction pooler may stand between."""
    with app.app_context():
        limits = [
            db.session.scalar(text(f"SHOW {name}"))
            for name in (
                "statement_timeout",
                "lock_timeout",
                "idle_in_transaction_session_timeout",
                "transaction_isolation",
            )
        ]
        db.session.rollback()
        with psycopg_connection() as connection:
            after = one(connection, "SHOW statement_timeout")

    assert limits == ["5s", "1s", "15s", "read committed"]
    assert after == "0"


def test_a_lent_connection_comes_back_clean(app: Flask) -> None:
    """Whatever happened while it was lent, the pool gets it without a transaction."""
    with app.app_context():
        with psycopg_connection() as first:
            assert first.autocommit
            first.execute("BEGIN")
            with pytest.raises(psycopg.errors.DivisionByZero):
                first.execute("SELECT 1 / 0")
        with psycopg_connection() as again:
            assert again is first
            assert again.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        assert not again.autocommit
        assert db.session.scalar(text("SELECT 1")) == 1


def test_a_connection_lost_while_lent_is_not_lent_again(app: Flask) -> None:
    """The pool forgets it without a word in the log."""
    with app.app_context():
        with psycopg_connection() as connection:
            connection.close()
        with psycopg_connection() as another:
            assert one(another, "SELECT 1") == 1


def test_session_keys_come_from_the_keyring() -> None:
    """The current key signs; older ones still verify, so a rotation signs nobody out."""
    new, old = Keyring.generate("new"), Keyring.generate("old")
    app = create_app(Settings(database_url="postgresql://x@h/x", keyring=f"{new} {old}"))

    assert app.secret_key == Keyring.parse(new).derive("flask session")[0]
    assert app.config["SECRET_KEY_FALLBACKS"] == Keyring.parse(old).derive("flask session")


@pytest.mark.parametrize(("mode", "secure"), [("production", True), ("development", False)])
def test_cookies_are_secure_but_in_development(mode: str, secure: bool) -> None:
    """`webhooks up` serves plain http; production never does."""
    app = create_app(Settings(database_url="postgresql://x@h/x", keyring=KEYRING, mode=mode))

    assert app.config["SESSION_COOKIE_SECURE"] is secure
    assert app.config["SESSION_COOKIE_HTTPONLY"] is True
    assert app.config["SESSION_COOKIE_SAMESITE"] == "Lax"


@pytest.mark.parametrize(("proxies", "address"), [(0, "127.0.0.1"), (1, "2.2.2.2"), (2, "1.1.1.1")])
def test_forwarded_headers_count_for_as_many_proxies_as_are_trusted(
    proxies: int, address: str
) -> None:
    """Without a trusted proxy a client cannot choose its address or scheme."""
    app = create_app(
        Settings(database_url="postgresql://x@h/x", keyring=KEYRING, trusted_proxies=proxies)
    )
    app.add_url_rule("/who", "who", lambda: f"{flask.request.remote_addr} {flask.request.scheme}")

    answer = app.test_client().get(
        "/who", headers={"X-Forwarded-For": "1.1.1.1, 2.2.2.2", "X-Forwarded-Proto": "https, https"}
    )

    assert answer.text == f"{address} {'https' if proxies else 'http'}"


def test_a_missing_setting_stops_the_start() -> None:
    """The error names the setting."""
    with pytest.raises(SettingsError, match="DATABASE_URL"):
        create_app(Settings(keyring=KEYRING))
    with pytest.raises(KeyringError, match="WEBHOOKS_KEYRING"):
        create_app(Settings(database_url="postgresql://x@h/x"))


def test_the_api_takes_no_cookie_and_needs_no_form_token(app: Flask) -> None:
    """A browser's session opens nothing here, so no other site can use it."""
    answer = Api(app).post("/events", {"type": "a", "payload": 1}, Cookie="session_token=x")

    assert answer.status_code == 202
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("extra", [0, 1, 100_000])
def test_a_body_of_unknown_length_is_never_cut(app: Flask, extra: int) -> None:
    """Chunked: lines up to the limit are all taken, one byte more refuses the whole."""
    line = b'{"type":"a","payload":"' + b"x" * 200_000 + b'"}\n'
    lines = line * (8 * 1024 * 1024 // len(line))
    body = lines + b"\n" * (8 * 1024 * 1024 + extra - len(lines))
    api = Api(app)

    answer = app.test_client().post(
        "/api/v1/events/batch",
        input_stream=io.BytesIO(body),
        headers={
            "Authorization": f"Bearer {api.key}",
            "Content-Type": "application/x-ndjson",
            "Transfer-Encoding": "chunked",
        },
        environ_overrides={"wsgi.input_terminated": True},
    )

    if extra:
        assert answer.status_code == 413
        assert list(errors(answer)) == ["body"]
    else:
        assert answer.status_code == 200
        assert len((answer.json or {})["data"]) == len(body) // len(line)


def test_a_refused_client_may_finish_sending(app: Flask) -> None:
    """A client that is cut off while it sends would never read why."""
    sent = io.BytesIO(b"x" * 2_000_000)

    answer = app.test_client().post(
        "/api/v1/events", input_stream=sent, environ_overrides={"wsgi.input_terminated": True}
    )

    assert answer.status_code == 401
    assert sent.tell() == 2_000_000
