"""The dashboard's deliveries: lists, actions, what a page costs, polls."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import psycopg
import pytest
from flask import Flask
from flask.testing import FlaskClient
from markupsafe import escape
from sqlalchemy import event as sqlalchemy_event
from werkzeug.test import TestResponse

from tests.browser import seed
from tests.pages import pages, path_of, post, signed_in
from tests.queue import one
from webhooks import ids
from webhooks.models import db


@pytest.fixture
def owner(app: Flask) -> FlaskClient:
    return signed_in(app)


def listed(html: str) -> list[str]:
    return re.findall(r'<tr id="row-(dlv_[0-9a-z]+)">', html)


def neighbour(html: str, rel: str) -> str | None:
    found = re.search(rf'href="([^"]+)" rel="{rel}"', html)
    return found[1].replace("&amp;", "&") if found else None


def walk(client: FlaskClient, path: str) -> list[list[str]]:
    """The pages of a list from the newest row to the oldest."""
    found = []
    next_path: str | None = path
    while next_path:
        html = client.get(next_path).text
        found.append(listed(html))
        last, next_path = next_path, neighbour(html, "next")
    back = []
    next_path = last
    while next_path:
        html = client.get(next_path).text
        back.append(listed(html))
        next_path = neighbour(html, "prev")
    assert back[::-1] == found  # the way back shows the same pages
    return found


@pytest.fixture
def many(connection: psycopg.Connection) -> dict[str, UUID]:
    """Two endpoints with 130 deliveries: many that finished at the same microsecond."""
    seed.partitions(connection)
    endpoints = [seed.add_endpoint(connection, f"https://e{n}.example/") for n in range(2)]
    event_id = seed.add_event(connection)
    states = (
        "pending",
        "delivered",
        "delivered",
        "scheduled",
        "dead_lettered",
        "in_flight",
        "cancelled",
    )
    with connection.transaction():
        for n in range(130):
            seed.add_delivery(
                connection, endpoints[n % 2], event_id, states[n % 7], attempts=1,
                finished_s=60 * (n // 40),
            )  # fmt: skip
    return {"first": endpoints[0], "second": endpoints[1], "event": event_id}


@pytest.mark.parametrize(
    ("query", "condition"),
    [
        ("", "true"),
        ("state=pending", "status = 'pending'"),
        ("state=delivered", "status = 'delivered'"),
        ("state=dead_lettered", "status = 'dead_lettered'"),
        ("state=scheduled", "status = 'scheduled'"),
        ("endpoint=FIRST", "endpoint_id = %(first)s"),
        ("state=delivered&endpoint=FIRST", "status = 'delivered' AND endpoint_id = %(first)s"),
        ("state=cancelled&endpoint=FIRST", "status = 'cancelled' AND endpoint_id = %(first)s"),
    ],
)
def test_pages_show_every_row_once_in_order_both_ways(
    owner: FlaskClient,
    connection: psycopg.Connection,
    many: dict[str, UUID],
    monkeypatch: pytest.MonkeyPatch,
    query: str,
    condition: str,
) -> None:
    """Live rows by id, then finished ones; rows of one instant are all there, once."""
    monkeypatch.setattr("webhooks.dashboard.lists.page.__defaults__", (None, 7))
    wanted = [
        ids.encode("dlv", row[0])
        for row in connection.execute(
            f"SELECT id FROM webhooks.deliveries WHERE {condition} "
            "ORDER BY finished_at DESC, id DESC",
            many,
        )
    ]

    found = walk(owner, f"/deliveries?{query.replace('FIRST', ids.encode('ep', many['first']))}")

    assert [row for page in found for row in page] == wanted
    assert all(len(page) == 7 for page in found[:-1])


def test_rows_that_finish_between_two_pages_are_not_shown_twice(
    owner: FlaskClient,
    connection: psycopg.Connection,
    many: dict[str, UUID],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A list that moves meanwhile still leads to its end."""
    monkeypatch.setattr("webhooks.dashboard.lists.page.__defaults__", (None, 7))
    html = owner.get("/deliveries?state=delivered").text
    seed.add_delivery(connection, many["first"], many["event"], "delivered", finished_s=0)

    following = owner.get(neighbour(html, "next") or "").text

    assert not set(listed(html)) & set(listed(following))


@pytest.mark.parametrize(
    "query", ["page=x", "page=WzFd.AAAA", "state=foo", "state=%3Cscript%3E", "page=%00"]
)
def test_an_address_that_nobody_made_is_refused(owner: FlaskClient, query: str) -> None:
    """400 with words, not a traceback and not a silently different list."""
    answer = owner.get(f"/deliveries?{query}")

    assert answer.status_code == 400
    assert "<script>" not in answer.text


