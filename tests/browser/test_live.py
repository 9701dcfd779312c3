"""Quiet polling: what changes, what waits, and what is said when it cannot go on."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import psycopg
import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser import seed
from tests.browser.conftest import sign_in
from tests.pages import path_of

pytestmark = pytest.mark.browser

POLL_MS = 5_100


@pytest.fixture
def rows(connection: psycopg.Connection) -> dict[str, UUID]:
    return seed.platform(connection)


@pytest.fixture
def live(
    new_page: Callable[..., Page], base_url: str, account: tuple[str, str], rows: dict[str, UUID]
) -> Page:
    """A page that is signed in, whose clock the test turns."""
    page = new_page()
    sign_in(page, base_url)
    page.clock.install()
    return page


def polls(page: Page) -> list[int]:
    """The statuses of this page's polls, as they come in."""
    seen: list[int] = []
    page.on(
        "response",
        lambda answer: seen.append(answer.status) if "x-poll" in answer.request.headers else None,
    )
    return seen


def poll(page: Page) -> int:
    """Let the next poll happen; its status."""
    with page.expect_response(lambda answer: "x-poll" in answer.request.headers) as waiting:
        page.clock.run_for(POLL_MS)
    return waiting.value.status


def test_counts_follow_and_unchanged_pages_cost_a_304(
    live: Page, base_url: str, rows: dict[str, UUID], connection: psycopg.Connection
) -> None:
    """Nothing changed: 304. Something did: the number on the page is the new one."""
    live.goto(base_url)
    number = live.locator("#counts [data-state=delivered] .stat-number")
    before = int(number.inner_text())
    assert poll(live) == 304

    seed.delivered(connection, rows["acme"], rows["event"], "invoice.paid", 0)

    assert poll(live) == 200
    expect(number).to_have_text(str(before + 1))
    assert poll(live) == 304


def test_times_count_by_themselves(live: Page, base_url: str, rows: dict[str, UUID]) -> None:
    """A countdown goes down each second without asking the server."""
    live.goto(base_url + path_of("dlv", rows["scheduled"]))
    countdown = live.locator("#summary time").first
    expect(countdown).to_have_text("in 2 min")

    live.clock.run_for(61_000)

    expect(countdown).to_have_text("in 1 min")


def test_focus_is_kept_and_what_is_used_does_not_move(
    live: Page, base_url: str, rows: dict[str, UUID], connection: psycopg.Connection
) -> None:
    """While focus is inside a region it waits; it follows once focus has left."""
    live.goto(base_url)
    card = live.locator("#counts [data-state=delivered]")
    card.focus()
    before = card.inner_text()
    seed.delivered(connection, rows["acme"], rows["event"], "invoice.paid", 0)

    assert poll(live) == 200

    expect(card).to_be_focused()
    assert card.inner_text() == before
    expect(live.locator("#freshness")).to_have_attribute("data-state", "held")
    live.locator("#poll-toggle").focus()
    live.clock.run_for(10)
    expect(card).not_to_have_text(before)
    expect(live.locator("#freshness")).to_have_attribute("data-state", "fresh")


def test_a_selection_is_not_taken_away(
    live: Page, base_url: str, rows: dict[str, UUID], connection: psycopg.Connection
) -> None:
    """Text that is being marked stays until the marking is given up."""
    live.goto(base_url)
    live.locator("#latest caption").evaluate(
        "e => getSelection().selectAllChildren(e.closest('table'))"
    )
    seed.delivered(connection, rows["acme"], rows["event"], "brand.new", 0)

    assert poll(live) == 200

    expect(live.locator("#latest")).not_to_contain_text("brand.new")
    live.evaluate("getSelection().removeAllRanges()")
    live.clock.run_for(10)
    expect(live.locator("#latest")).to_contain_text("brand.new")


