"""The dashboard shows an endpoint's lane as it stands, and says what is held."""

from __future__ import annotations

import re
from uuid import UUID

import psycopg
import pytest
from flask import Flask
from flask.testing import FlaskClient
from markupsafe import Markup

from tests.browser import seed
from tests.pages import path_of, post, signed_in
from tests.queue import statuses


@pytest.fixture
def owner(app: Flask) -> FlaskClient:
    return signed_in(app)


@pytest.fixture
def troubled(connection: psycopg.Connection) -> dict[str, UUID]:
    return seed.troubled(connection)


def text(html: str) -> str:
    """What a person reads."""
    return re.sub(r"\s+([.,;:])", r"\1", Markup(html).striptags())


STATES = [
    ("broken", "Broken", ["the last 41 attempts failed, the first 3 h ago",
                          "One delivery is tried in 1 min",
                          "The last failure: No connection, 35 s ago in this delivery"]),
    ("warned", "Broken", ["It will be disabled at about", "(in 47 h) unless an attempt succeeds",
                          "One delivery is tried now", "HTTP 502 Bad Gateway, 10 min ago"]),
    ("throttled", "Throttled", ["the receiver asked for a pause (HTTP 429)", "opens again in"]),
    ("limited", "Rate limited", ["At its limit of 5 attempts a second"]),
    ("given-up", "Disabled", ["Disabled 2 h ago: every attempt failed for 5 days, 214 in a row",
                              "had failed in a row since 2026-11-25 10:00:00 UTC",
                              "Timed out", "Resume…"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "label", "words"), STATES)
def test_an_endpoints_page_says_how_its_lane_stands(
    owner: FlaskClient, troubled: dict[str, UUID], name: str, label: str, words: list[str]
) -> None:
    """A word beside the icon, why, since when, what comes next, and the last failure."""
    html = owner.get(path_of("ep", troubled[name])).text
    summary = html.partition('id="summary"')[2].partition('class="detail"')[0]

    assert re.search(rf"</svg>{label}</span>", summary)
    for part in words:
        assert part in text(summary)
    linked = re.search(r"/deliveries/dlv_[0-9a-z]{26}", summary)
    assert (linked is not None) is (name != "limited")
    if linked:
        assert owner.get(linked[0]).status_code == 200


def test_the_list_and_the_overview_show_the_same_states(
    owner: FlaskClient, troubled: dict[str, UUID]
) -> None:
    """Each row with its word and reason; the overview counts those that need a person."""
    rows = owner.get("/endpoints").text
    front = text(owner.get("/").text)

    for _, label, _ in STATES:
        assert f"</svg>{label}</span>" in rows
    shown = text(rows)
    assert "The last 41 attempts failed, the first 3 h ago; the last: No connection." in shown
    assert "Next try in 1 min." in shown
    assert "Will be disabled in 47 h." in shown
    assert "Disabled 2 h ago: every attempt failed for 5 days" in shown
    for count in ("1 disabled", "2 broken", "1 throttled"):
        assert count in front
    assert "paused" not in front.partition("Needs attention")[2].partition("Workers")[0]


@pytest.mark.parametrize(("row", "action"), [("dead", "replay"), ("scheduled", "retry")])
def test_what_a_paused_endpoint_holds_says_so(
    owner: FlaskClient, connection: psycopg.Connection, row: str, action: str
) -> None:
    """The flash and the page; a disabled endpoint refuses with its reason (W159)."""
    delivery = path_of("dlv", seed.platform(connection)[row])
    connection.execute("UPDATE webhooks.endpoints SET status = 'disabled', status_reason = 'moved'")
    before = statuses(connection)
    post(owner, f"{delivery}/{action}")
    assert "Nothing was changed: its endpoint is disabled (moved)" in owner.get(delivery).text
    assert statuses(connection) == before
    connection.execute("UPDATE webhooks.endpoints SET status = 'paused', status_reason = 'x'")

    post(owner, f"{delivery}/{action}")

    html = owner.get(delivery).text
    assert "Held: the endpoint is paused." in html
    assert "held: its endpoint is paused (x)" in html


def test_a_policy_that_cannot_be_read_breaks_no_page(
    owner: FlaskClient, connection: psycopg.Connection
) -> None:
    """The installation's is shown, as it is what the engine follows."""
    rows = seed.platform(connection)
    connection.execute('UPDATE webhooks.endpoints SET retry_policy = \'{"attempts": "many"}\'')
    endpoint = path_of("ep", rows["bolt"])

    for path in ("/deliveries", path_of("dlv", rows["scheduled"]), endpoint, f"{endpoint}/edit"):
        assert owner.get(path).status_code == 200
    assert "10 attempts over about 2.6 days" in owner.get(endpoint).text


def test_tries_are_counted_against_the_tenants_policy(
    owner: FlaskClient, connection: psycopg.Connection
) -> None:
    """In lists and on the delivery's page, where the endpoint has none of its own."""
    rows = seed.platform(connection)
    connection.execute("UPDATE webhooks.tenants SET retry_policy = '{\"attempts\": 77}'")

    assert "after 3 of 77 tries" in owner.get(path_of("dlv", rows["scheduled"])).text
    assert '3<span class="muted">/77</span>' in owner.get("/deliveries?state=scheduled").text
