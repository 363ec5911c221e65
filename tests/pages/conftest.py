"""A real broker, and a real browser that looks at it.

The browser is Debian's Chromium (`.ci/packages chromium`), driven by Playwright.  What a page logs
as an error, an exception that nobody caught and a dialog that nobody asked for fail the test in
which they happen, unless it says before that they are to come (`Visitor.expects`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    sync_playwright,
)

from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api
from support.http.http_streams import http_port

#: Debian's; Playwright's own browsers are not used.
CHROMIUM = Path("/usr/bin/chromium")

WIDE = (1280, 800)
NARROW = (390, 844)

#: How long a condition of a page is waited for on a busy machine, in milliseconds.
WAIT_MS = 60_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A running broker."""
    with BrokerProcess(tmp_path_factory.mktemp("data")) as process:
        yield process


@pytest.fixture(scope="module")
def base(broker: BrokerProcess) -> str:
    """The address of its page."""
    return f"http://127.0.0.1:{http_port(broker)}/"


@pytest.fixture
def api(broker: BrokerProcess) -> Iterator[Api]:
    """A connection to its HTTP API as who operates it."""
    connection = Api(broker.data_dir / "management.sock")
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser; of the module, since Playwright's loop would hinder the tests of others."""
    if not CHROMIUM.exists():
        assert not os.environ.get("LEVERET_TEST_EXPECT_CHROMIUM"), f"missing: {CHROMIUM}"
        pytest.skip("Chromium is missing; Debian has it: .ci/packages chromium")
    with sync_playwright() as playwright:
        # Root, which tests run as in containers, has no sandbox.
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


class Visitor:
    """Who looks at a broker's page, with all that the page complains of."""

    def __init__(self, browser: Browser, base: str) -> None:
        self.browser = browser
        self.base = base
        self.complaints: list[str] = []
        self._expected: list[re.Pattern[str]] = []

    def expects(self, pattern: str) -> None:
        """Take complaints that have this in them for what was to come."""
        self._expected.append(re.compile(pattern))

    def open(
        self, size: tuple[int, int] = WIDE, user: str | None = "guest", **options: object
    ) -> Page:
        """Return an empty page of a new session, logged in as a user with the password `guest`."""
        context = self.browser.new_context(
            base_url=self.base,
            viewport={"width": size[0], "height": size[1]},
            reduced_motion="reduce",
            **options,
        )
        context.set_default_timeout(WAIT_MS)
        if user is not None:
            self.log_in(context, user)
        page = context.new_page()
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))
        page.on("dialog", self._asked)
        return page

    def log_in(self, context: BrowserContext, user: str) -> None:
        """Log a session in as its page would, with the password `guest`."""
        answer = context.request.post(
            "api/login",
            form={"username": user, "password": "guest"},
            headers={"X-Requested-With": "leveret"},
        )
        assert answer.ok, answer.text()

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(f"console: {message.text} ({message.location.get('url')})")

    def _asked(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def unexpected(self) -> list[str]:
        """Return what it complained of and was not expected."""
        return [
            one for one in self.complaints if not any(known.search(one) for known in self._expected)
        ]


@pytest.fixture
def visitor(browser: Browser, base: str) -> Iterator[Visitor]:
    """Somebody who looks at the page of the broker."""
    found = Visitor(browser, base)
    yield found
    for context in browser.contexts:
        context.close()
    assert found.unexpected() == []


@pytest.fixture
def page(visitor: Visitor) -> Page:
    """An empty page of the usual width, logged in as guest."""
    return visitor.open()


@pytest.fixture
def narrow_page(visitor: Visitor) -> Page:
    """An empty page of a phone's width, logged in as guest."""
    return visitor.open(NARROW)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much load there was while the page was looked at, and how long it stood still."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        found = dict(report.user_properties)
        if "published_per_second" in found:
            name = report.nodeid.rpartition("::")[2]
            terminalreporter.write_line(
                f"{name}: {found['queues']:,} queues and {found['published_per_second']:,} "
                f"messages a second, of {found['asked_per_second']:,} that were asked for; "
                f"{found['updates']} updates, at most {found['longest_gap_seconds']} s apart"
            )