def test_open_details_stay_open(
    live: Page, base_url: str, rows: dict[str, UUID], connection: psycopg.Connection
) -> None:
    """A new attempt does not close what one reads, nor open what one closed."""
    live.goto(base_url + path_of("dlv", rows["scheduled"]))
    live.locator("#a2-request summary").click()
    live.locator("#a3-response summary").click()
    live.locator("#poll-toggle").focus()
    seed.add_attempt(connection, rows["scheduled"], 4, ago_s=0)

    assert poll(live) == 200

    expect(live.get_by_role("heading", name="Attempt 4")).to_be_visible()
    expect(live.locator("#a2-request")).to_have_attribute("open", "")
    expect(live.locator("#a3-response")).not_to_have_attribute("open", "")


def test_rows_keep_their_place_and_new_ones_wait_behind_a_button(
    live: Page, base_url: str, rows: dict[str, UUID], connection: psycopg.Connection
) -> None:
    """A row that changed changes where it stands; new rows come when one asks for them."""
    live.goto(f"{base_url}/deliveries")
    order = live.locator("tbody tr").evaluate_all("rows => rows.map(row => row.id)")
    pending = live.locator(f"#row-{path_of('dlv', rows['pending']).rpartition('/')[2]}")
    expect(pending).to_contain_text("Pending")
    connection.execute(
        "UPDATE webhooks.deliveries SET status = 'delivered', finished_at = now(), attempts = 1, "
        "status_code = 200 WHERE id = %s",
        [rows["pending"]],
    )
    for _ in range(3):
        seed.add_delivery(connection, rows["acme"], rows["event"], "pending")

    assert poll(live) == 200

    expect(pending).to_contain_text("Delivered")
    assert live.locator("tbody tr").evaluate_all("rows => rows.map(row => row.id)") == order
    live.get_by_role("button", name="Show 3 new").click()
    expect(live.locator("tbody tr").first).not_to_have_id(order[0])
    expect(live.get_by_role("button", name="Show 3 new")).to_have_count(0)


def test_updates_can_be_paused(live: Page, base_url: str) -> None:
    """No request while paused; one at once when resumed (WCAG 2.2.2)."""
    live.goto(base_url)
    seen = polls(live)
    live.get_by_role("button", name="Pause updates").click()
    live.clock.run_for(30_000)
    assert seen == []
    expect(live.locator("#freshness")).to_contain_text("paused at")

    with live.expect_response(lambda answer: "x-poll" in answer.request.headers):
        live.get_by_role("button", name="Resume updates").click()

    expect(live.locator("#freshness")).to_contain_text("as of")


def test_a_hidden_tab_asks_for_nothing(live: Page, base_url: str) -> None:
    """Fifty forgotten tabs load nothing; one that comes back is fresh at once."""
    live.goto(base_url)
    seen = polls(live)
    hide = (
        "value => { Object.defineProperty(document, 'hidden', {value, configurable: true});"
        " document.dispatchEvent(new Event('visibilitychange')); }"
    )
    live.evaluate(hide, True)
    live.clock.run_for(30_000)
    assert seen == []

    with live.expect_response(lambda answer: "x-poll" in answer.request.headers):
        live.evaluate(hide, False)


def test_a_server_that_is_away_is_said_and_forgiven(live: Page, base_url: str) -> None:
    """The page stays, says that it is old, and goes on when the server is back."""
    live.goto(base_url)

    def refuse(route: Route) -> None:
        route.abort() if "x-poll" in route.request.headers else route.continue_()

    live.route("**/*", refuse)
    for _ in range(4):
        with live.expect_event("requestfailed"):
            live.clock.run_for(POLL_MS)
    live.clock.run_for(1_000)
    expect(live.locator("#stale")).to_contain_text("The server does not answer")
    expect(live.locator("#counts")).to_be_visible()

    live.unroute("**/*")
    assert poll(live) == 304
    live.clock.run_for(1_000)
    expect(live.locator("#stale")).to_be_hidden()


def test_a_session_that_ended_is_said(
    live: Page, base_url: str, connection: psycopg.Connection
) -> None:
    """The page does not turn into a sign-in form under one's hands, and stops asking."""
    live.goto(base_url)
    connection.execute("DELETE FROM webhooks.sessions")

    assert poll(live) == 401

    expect(live.locator("#stale")).to_contain_text("You are signed out")
    seen = polls(live)
    live.clock.run_for(30_000)
    assert seen == []
