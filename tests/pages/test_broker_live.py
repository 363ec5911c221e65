"""The page while 1,000 queues and a load of 50,000 messages a second are there.

How much of the load the broker takes depends on the machine, and no test here on that: values go on
changing, the page answers who uses it, and it logs no error.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from leveret.client import blocking
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api

expect.set_options(timeout=60_000)

pytestmark = pytest.mark.pages_more

QUEUES = 1_000
RATE = 50_000
#: The load is ended with the tests; left alone, it ends by itself.
SECONDS_MAX = 900
#: So many of the queues have traffic, as many as the generator takes.
BUSY = 50

SOURCE = Path(__file__).parents[2] / "bench" / "amqpload.c"


@pytest.fixture(scope="module", autouse=True)
def load(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Many queues, and traffic through some of them; the generator is never the bottleneck."""
    generator = tmp_path_factory.mktemp("load") / "amqpload"
    subprocess.run(["gcc", "-O2", "-o", str(generator), str(SOURCE)], check=True)
    with blocking.connect(broker.uri) as connection:
        channel = connection.channel()
        for number in range(QUEUES - BUSY):
            channel.queue_declare(f"still.{number:03}")
        flags = ["-P", "2", "-C", str(BUSY), "-M", str(BUSY), "-s", "16", "-r", str(RATE)]
        where = ["-p", str(broker.port), "-Q", "busy", "-t", str(SECONDS_MAX)]
        with subprocess.Popen(
            [generator, *where, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as process:
            yield
            assert process.poll() is None, process.stderr and process.stderr.read()
            process.terminate()
            process.communicate()


#: Tells whether the text of an element is there, and another one.
CHANGED = """([selector, before]) => {
  const text = document.querySelector(selector)?.textContent;
  return text && text !== before ? text : null;
}"""


def changes(page: Page, selector: str, wanted: int = 4) -> tuple[list[str], float]:
    """Wait until an element has had so many texts; return them, and the longest gap in seconds."""
    found = [""]
    longest = 0.0
    last = time.monotonic()
    while len(found) <= wanted:
        now = page.wait_for_function(CHANGED, arg=[selector, found[-1]])
        found.append(str(now.json_value()))
        # What comes before the first text is the loading of the view, not a gap of updates.
        if len(found) > 2:
            longest = max(longest, time.monotonic() - last)
        last = time.monotonic()
    return found[1:], longest


def published(api: Api) -> int:
    """Return how many messages the broker has taken."""
    status, overview = api.ask("GET", "/api/overview")
    assert status == 200
    assert isinstance(overview, dict)
    return int(overview["message_stats"]["publish"])


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)], ids=["wide", "narrow"])
def test_the_overview_goes_on(
    visitor: object, api: Api, size: tuple[int, int], record_property: Callable[[str, object], None]
) -> None:
    page: Page = visitor.open(size)  # type: ignore[attr-defined]
    page.goto("#/overview")
    expect(page.locator(".figure", has_text="Queues")).to_contain_text(f"{QUEUES:,}")
    before, began = published(api), time.monotonic()
    texts, longest = changes(page, ".figures", 8)
    rate = (published(api) - before) / (time.monotonic() - began)
    for name, value in {
        "queues": QUEUES,
        "asked_per_second": RATE,
        "published_per_second": round(rate),
        "updates": len(texts),
        "longest_gap_seconds": round(longest, 1),
    }.items():
        record_property(name, value)
    # The plot has lines, and its legend tells values under the pointer.
    expect(page.locator("figure.plot .nothing")).to_have_count(0)


def test_the_list_goes_on_while_it_is_sorted_filtered_and_left(page: Page) -> None:
    page.goto("#/queues?name=busy&size=25")
    expect(page.locator("tbody tr")).to_have_count(25)
    changes(page, "tbody")
    page.get_by_role("button", name="Next page").click()
    expect(page.locator("tbody tr").last).to_contain_text("busy")
    page.get_by_label("Filter by name").fill("still.00")
    expect(page.locator("tbody tr")).to_have_count(10)
    page.keyboard.press("Escape")
    page.get_by_role("heading", name="Queues").click()
    page.keyboard.press("/")
    page.get_by_role("combobox", name="Part of a name").fill("still.007")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("still.007")


def test_a_queue_goes_on_and_is_acted_on(page: Page, api: Api) -> None:
    name = _busy_queue(api)
    page.goto(f"#/queues/%2F/{name}")
    changes(page, ".figures")
    page.get_by_role("link", name="Consumers").first.click()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="Messages").click()
    page.get_by_role("button", name="Show messages").click()
    expect(page.get_by_role("button", name="Refresh")).to_be_enabled()
    page.get_by_role("link", name="State").click()
    page.get_by_role("button", name="Purge …").click()
    page.get_by_role("dialog").get_by_role("button", name="Purge").click()
    expect(page.locator(".said")).to_contain_text("is purged")
    changes(page, ".figures")


def _busy_queue(api: Api) -> str:
    status, found = api.ask("GET", "/api/queues?page=1&page_size=1&name=busy&columns=name")
    assert status == 200
    assert isinstance(found, dict)
    name = found["items"][0]["name"]
    assert isinstance(name, str)
    return name


def test_connections_and_channels_go_on(page: Page) -> None:
    for view in ("connections", "channels"):
        page.goto(f"#/{view}")
        expect(page.locator("tbody tr").first).to_be_visible()
    page.goto("#/connections?sort=recv_oct&reverse=true")
    changes(page, "tbody")


def test_many_pages_at_once(visitor: object) -> None:
    pages: list[Page] = [visitor.open() for _ in range(4)]  # type: ignore[attr-defined]
    for page in pages:
        page.goto("#/overview")
    for page in pages:
        changes(page, ".figures", 3)
