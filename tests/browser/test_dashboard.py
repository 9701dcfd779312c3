"""The dashboard in Chromium: its forms, its polling, and the same path without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Callable

import psycopg
import pytest
from playwright.sync_api import Page, expect

from tests.browser import seed
from tests.browser.conftest import PASSWORD, USER, Watched, sign_in
from tests.pages import path_of

pytestmark = pytest.mark.browser

URL = "http://127.0.0.1:9000/hooks"

Account = tuple[str, str]


def status(connection: psycopg.Connection, row_id: object) -> str:
    row = connection.execute(
        "SELECT status FROM webhooks.deliveries WHERE id = %s", [row_id]
    ).fetchone()
    assert row is not None
    return str(row[0])


def register(page: Page, base_url: str, **more: str) -> None:
    page.goto(f"{base_url}/endpoints/new")
    page.get_by_label("URL").fill(URL)
    for label, value in more.items():
        page.get_by_label(label).fill(value)
    page.get_by_role("button", name="Register").click()


# ---- forms


def test_signing_in_and_out(new_page: Callable[..., Page], base_url: str, account: Account) -> None:
    """A wrong password says so and keeps the name; the right one goes where one wanted to."""
    page = new_page()
    page.goto(f"{base_url}/endpoints")
    page.get_by_label("Username").fill(USER)
    page.get_by_label("Password").fill("wrong password")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("do not match")
    expect(page.get_by_label("Username")).to_have_value(USER)
    expect(page.get_by_label("Password")).to_be_focused()

    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{base_url}/endpoints")

    page.locator("#account summary").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(f"{base_url}/sign-in")
    page.goto(base_url)
    expect(page).to_have_url(re.compile("/sign-in"))


def test_an_endpoint_from_registration_to_deletion(
    page: Page, base_url: str, account: Account
) -> None:
    """Register, see the secret once, edit, pause, resume, delete."""
    sign_in(page, base_url)
    page.get_by_role("link", name="Register an endpoint").click()
    page.get_by_label("URL").fill("gopher://example.com")
    page.get_by_label("Description").fill("Mine")
    page.get_by_role("button", name="Register").click()
    expect(page.locator("#url-error")).to_be_visible()
    expect(page.get_by_label("Description")).to_have_value("Mine")

    page.get_by_label("URL").fill(URL)
    page.get_by_role("button", name="Register").click()
    expect(page.locator("#secret")).to_contain_text(re.compile(r"^whsec_\S{32,}$"))
    secret = page.locator("#secret").inner_text()
    page.reload()  # goes to the endpoint, does not send the form again
    expect(page.get_by_role("heading", name="Settings")).to_be_visible()
    assert secret not in page.content()

    page.get_by_role("link", name="Edit").click()
    page.get_by_label("Event types").fill("invoice.*")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator("#summary")).to_contain_text(f"Paused by {USER}")
    page.get_by_role("link", name="Resume…").click()
    expect(page.get_by_label("All of it")).to_be_checked()
    page.get_by_role("button", name="Resume", exact=True).click()
    expect(page.locator("#summary")).to_contain_text("Taking deliveries")

    page.get_by_role("link", name="Delete").click()
    expect(page.get_by_text("Nothing waits for it.")).to_be_visible()
    page.get_by_role("button", name="Delete this endpoint").click()
    expect(page.get_by_text("No endpoints yet")).to_be_visible()


def test_an_event_from_the_form_to_its_delivery(
    page: Page, base_url: str, account: Account
) -> None:
    """An error keeps what was typed; then the event's page leads to the delivery."""
    sign_in(page, base_url)
    register(page, base_url)
    page.get_by_role("link", name="Send event").click()
    example = page.get_by_label("Payload").input_value()
    page.get_by_label("Payload").fill(example[:-1])
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#payload-error")).to_contain_text("not JSON", ignore_case=True)
    expect(page.get_by_label("Payload")).to_have_value(example[:-1])

    page.get_by_label("Payload").fill(example)
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("Accepted. 1 endpoint gets it.")).to_be_visible()
    page.get_by_role("link", name="As sent").click()
    assert page.locator("#payload-text").text_content() == example
    page.get_by_role("row").get_by_role("link", name="invoice.paid").click()
    expect(page.locator("#summary")).to_contain_text("Pending")
    expect(page.get_by_text("No attempt yet.")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#summary")).to_contain_text(f"cancelled by {USER}")
    page.get_by_role("button", name="Replay").click()
    expect(page.locator("#summary")).to_contain_text("waiting for a worker")


def test_the_main_path_without_javascript(
    new_page: Callable[..., Page],
    watched: Watched,
    base_url: str,
    account: Account,
    connection: psycopg.Connection,
) -> None:
    """Sign in, register, send, look, filter, page, retry, replay, change colours, sign out."""
    rows = seed.platform(connection)
    page = new_page(java_script_enabled=False)
    sign_in(page, base_url)
    register(page, base_url)
    expect(page.locator("#secret")).to_contain_text("whsec_")
    page.get_by_role("link", name="Send an event").click()
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text(re.compile("Accepted.*endpoints get it"))).to_be_visible()

    page.get_by_role("link", name="Deliveries").first.click()
    page.get_by_role("link", name="Older").click()
    page.get_by_role("link", name="Newer").click()
    page.get_by_label("State").select_option("Dead-lettered")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("tbody tr")).to_have_count(8)
    page.goto(base_url + path_of("dlv", rows["dead"]))
    page.locator("#a9-request summary").click()
    expect(page.locator("#a9-request")).to_contain_text("webhook-signature")
    page.get_by_role("button", name="Replay").click()
    assert status(connection, rows["dead"]) == "pending"
    page.goto(base_url + path_of("dlv", rows["scheduled"]))
    page.get_by_role("button", name="Retry now").click()
    assert status(connection, rows["scheduled"]) == "pending"

    page.locator("#account summary").click()
    page.get_by_role("button", name="Dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.locator("#account summary").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(f"{base_url}/sign-in")
    assert watched.troubles == []


@pytest.mark.parametrize("scripts", [True, False], ids=["with JavaScript", "without JavaScript"])
def test_the_retry_ladder_is_seen_before_it_is_saved(
    new_page: Callable[..., Page],
    watched: Watched,
    base_url: str,
    account: Account,
    connection: psycopg.Connection,
    scripts: bool,
) -> None:
    """As one types, or by the button without scripts; what is wrong is said there too."""
    page = new_page(java_script_enabled=scripts)
    sign_in(page, base_url)
    page.goto(f"{base_url}/endpoints/new")
    page.get_by_label("URL").fill(URL)
    page.get_by_text("Retries", exact=True).click()
    preview = page.get_by_role("status", name="Preview of the retries")
    button = page.get_by_role("button", name="Preview retries")

    def show() -> None:
        if not scripts:
            button.click()

    expect(preview).to_contain_text("10 attempts over about 2.6 days")
    expect(button).to_be_visible(visible=not scripts)
    expect(page.get_by_label("Waits", exact=True)).not_to_be_visible()
    page.get_by_label("Growing waits").check()
    page.get_by_label("Attempts", exact=True).fill("3")
    show()
    expect(preview).to_contain_text("After 10 s, 40 s: 3 attempts over about 50 seconds.")
    page.get_by_label("Waits of your own").check()
    page.get_by_label("Waits", exact=True).fill("5s, soon")
    show()
    expect(preview).to_contain_text("'soon' is not a wait")
    page.get_by_label("Waits", exact=True).fill("5s, 1m")
    show()
    expect(preview).to_contain_text("After 5 s, 1 min: 3 attempts")
    preview.get_by_text("Each attempt").click()
    expect(preview.get_by_role("row").last).to_contain_text("1 min 5 s")

    # Enter in a field saves: the first button of the form is not the preview's.
    page.get_by_label("Waits", exact=True).press("Enter")

    expect(page.locator("#secret")).to_contain_text("whsec_")
    row = connection.execute("SELECT retry_policy FROM webhooks.endpoints").fetchone()
    assert row == ({"delays_s": [5, 60]},)
    assert watched.troubles == []


@pytest.mark.parametrize("scripts", [True, False], ids=["with JavaScript", "without JavaScript"])
def test_what_was_held_is_released_as_chosen(
    new_page: Callable[..., Page],
    watched: Watched,
    base_url: str,
    account: Account,
    connection: psycopg.Connection,
    scripts: bool,
) -> None:
    """A wrong time keeps the choice; none cancels what was held, and says how many."""
    rows = seed.platform(connection)
    page = new_page(java_script_enabled=scripts)
    sign_in(page, base_url)
    page.goto(base_url + path_of("ep", rows["crm"]))
    page.get_by_role("link", name="Resume…").click()
    expect(page.get_by_text("7 deliveries are waiting for it.")).to_be_visible()
    expect(page.get_by_label("Since, in UTC")).not_to_be_visible()
    page.get_by_label("What was made since a time").check()
    page.get_by_label("Since, in UTC").fill("2999-01-01T00:00")
    page.get_by_role("button", name="Resume", exact=True).click()
    expect(page.locator("#since-error")).to_contain_text("it lies ahead", ignore_case=True)
    expect(page.get_by_label("What was made since a time")).to_be_checked()

    page.get_by_label("Nothing").check()
    page.get_by_role("button", name="Resume", exact=True).click()

    expect(page.get_by_text("7 deliveries that were held are cancelled.")).to_be_visible()
    assert status(connection, rows["held"]) == "cancelled"
    assert watched.troubles == []


# ---- small helps


def test_copy_buttons_copy_the_whole_value(
    new_page: Callable[..., Page],
    base_url: str,
    account: Account,
    connection: psycopg.Connection,
) -> None:
    """The id on the page is shortened; the clipboard gets all of it, and it is announced."""
    rows = seed.platform(connection)
    page = new_page(permissions=["clipboard-read", "clipboard-write"])
    sign_in(page, base_url)
    page.goto(f"{base_url}/deliveries?state=cancelled")

    page.get_by_role("button", name="Copy delivery id").first.click()

    expect(page.locator("#announcer")).to_have_text("Copied")
    wanted = path_of("dlv", rows["cancelled"]).rpartition("/")[2]
    assert page.evaluate("navigator.clipboard.readText()") == wanted


def test_the_menu_closes_by_escape_and_gives_focus_back(
    page: Page, base_url: str, account: Account
) -> None:
    """Open by keyboard, Escape, and one is where one was."""
    sign_in(page, base_url)
    summary = page.locator("#account summary")
    summary.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")

    expect(page.get_by_role("button", name="Sign out")).not_to_be_visible()
    expect(summary).to_be_focused()


def test_the_first_stop_of_the_keyboard_skips_the_menu(
    page: Page, base_url: str, account: Account
) -> None:
    """Tab, Enter: focus is in the content, and the ring is seen on the way."""
    sign_in(page, base_url)
    page.goto(f"{base_url}/send")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    assert "2px" in skip.evaluate("e => getComputedStyle(e).outlineWidth")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")

    expect(page.get_by_label("Event type")).to_be_focused()
