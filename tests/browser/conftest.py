"""The real application on a thread, and Chromium to look at it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright
from werkzeug.serving import WSGIRequestHandler, make_server

from tests.support import require
from webhooks import users

CHROMIUM = Path("/usr/bin/chromium")
USER, PASSWORD = "ana", "correct horse battery"
WAIT_MS = 8000


@dataclass
class Watched:
    """What a page complained about: console errors, exceptions, policy violations."""

    troubles: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("dialog", lambda dialog: self._dialog(dialog))

    def _console(self, message: ConsoleMessage) -> None:
        # A form that comes back with its errors is one to Chromium too.
        refused = re.search(r"responded with a status of (409|422) ", message.text)
        if message.type in ("error", "warning") and not refused:
            self.troubles.append(message.text)

    def _dialog(self, dialog: Any) -> None:
        self.troubles.append(f"dialog: {dialog.message}")
        dialog.dismiss()


class _Silent(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        """Nothing: a test that fails says enough."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests."""
    require(CHROMIUM.exists(), "Chromium", "apt-get install chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def base_url(app: Flask) -> Iterator[str]:
    """The address of the application, served on a thread until the test ends."""
    with _serving(app) as url:
        yield url


@pytest.fixture
def watched() -> Watched:
    """Collects what pages complain about; a test of its own or ``page`` checks it."""
    return Watched()


@pytest.fixture
def new_page(browser: Browser, watched: Watched) -> Iterator[Callable[..., Page]]:
    """Opens pages, each in a context of its own: ``new_page(java_script_enabled=False)``."""
    contexts: list[BrowserContext] = []

    def make(**options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}} | options)
        context.set_default_timeout(WAIT_MS)
        contexts.append(context)
        page = context.new_page()
        watched.watch(page)
        return page

    yield make
    for context in contexts:
        context.close()


@pytest.fixture
def page(new_page: Callable[..., Page], watched: Watched) -> Iterator[Page]:
    """A page in a fresh context; the test fails when its console shows an error."""
    yield new_page()
    assert watched.troubles == []


@pytest.fixture
def account(app: Flask) -> tuple[str, str]:
    """An owner's username and password."""
    with app.app_context():
        users.create(USER, PASSWORD)
    return USER, PASSWORD


def sign_in(page: Page, base_url: str, user: str = USER, password: str = PASSWORD) -> None:
    """Sign in by the form; ends on the overview."""
    page.goto(f"{base_url}/sign-in")
    page.get_by_label("Username").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{base_url}/")


class _serving:
    """A server on a free port of the loopback address, on a thread."""

    def __init__(self, app: Flask) -> None:
        self._server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Silent)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        return f"http://127.0.0.1:{self._server.server_port}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        with suppress(OSError):
            self._server.server_close()