@pytest.mark.parametrize("name", ["status", "cursor", "<script>"])
def test_a_filter_that_is_ignored_is_named(owner: FlaskClient, name: str) -> None:
    """A parameter that the list does not have is not passed over in silence."""
    answer = owner.get("/deliveries", query_string={name: "bogus", "state": "delivered"})

    assert answer.status_code == 200
    (note,) = re.findall(r"<p>(Ignored, [^<]*)</p>", answer.text)
    assert escape(name) in note
    assert "Ignored, " not in owner.get("/deliveries?state=delivered&endpoint=").text


def test_a_cursor_belongs_to_its_filter(
    owner: FlaskClient, many: dict[str, UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be carried over to another list, nor be changed."""
    monkeypatch.setattr("webhooks.dashboard.lists.page.__defaults__", (None, 7))
    onward = neighbour(owner.get("/deliveries?state=delivered").text, "next")
    assert onward is not None
    cursor = parse_qs(urlsplit(onward).query)["page"][0]

    assert owner.get(f"/deliveries?state=delivered&page={cursor}").status_code == 200
    assert owner.get(f"/deliveries?page={cursor}").status_code == 400
    assert owner.get(f"/deliveries?state=delivered&page=A{cursor}").status_code == 400


def test_no_match_is_told_from_nothing_yet(
    owner: FlaskClient, connection: psycopg.Connection
) -> None:
    """The one offers to clear the filter, the other a first step and a curl example."""
    html = owner.get("/deliveries").text
    assert "No deliveries yet" in html
    assert "curl http://localhost/api/v1/events" in html

    html = owner.get("/deliveries?state=cancelled").text
    assert "No delivery matches" in html
    assert "Clear the filter" in html


def test_what_can_be_done_depends_on_the_state(
    owner: FlaskClient, connection: psycopg.Connection
) -> None:
    """Replay what finished, retry or cancel what waits, nothing while it is being sent."""
    rows = seed.platform(connection)
    offered = {
        state: set(re.findall(r'formaction="[^"]+/(replay|retry|cancel)"', owner.get(
            path_of("dlv", rows[state])).text))
        for state in ("delivered", "dead", "cancelled", "scheduled", "pending", "in_flight")
    }  # fmt: skip

    assert offered == {
        "delivered": {"replay"},
        "dead": {"replay"},
        "cancelled": {"replay"},
        "scheduled": {"retry", "cancel"},
        "pending": {"cancel"},
        "in_flight": set(),
    }


def test_actions_change_the_delivery_and_say_so(
    owner: FlaskClient, connection: psycopg.Connection
) -> None:
    """Replay, retry now and cancel, each followed by the delivery's page."""
    rows = seed.platform(connection)

    def status(name: str) -> Any:
        return one(connection, "SELECT status FROM webhooks.deliveries WHERE id = %s", rows[name])

    for name, action, after in (
        ("dead", "replay", "pending"),
        ("scheduled", "retry", "pending"),
        ("pending", "cancel", "cancelled"),
    ):
        path = path_of("dlv", rows[name])
        assert post(owner, f"{path}/{action}").location == path
        assert status(name) == after
        assert 'class="flash"' in owner.get(path).text
    assert "cancelled by owner" in owner.get(path_of("dlv", rows["pending"])).text


def test_what_is_refused_says_why(owner: FlaskClient, connection: psycopg.Connection) -> None:
    """A replay to a disabled endpoint changes nothing and names the reason (W159)."""
    rows = seed.platform(connection)
    delivery_id = seed.add_delivery(connection, rows["shop"], rows["event"], "dead_lettered")
    path = path_of("dlv", delivery_id)

    post(owner, f"{path}/replay")

    html = owner.get(path).text
    assert "Nothing was changed: its endpoint is disabled" in html
    assert one(
        connection, "SELECT status FROM webhooks.deliveries WHERE id = %s", delivery_id
    ) == "dead_lettered"  # fmt: skip


def test_attempts_stand_newest_first_with_their_numbers(
    owner: FlaskClient, connection: psycopg.Connection
) -> None:
    """Each with its own number, result, phases, headers and body (W167)."""
    rows = seed.platform(connection)

    html = owner.get(path_of("dlv", rows["dead"])).text

    assert re.findall(r"<h3>Attempt (\d+)</h3>", html) == [str(n) for n in range(10, 0, -1)]
    for shown in ("HTTP 503 Service Unavailable", "upstream unavailable", "x-request-id",
                  "No answer within 20 s.", "Connection refused", "webhook-signature",
                  "203.0.113.7:443", "Name", "First byte"):  # fmt: skip
        assert shown in html, shown
    body = owner.get(path_of("dlv", rows["dead"]) + "/attempts/10/body")
    assert body.data == seed.FAILED_BODY
    assert body.mimetype == "application/octet-stream"
    assert owner.get(path_of("dlv", rows["dead"]) + "/attempts/9/body").status_code == 404


@pytest.fixture
def statements(app: Flask) -> Iterator[list[str]]:
    """What the application asks the database, without transaction settings."""
    seen: list[str] = []

    def note(_: Any, __: Any, statement: str, *more: Any) -> None:
        if not statement.startswith("SET LOCAL"):
            seen.append(statement)

    with app.app_context():
        engine = db.engine
    sqlalchemy_event.listen(engine, "before_cursor_execute", note)
    yield seen
    sqlalchemy_event.remove(engine, "before_cursor_execute", note)


def test_a_page_asks_little_and_nothing_unbounded(
    owner: FlaskClient, connection: psycopg.Connection, statements: list[str]
) -> None:
    """At most six queries; no OFFSET, no DISTINCT, every count over a LIMIT."""
    rows = seed.platform(connection)

    for path in [*pages(rows), "/deliveries?state=delivered"]:
        statements.clear()
        assert owner.get(path).status_code == 200
        assert 0 < len(statements) <= 6, (path, statements)
        for statement in statements:
            text = statement.lower()
            assert "offset" not in text
            assert "distinct" not in text
            counts = len(re.findall(r"count\(\*\)", text))
            assert counts <= text.count("limit %"), statement


def test_counts_stop_at_their_cap(owner: FlaskClient, connection: psycopg.Connection) -> None:
    """Ten thousand and more read 10,000+."""
    endpoint = seed.add_endpoint(connection, "https://a.example/")
    connection.execute(
        "INSERT INTO webhooks.deliveries (shard, tenant_id, event_id, endpoint_id, event_type) "
        "SELECT webhooks.shard_of(tenant_id), tenant_id, id, id, 'a' "
        "FROM webhooks.endpoints, generate_series(1, 10001) WHERE id = %s",
        [endpoint],
    )

    assert ">10,000+<" in owner.get("/").text
    assert ">1,000+<" in owner.get("/endpoints").text


def test_the_oldest_pending_is_one_that_could_be_sent(
    owner: FlaskClient, connection: psycopg.Connection
) -> None:
    """What a paused endpoint holds, and a retry with its old id, are no sign of a stall."""
    rows = seed.platform(connection)
    connection.execute("DELETE FROM webhooks.deliveries WHERE id = %s", [rows["pending"]])
    assert "held or between tries" in owner.get("/").text

    seed.add_delivery(connection, rows["acme"], rows["event"], "pending")

    assert "oldest waits" in owner.get("/").text


def poll(client: FlaskClient, path: str, tag: str = "") -> TestResponse:
    return client.get(path, headers={"X-Poll": "1", "If-None-Match": f'"{tag}"'})


def test_a_poll_is_answered_only_when_something_changed(
    owner: FlaskClient, connection: psycopg.Connection
) -> None:
    """The page carries its tag; 304 until a row changes, then the regions alone."""
    rows = seed.platform(connection)
    found = re.search(r'data-tag="([^"]+)"', owner.get("/").text)
    assert found is not None

    assert poll(owner, "/", found[1]).status_code == 304
    seed.delivered(connection, rows["acme"], rows["event"], "invoice.paid", 0)
    answer = poll(owner, "/", found[1])

    assert answer.status_code == 200
    assert "<html" not in answer.text
    assert re.findall(r'<div id="([a-z]+)" data-live', answer.text) == [
        "counts", "attention", "workers", "latest",
    ]  # fmt: skip
    assert poll(owner, "/", (answer.headers["ETag"]).strip('"')).status_code == 304


def test_polling_does_not_keep_a_session_alive(
    owner: FlaskClient, connection: psycopg.Connection
) -> None:
    """Thirty minutes without a person end it; the poll then says 401, not a sign-in page."""
    connection.execute("UPDATE webhooks.sessions SET seen_at = now() - interval '20 minutes'")
    assert poll(owner, "/").status_code == 200
    connection.execute("UPDATE webhooks.sessions SET seen_at = seen_at - interval '20 minutes'")

    assert poll(owner, "/").status_code == 401
