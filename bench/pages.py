"""What the broker's page takes: until it can be used, for a list of 100,000 queues, and of a load.

    .venv/bin/python bench/pages.py [--queues 100000] [--seconds 5] [--rounds 3] [--pages 10]
                                    [--watched 20]

The page is opened by Chromium on the same machine.  It is to be usable within half a second, also
with 100,000 queues, when a page of their list, the longest first, is to stand there within 200 ms.

The load (16 B, automatic acks) is to be at most 3 % slower with ten pages open on the overview.  A
browser with ten pages takes the processors that the load needs.  So what one of them asks for is
recorded, and a thread asks for ten times that, each page at another time, while the load lasts and
is measured in turns with it and without.  What ten real pages take from the broker without a load
is measured too.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import sides
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from support.brokers.broker_process import BrokerProcess
from support.http.http_streams import http_port

CHROMIUM: Final = "/usr/bin/chromium"

USABLE_MS_TARGET: Final = 500.0
LIST_MS_TARGET: Final = 200.0
SLOWER_TARGET: Final = 0.03

RATE: Final = ("-P", "1", "-C", "1", "-s", "16")

#: How often the page is opened, and how often a list is.
OPENED: Final = 7
LISTED: Final = 15

ANSWER_MS_MAX: Final = 60_000

#: Resolves once a text stands on the page, looked for before each frame; in ms since it was called.
_UNTIL: Final = """text => new Promise(resolve => {
  const began = performance.now();
  const look = () => document.querySelector("main")?.textContent.includes(text)
    ? resolve(performance.now() - began) : requestAnimationFrame(look);
  look();
})"""

#: Goes to another page of a list, and resolves once its first row is another one.
_NEXT: Final = """() => new Promise(resolve => {
  const row = () => document.querySelector("tbody tr")?.textContent;
  const before = row();
  const began = performance.now();
  document.querySelector("[aria-label='Next page']").click();
  const look = () => row() !== before
    ? resolve(performance.now() - began) : requestAnimationFrame(look);
  look();
})"""


@contextlib.contextmanager
def chromium(directory: Path) -> Iterator[Browser]:
    """Run a browser that leaves the processors to others."""
    idle = directory / "chromium"
    idle.write_text(f'#!/bin/sh\nexec nice -n 19 {CHROMIUM} "$@"\n')
    idle.chmod(0o755)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(idle), args=["--no-sandbox"])
        yield browser
        browser.close()


def session(browser: Browser, base: str) -> BrowserContext:
    """Return a session of guest."""
    context = browser.new_context(base_url=base, viewport={"width": 1280, "height": 800})
    context.set_default_timeout(ANSWER_MS_MAX)
    answer = context.request.post(
        "api/login",
        form={"username": "guest", "password": "guest"},
        headers={"X-Requested-With": "bench"},
    )
    assert answer.ok, answer.text()
    return context


def usable(context: BrowserContext) -> float:
    """Return how long an empty browser takes until the overview stands there, in ms."""
    page = context.new_page()
    page.goto("#/overview", wait_until="commit")
    page.evaluate(_UNTIL, "Message rates")
    taken = page.evaluate("performance.now()")
    page.close()
    return float(taken)


def listed(page: Page) -> list[float]:
    """Return how long further pages of the list of queues take, in ms."""
    page.goto("#/queues")
    page.wait_for_selector("tbody tr")
    return [float(page.evaluate(_NEXT)) for _ in range(LISTED)]


@contextlib.contextmanager
def opened(context: BrowserContext, count: int) -> Iterator[list[Page]]:
    """Open so many overviews, and close them in the end."""
    pages = [context.new_page() for _ in range(count)]
    for page in pages:
        page.goto("#/overview")
        page.evaluate(_UNTIL, "Message rates")
    yield pages
    for page in pages:
        page.close()


@dataclass(frozen=True)
class Asked:
    """What an open page asks for again and again."""

    #: When each request began (s), what it asked for, and the headers that it had.
    requests: list[tuple[float, str, dict[str, str]]]
    seconds: float


def recorded(context: BrowserContext, seconds: float) -> Asked:
    """Return what an overview asks for in so many seconds, once it stands there."""
    requests = list[tuple[float, str, dict[str, str]]]()
    with opened(context, 1) as (page,):
        began = time.monotonic()
        page.on(
            "request",
            lambda one: requests.append((time.monotonic() - began, one.url, one.all_headers())),
        )
        page.wait_for_timeout(seconds * 1000)
    return Asked(requests, seconds)


@contextlib.contextmanager
def asking(port: int, asked: Asked, pages: int) -> Iterator[None]:
    """Ask for what so many pages do, each at another time, until the end."""
    ended = threading.Event()
    turns = sorted(
        ((began + page * asked.seconds / pages) % asked.seconds, url, headers)
        for page in range(pages)
        for began, url, headers in asked.requests
    )

    def ask() -> None:
        http_client = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_MS_MAX / 1000)
        began = time.monotonic()
        while turns and not ended.is_set():
            for due, url, headers in turns:
                if ended.wait(max(0.0, began + due - time.monotonic())):
                    break
                http_client.request("GET", url, headers=headers)
                http_client.getresponse().read()
            began += asked.seconds
        http_client.close()

    with sides.thread(ask, ended):
        yield


def loads(
    side: sides.Side, port: int, asked: Asked, options: argparse.Namespace
) -> tuple[list[float], list[float]]:
    """Return with : without pages, of the rate and of the time for a byte, by rounds."""
    rates, times = list[float](), list[float]()
    with sides.lasting(side, RATE, "pages", sides.cores("all")[1]) as load:
        for number in range(options.rounds):
            found: dict[bool, tuple[float, float]] = {}
            # Who comes first changes, so that what drifts does not count for one of them.
            for watched in (False, True) if number % 2 == 0 else (True, False):
                with asking(port, asked, options.pages if watched else 0):
                    found[watched] = load.stretch(options.seconds)
            rates.append(found[True][0] / found[False][0])
            times.append(found[True][1] / found[False][1])
    return rates, times


def watched(side: sides.Side, context: BrowserContext, options: argparse.Namespace) -> float:
    """Return the share of a processor that the broker takes for pages alone, without a load."""
    with opened(context, options.pages) as pages:
        spent = sides.processor_seconds(side)
        began = time.monotonic()
        pages[0].wait_for_timeout(options.watched * 1000)
        return (sides.processor_seconds(side) - spent) / (time.monotonic() - began)


def main() -> int:
    """Measure, print, and return how many figures miss their targets."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--queues", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pages", type=int, default=10)
    parser.add_argument("--watched", type=float, default=20.0)
    options = parser.parse_args()
    sides.build_generator()
    with (
        tempfile.TemporaryDirectory(prefix="bench-pages-") as directory,
        BrokerProcess(Path(directory) / "data") as broker,
        chromium(Path(directory)) as browser,
    ):
        base = f"http://127.0.0.1:{http_port(broker)}/"
        # The first takes what the broker prepares once.
        usable_ms = [usable(session(browser, base)) for _ in range(OPENED)][1:]
        side = sides.Side("Leveret", broker.port, broker.pid, broker.data_dir / "management.sock")
        asked = recorded(session(browser, base), options.watched)
        rates, times = loads(side, http_port(broker), asked, options)
        share = watched(side, session(browser, base), options)
        sides.declare_queues(side, options.queues, "bench")
        many_ms = [usable(session(browser, base)) for _ in range(OPENED)][1:]
        list_ms = listed(session(browser, base).new_page())
    print(sides.version(sys.executable))
    print(" ".join(f"{name} {value}" for name, value in sides.machine().items()))
    for queues, found in ((0, usable_ms), (options.queues, many_ms)):
        print(
            f"with {queues:,} queues usable after {statistics.median(found):.0f} ms, "
            f"longest {max(found):.0f} (at most {USABLE_MS_TARGET:.0f})"
        )
    print(
        f"a page of the list of {options.queues:,} queues: {statistics.median(list_ms):.0f} ms, "
        f"longest {max(list_ms):.0f} (at most {LIST_MS_TARGET:.0f})"
    )
    asks = len(asked.requests) / asked.seconds
    print(f"an overview asks {asks:.1f} times a second")
    for name, ratios in (("rate", rates), ("the broker's time for a message", times)):
        rounds = " ".join(f"{one:.3f}" for one in ratios)
        print(f"with {options.pages} pages, {name}: {rounds}; {statistics.median(ratios):.3f}")
    print(f"{options.pages} pages alone take {share:.2%} of a processor from the broker")
    missed = [
        max(statistics.median(usable_ms), statistics.median(many_ms)) > USABLE_MS_TARGET,
        statistics.median(list_ms) > LIST_MS_TARGET,
        statistics.median(rates) < 1 - SLOWER_TARGET,
    ]
    return sum(missed)


if __name__ == "__main__":
    raise SystemExit(main())
