"""The whole walk in Chromium, with the product as real processes and a receiver that breaks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PASSWORD, USER, sign_in
from tests.recorder import Recorder, verify
from tests.stack import Stack, eventually

pytestmark = [pytest.mark.browser, pytest.mark.acceptance]

ENV = {"WEBHOOKS_RETRY_BASE_S": "1", "WEBHOOKS_RETRY_FACTOR": "1", "WEBHOOKS_RETRY_ATTEMPTS": "2"}


@pytest.fixture
def stack(database_url: str, account: tuple[str, str]) -> Iterator[Stack]:
    """Web and worker processes; two tries a second apart."""
    with Stack(database_url, ENV) as running:
        running.start_web()
        running.start_worker()
        yield running


@pytest.mark.parametrize("scripts", [True, False], ids=["with JavaScript", "without JavaScript"])
def test_register_send_break_retry_replay(
    stack: Stack, new_page: Callable[..., Page], scripts: bool
) -> None:
    """Sign in, register, send, see it delivered, break it, see the retry, replay what died."""
    page = new_page(java_script_enabled=scripts)
    broken: list[bool] = []
    with Recorder(lambda nth, _: 500 if broken else 200) as receiver:
        sign_in(page, stack.base_url, USER, PASSWORD)
        secret = register(page, receiver.url)

        send(page, "invoice.paid", '{"amount": 12.50}')
        expect_state(page, "Delivered")
        assert receiver.requests[0].body == b'{"amount": 12.50}'
        assert verify(secret, receiver.requests[0])

        broken.append(True)
        send(page, "invoice.void", "{}")
        expect_state(page, "Scheduled")
        expect_state(page, "Dead-lettered")

        broken.clear()
        page.get_by_role("button", name="Replay").click()
        expect_state(page, "Delivered")
        eventually(lambda: len(receiver.requests) == 4)

    assert [r.body for r in receiver.requests[1:]] == [b"{}"] * 3
    assert len({r.id for r in receiver.requests[1:]}) == 1
    expect(page.get_by_role("heading", name="Attempt 3")).to_be_visible()


def register(page: Page, url: str) -> str:
    """Register an endpoint by the form; the secret that the page shows once."""
    page.get_by_role("link", name="Endpoints").first.click()
    page.get_by_role("link", name="Register an endpoint").first.click()
    page.get_by_label("URL").fill(url)
    page.get_by_label("Event types").fill("invoice.*")
    page.get_by_role("button", name="Register").click()
    found = re.search(r"whsec_[A-Za-z0-9+/=]+", page.content())
    assert found is not None
    assert found[0] not in page.url
    return found[0]


def send(page: Page, event_type: str, payload: str) -> None:
    """Send an event by the form and open its only delivery."""
    page.get_by_role("link", name="Send event").first.click()
    page.get_by_label("Event type").fill(event_type)
    page.get_by_label("Payload").fill(payload)
    page.get_by_role("button", name="Send", exact=True).click()
    page.locator("main a[href*='/deliveries/dlv_']").first.click()


def expect_state(page: Page, label: str) -> None:
    """The delivery's page comes to show the state; without JavaScript it is loaded again."""

    def shown() -> bool:
        if page.locator("section.summary .chip").inner_text() == label:
            return True
        page.reload()
        return False

    eventually(shown, 20, f"{label} is shown")
