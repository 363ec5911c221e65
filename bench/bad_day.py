"""What an operator does on a bad day, on RabbitMQ's management page and on Leveret's own.

A browser does each task on both pages by what they show: it clicks, types, and reads until the
answer stands there.  Printed are the clicks, the characters typed and the seconds until then, of
which the browser's own are few: most are those that a page takes to show what has happened.  A
person needs more for reading, and more for a page that shows more to read.

    .venv/bin/python bench/bad_day.py

Both brokers have the same topology, made over AMQP: 40 quiet queues, a queue that grows beside a
consumer that never acks, 20 dead letters, and a topic exchange with 30 bindings.  Debian's
RabbitMQ has its management plugin, and the shovel plugin, without which it moves no messages.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Locator, Page, sync_playwright
from rabbitmq import RabbitMQ, free_ports

from leveret.client.blocking import Connection, connect

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.brokers.broker_process import BrokerProcess
from support.http.http_streams import http_port

CHROMIUM: Final = "/usr/bin/chromium"
PLUGINS: Final = ("rabbitmq_management", "rabbitmq_shovel", "rabbitmq_shovel_management")

QUIET: Final = 40
WAITING: Final = 2_000
PREFETCH: Final = 10
LETTERS: Final = 20
BINDINGS: Final = 30

#: How long the day has been bad already: both brokers take samples, of which rates are made.
SETTLED_SECONDS: Final = 30.0

#: Of a message whose way is asked for.
KEY: Final = "shop.1.0.created"

#: The page of RabbitMQ refreshes each 5 s, and its figures are as old again.
ANSWER_MS_MAX: Final = 60_000


@dataclass
class Operator:
    """Who does a task in a browser, and what it takes."""

    page: Page
    clicks: int = 0
    typed: int = 0
    found: str = ""
    began: float = field(default_factory=time.monotonic)

    def click(self, what: Locator) -> None:
        """Click on something, which may have to appear first."""
        what.first.click()
        self.clicks += 1

    def type(self, where: Locator, text: str) -> None:
        """Type into a field."""
        where.first.fill(text)
        self.typed += len(text)

    def press(self, keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys.split():
            self.page.keyboard.press(key)
            self.typed += 1

    def read(self, what: Locator) -> str:
        """Read something, which may have to appear first; return its words."""
        what.first.wait_for()
        return " ".join(what.first.inner_text().split())


Task = Callable[[Operator], str]


# -- the bad day -----------------------------------------------------------------------------------


@contextlib.contextmanager
def bad_day(uri: str) -> Iterator[Connection]:
    """Make the topology; the stuck consumer stays for as long as the context."""
    with connect(uri) as connection:
        channel = connection.channel()
        for number in range(QUIET):
            channel.queue_declare(f"orders.{number:02}", durable=True)
        channel.queue_declare("dead", durable=True)
        to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        channel.queue_declare("payments", durable=True, arguments=to_dead)
        channel.queue_declare("invoices", durable=True)
        channel.exchange_declare("events", "topic", durable=True)
        for number in range(BINDINGS):
            key = f"shop.{number % 6}.#" if number % 3 else f"shop.*.{number % 5}.created"
            channel.queue_bind(f"orders.{number:02}", "events", key)
        channel.confirm_select()
        for number in range(LETTERS):
            channel.publish(b"payment %d" % number, routing_key="payments")
        for _ in range(LETTERS):
            got = channel.get("payments")
            assert got is not None
            channel.reject(got.delivery_tag, requeue=False)
        for number in range(WAITING):
            channel.publish(b"invoice %d" % number, routing_key="invoices")
        stuck = connection.channel()
        stuck.qos(PREFETCH)
        with stuck.consume("invoices", consumer_tag="accounting", inactivity_timeout=1) as coming:
            next(iter(coming))
            yield connection


# -- RabbitMQ's page -------------------------------------------------------------------------------


def rabbitmq_log_in(page: Page, base: str) -> None:
    """Log in."""
    page.goto(base)
    page.fill("input[name=username]", "guest")
    page.fill("input[name=password]", "guest")
    page.click("input[type=submit]")
    page.wait_for_selector("a[href='#/queues']")


def rabbitmq_grows(operator: Operator) -> str:
    """Sort the queues by length, open the first, unfold its consumers."""
    page = operator.page
    operator.click(page.locator("a[href='#/queues']"))
    operator.click(page.locator("a[sort=messages]"))
    page.wait_for_selector("table.list tbody tr")
    # Ascending first.
    operator.click(page.locator("a[sort=messages]"))
    first = page.locator("table.list tbody tr").first.locator("a[href*='invoices']")
    operator.click(first)
    operator.click(page.locator("h2", has_text="Consumers"))
    held = operator.read(page.locator("table.list", has_text="accounting"))
    return f"invoices; its consumer: {held[-60:]}"


def rabbitmq_stuck(operator: Operator) -> str:
    """From the consumers of the queue to the channel that holds what it does not ack."""
    page = operator.page
    operator.click(page.locator("a[href='#/queues']"))
    operator.click(page.locator("a[href*='invoices']"))
    operator.click(page.locator("h2", has_text="Consumers"))
    operator.click(page.locator("table.list a[href*='#/channels/']"))
    connection = operator.read(page.locator("a[href*='#/connections/']"))
    unacked = page.locator("tr", has=page.locator("th", has_text="Messages unacknowledged"))
    return f"{connection}: {operator.read(unacked)}"


def rabbitmq_back(operator: Operator) -> str:
    """Look at a dead letter for its reason, then have a shovel move all back."""
    page = operator.page
    operator.click(page.locator("a[href='#/queues']"))
    operator.click(page.locator("a[href='#/queues/%2F/dead']"))
    operator.click(page.locator("h2", has_text="Get messages"))
    operator.click(page.locator("input[value='Get Message(s)']"))
    reason = operator.read(page.locator("td, span", has_text="rejected"))
    operator.click(page.locator("h2", has_text="Move messages"))
    operator.type(page.locator("input[name='dest-queue']"), "payments")
    operator.click(page.locator("input[value='Move messages']"))
    operator.click(page.locator("a[href='#/queues']"))
    row = page.locator("tr", has=page.locator("a[href='#/queues/%2F/payments']"))
    operator.read(row.filter(has_text=str(LETTERS)))
    return f"{'rejected' if 'rejected' in reason else '?'}; {LETTERS} are in payments again"


def rabbitmq_reaches(operator: Operator) -> str:
    """Open the exchange: its bindings are a list, to be matched by eye."""
    page = operator.page
    operator.click(page.locator("a[href='#/exchanges']"))
    operator.click(page.locator("a[href='#/exchanges/%2F/events']"))
    operator.click(page.locator("h2", has_text="Bindings"))
    page.wait_for_selector("a[href*='orders.00']")
    rows = page.locator("table.list a[href*='#/queues/']").count()
    return f"no answer: {rows} patterns to be compared by eye"


# -- Leveret's page --------------------------------------------------------------------------------


def leveret_log_in(page: Page, base: str) -> None:
    """Log in."""
    page.goto(base)
    page.fill("input[autocomplete=username]", "guest")
    page.fill("input[type=password]", "guest")
    page.keyboard.press("Enter")
    page.wait_for_selector("nav >> text=Queues")


def leveret_grows(operator: Operator) -> str:
    """Open the first queue, which is the longest, and read why it grows."""
    page = operator.page
    operator.click(page.locator("nav").get_by_text("Queues"))
    operator.click(page.locator("tbody tr").first.get_by_role("link", name="invoices"))
    return f"invoices: {operator.read(page.locator('.hint'))}"


def leveret_stuck(operator: Operator) -> str:
    """From the queue to its consumers."""
    page = operator.page
    operator.click(page.locator("nav").get_by_text("Queues"))
    operator.click(page.get_by_role("link", name="invoices"))
    operator.click(page.get_by_role("link", name="Consumers"))
    return operator.read(page.locator("tr", has_text="accounting"))


def leveret_back(operator: Operator) -> str:
    """Read the reasons of the dead letters, and have them put back."""
    page = operator.page
    operator.click(page.locator("nav").get_by_text("Queues"))
    operator.click(page.get_by_role("link", name="dead"))
    operator.click(page.get_by_role("link", name="Dead letters"))
    reason = operator.read(page.locator("tr", has_text="rejected"))
    operator.click(page.get_by_role("button", name="Put back …"))
    operator.click(page.locator("dialog").get_by_role("button", name="Put back"))
    operator.click(page.locator("nav").get_by_text("Queues"))
    row = page.locator("tr", has=page.get_by_role("link", name="payments"))
    operator.read(row.filter(has_text=str(LETTERS)))
    return f"{reason.split()[0]}; {LETTERS} are in payments again"


def leveret_reaches(operator: Operator) -> str:
    """Type the key, and read where it leads."""
    page = operator.page
    operator.click(page.locator("nav").get_by_text("Exchanges"))
    operator.click(page.get_by_role("link", name="events"))
    operator.type(page.get_by_label("Routing key"), KEY)
    operator.press("Enter")
    return operator.read(page.locator(".verdict"))


# -- both ------------------------------------------------------------------------------------------

TASKS: Final[list[tuple[str, Task, Task]]] = [
    ("which queue grows, and why", rabbitmq_grows, leveret_grows),
    ("whose consumer is stuck", rabbitmq_stuck, leveret_stuck),
    ("what died, and put it back", rabbitmq_back, leveret_back),
    (f"what the key {KEY} reaches", rabbitmq_reaches, leveret_reaches),
]


@contextlib.contextmanager
def rabbitmq() -> Iterator[tuple[str, str]]:
    """Run RabbitMQ; give the URI and the address of its page."""
    (port,) = free_ports(1)
    configuration = f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {port}\n"
    with RabbitMQ(None, PLUGINS, configuration) as broker:
        yield broker.uri, f"http://127.0.0.1:{port}/"


@contextlib.contextmanager
def leveret() -> Iterator[tuple[str, str]]:
    """Run Leveret; give the URI and the address of its page."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-day-") as directory,
        BrokerProcess(Path(directory) / "data") as broker,
    ):
        yield broker.uri, f"http://127.0.0.1:{http_port(broker)}/"


