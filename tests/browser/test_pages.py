"""Every page in both themes: no violation of the policy, of accessibility, or of 320 pixels."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import psycopg
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.browser import seed
from tests.browser.conftest import Watched, sign_in
from tests.pages import path_of

pytestmark = pytest.mark.browser

OPTIONS = {
    "resultTypes": ["violations"],
    "runOnly": {
        "type": "tag",
        "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    },
}
# Links inside a sentence or a table's cell may be as high as their text (WCAG 2.5.8).
SMALL_TARGETS = """
() => [...document.querySelectorAll("button, summary, select, input, textarea, nav a, a.button")]
  .filter(e => e.checkVisibility() && e.type !== "hidden")
  .filter(e => { const b = e.getBoundingClientRect(); return b.width < 24 || b.height < 24; })
  .map(e => e.outerHTML.slice(0, 120))
"""
# So that what belongs to a choice is there too.
CHOOSE_LAST = """
() => document.querySelectorAll("[value=exponential], [value=since]").forEach(e => e.click())
"""
WIDE = """
() => document.documentElement.scrollWidth <= innerWidth ? [] :
  [...document.querySelectorAll("body *")]
    .filter(e => e.getBoundingClientRect().right > innerWidth + 1)
    .map(e => e.outerHTML.slice(0, 120)).slice(0, 3)
"""


def everything(connection: psycopg.Connection) -> dict[str, UUID]:
    """Rows in every state."""
    return seed.platform(connection) | seed.troubled(connection)


def addresses(rows: dict[str, UUID]) -> list[str]:
    """Every kind of page, filled; with errors; and some that are empty."""
    dead, scheduled = path_of("dlv", rows["dead"]), path_of("dlv", rows["scheduled"])
    bolt, crm = path_of("ep", rows["bolt"]), path_of("ep", rows["crm"])
    event = path_of("evt", rows["event"])
    return [
        "/", "/deliveries", f"/deliveries?state=cancelled&endpoint={crm.rpartition('/')[2]}",
        dead, scheduled, "/endpoints", bolt, f"{bolt}/edit", f"{crm}/delete", "/endpoints/new",
        "/send", event, f"{event}?view=raw", f"{crm}/resume", f"{bolt}/secrets/new",
        *(path_of("ep", rows[name]) for name in ("warned", "given-up")),
    ]  # fmt: skip


def examine(page: Page) -> list[str]:
    """What axe finds, as rule and node."""
    found = Axe().run(page, options=OPTIONS).response["violations"]
    return [
        f"{page.url} {rule['id']}: {node['html'][:200]}" for rule in found for node in rule["nodes"]
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_is_accessible_and_keeps_the_policy(
    new_page: Callable[..., Page],
    watched: Watched,
    base_url: str,
    account: tuple[str, str],
    connection: psycopg.Connection,
    theme: str,
) -> None:
    """No console message, no axe violation, no target under 24 pixels."""
    page = new_page(color_scheme=theme, reduced_motion="reduce")
    page.goto(f"{base_url}/sign-in")
    found = examine(page)
    sign_in(page, base_url)
    for empty in ("/", "/deliveries", "/endpoints"):
        page.goto(base_url + empty)
        found += examine(page) if theme == "light" else []
    rows = everything(connection)
    for path in addresses(rows):
        page.goto(base_url + path)
        page.evaluate("() => document.querySelectorAll('main details').forEach(d => d.open = true)")
        page.evaluate(CHOOSE_LAST)
        found += examine(page) + page.evaluate(SMALL_TARGETS)
    page.locator("#account summary").click()
    found += examine(page)

    assert found == []
    assert watched.troubles == []


def test_forms_with_errors_and_error_pages_are_accessible(
    new_page: Callable[..., Page], base_url: str, account: tuple[str, str]
) -> None:
    """What is wrong is tied to its field; error pages are pages."""
    page = new_page()
    sign_in(page, base_url)
    page.goto(f"{base_url}/nowhere")
    found = examine(page)
    page.goto(f"{base_url}/send")
    page.get_by_label("Payload").fill("{")
    page.get_by_role("button", name="Send").click()
    found += examine(page)
    page.goto(f"{base_url}/endpoints/new")
    page.get_by_label("URL").fill("http://127.0.0.1:9000/")
    page.get_by_text("Retries", exact=True).click()
    page.get_by_label("Waits of your own").check()
    page.get_by_label("Waits", exact=True).fill("soon")
    page.get_by_role("button", name="Register").click()
    found += examine(page)
    page.get_by_label("Waits", exact=True).fill("1m")
    page.get_by_role("button", name="Register").click()
    found += examine(page)

    assert found == []


def test_nothing_scrolls_sideways_on_a_small_screen(
    new_page: Callable[..., Page],
    base_url: str,
    account: tuple[str, str],
    connection: psycopg.Connection,
) -> None:
    """320 pixels are enough for every page (WCAG 1.4.10), and 1024 and 800 too."""
    page = new_page(viewport={"width": 320, "height": 640})
    sign_in(page, base_url)
    rows = everything(connection)
    found = []
    for path in addresses(rows):
        page.goto(base_url + path)
        page.evaluate("() => document.querySelectorAll('main details').forEach(d => d.open = true)")
        page.evaluate(CHOOSE_LAST)
        for width in (320, 800, 1024):
            page.set_viewport_size({"width": width, "height": 640})
            found += [f"{path} at {width}: {node}" for node in page.evaluate(WIDE)]

    assert found == []


def test_forced_colours_leave_every_state_readable(
    new_page: Callable[..., Page],
    base_url: str,
    account: tuple[str, str],
    connection: psycopg.Connection,
) -> None:
    """States are told by icon and word, so a palette of one colour loses nothing."""
    everything(connection)
    page = new_page(forced_colors="active")
    sign_in(page, base_url)
    page.goto(f"{base_url}/endpoints")
    chips = page.locator("tbody .chip")
    for state in ("Active", "Failing", "Rate limited", "Throttled", "Broken", "Paused", "Disabled"):
        assert chips.filter(has_text=state).first.locator("svg").is_visible()
    page.goto(f"{base_url}/deliveries")

    chips = page.locator("tbody .chip")
    for state in ("Pending", "In flight", "Scheduled", "Delivered", "Dead-lettered", "Cancelled"):
        assert chips.filter(has_text=state).first.locator("svg").is_visible()


def test_hostile_text_runs_nothing(
    page: Page, base_url: str, account: tuple[str, str], connection: psycopg.Connection
) -> None:
    """No dialog, no script, no policy report from what receivers and tenants wrote (W162)."""
    hostile = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
    seed.partitions(connection)
    endpoint = seed.add_endpoint(connection, f"https://a.example/{hostile}", description=hostile)
    event_id = seed.add_event(connection, hostile, f'{{"</script>": "{hostile[2:]}"}}'.encode())
    delivery_id = seed.add_delivery(
        connection, endpoint, event_id, "dead_lettered", type=hostile, reason=hostile
    )
    seed.add_attempt(
        connection, delivery_id, 1, detail=hostile, body=hostile.encode(),
        response=[["content-type", "text/html"], [hostile, hostile]],
    )  # fmt: skip
    sign_in(page, base_url)

    for path in ("/", "/deliveries", "/endpoints", path_of("ep", endpoint),
                 path_of("dlv", delivery_id), path_of("evt", event_id)):  # fmt: skip
        page.goto(base_url + path)
        assert page.locator("img").count() == 0