Result = tuple[int, int, float, str]


def day(
    browser: Browser,
    broker: Callable[[], contextlib.AbstractContextManager[tuple[str, str]]],
    log_in: Callable[[Page, str], None],
    tasks: list[Task],
) -> list[Result]:
    """Do the tasks, each as somebody who has just logged in."""
    results: list[Result] = []
    with broker() as (uri, base), bad_day(uri):
        time.sleep(SETTLED_SECONDS)
        for task in tasks:
            context = browser.new_context(viewport={"width": 1280, "height": 800})
            context.set_default_timeout(ANSWER_MS_MAX)
            page = context.new_page()
            log_in(page, base)
            operator = Operator(page)
            found = task(operator)
            seconds = time.monotonic() - operator.began
            results.append((operator.clicks, operator.typed, seconds, found))
            context.close()
    return results


def main() -> None:
    """Do all tasks on both pages and print what they took."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        theirs = day(browser, rabbitmq, rabbitmq_log_in, [task for _, task, _ in TASKS])
        ours = day(browser, leveret, leveret_log_in, [task for _, _, task in TASKS])
        browser.close()
    print("task | page | clicks | typed | seconds | what it found")
    print("-" * 72)
    for (title, _, _), *results in zip(TASKS, theirs, ours, strict=True):
        for name, (clicks, typed, seconds, found) in zip(
            ("RabbitMQ", "Leveret"), results, strict=True
        ):
            print(f"{title} | {name} | {clicks} | {typed} | {seconds:.1f} | {found}")


if __name__ == "__main__":
    main()
