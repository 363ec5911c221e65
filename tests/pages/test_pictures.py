"""Pictures of each view at the widths of a desk and of a phone, as the documentation shows them.

Without `LEVERET_TEST_PICTURES` they are made and measured in a temporary directory; with it they
are written where it says: `LEVERET_TEST_PICTURES=docs/pictures make pages ARGS="-k pictures"`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from leveret.client import blocking
from leveret.client.blocking import Channel
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api

expect.set_options(timeout=60_000)

pytestmark = pytest.mark.pages_more

#: What one picture may add to the repository.
BYTES_MAX = 200_000

#: So many samples make a line that one can see.
SAMPLES = 8

#: By the picture's name: the address, and a text that stands there when the view is whole.
VIEWS = {
    "overview": ("#/overview", "Messages in queues"),
    "queues": ("#/queues?sort=messages_ready&reverse=true", "invoices"),
    "queue": ("#/queues/%2F/invoices", "ack none"),
    "messages": ("#/queues/%2F/dead?tab=messages", "Browse"),
    "dead-letters": ("#/queues/%2F/dead?tab=dead", "rejected"),
    "streams": ("#/streams", "journal"),
    "exchange": ("#/exchanges/%2F/events", "orders.eu"),
    "connections": ("#/connections", "iB/s"),
    "channels": ("#/channels", "guest"),
    "policies": ("#/policies/%2F/bounded", "in effect"),
    "vhosts": ("#/vhosts", "Tests before a release"),
    "users": ("#/users", "guest"),
    "definitions": ("#/definitions", "Download definitions"),
    "log": ("#/log", "listening on"),
}


def _declare(api: Api, channel: Channel) -> None:
    """Make what the pictures show: queues, a stream, bindings, a policy, and dead letters."""
    for name in ("orders.eu", "orders.us", "orders.asia", "mail", "audit", "dead", "invoices"):
        channel.queue_declare(name, durable=True)
    channel.queue_declare("journal", durable=True, arguments={"x-queue-type": "stream"})
    to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("payments", durable=True, arguments=to_dead)
    channel.exchange_declare("events", "topic", durable=True)
    channel.exchange_declare("everything", "fanout", durable=True)
    for queue, key in (
        ("orders.eu", "order.eu.#"),
        ("orders.us", "order.us.#"),
        ("orders.asia", "order.asia.#"),
        ("mail", "*.*.created"),
    ):
        channel.queue_bind(queue, "events", key)
    channel.exchange_bind("everything", "events", "#")
    for queue in ("audit", "journal"):
        channel.queue_bind(queue, "everything")
    policy = {"pattern": "^orders", "definition": {"max-length": 100_000}, "apply-to": "queues"}
    assert api.ask("PUT", "/api/policies/%2F/bounded", policy)[0] == 201
    staging = {
        "vhosts": [
            {"name": "staging", "description": "Tests before a release", "tags": ["staging"]}
        ],
        "permissions": [
            {"user": "guest", "vhost": "staging", "configure": ".*", "write": ".*", "read": ".*"}
        ],
        "parameters": [
            {
                "vhost": "staging",
                "component": "vhost-limits",
                "name": "limits",
                "value": {"max-connections": 20},
            }
        ],
    }
    assert api.ask("POST", "/api/definitions", staging)[0] == 200
    for number in range(20):
        channel.publish(b'{"payment": %d, "card": "expired"}' % number, routing_key="payments")
        got = channel.get("payments")
        assert got is not None
        channel.reject(got.delivery_tag, requeue=False)
    for number in range(1_990):
        channel.publish(b'{"invoice": %d}' % number, routing_key="invoices")


def _sell(uri: str, stop: threading.Event) -> None:
    """Publish orders and handle them, until `stop`."""
    with blocking.connect(uri, connection_name="checkout") as connection:
        channel = connection.channel()
        channel.confirm_select()
        number = 0
        while not stop.is_set():
            place = ("eu", "us", "asia")[number % 3]
            channel.publish(b'{"order": %d}' % number, "events", f"order.{place}.created")
            number += 1
            # What is left waits, so that there is something to see.
            for queue in ("audit", "mail", f"orders.{place}"):
                if number % 7:
                    channel.get(queue, no_ack=True)


@pytest.fixture(scope="module", autouse=True)
def shop(broker: BrokerProcess) -> Iterator[None]:
    """A shop that sells, with a consumer that is stuck."""
    uri = f"amqp://guest:guest@127.0.0.1:{broker.port}/%2F"
    api = Api(broker.data_dir / "management.sock")
    stop = threading.Event()
    seller = threading.Thread(target=_sell, args=(uri, stop))
    with blocking.connect(uri, connection_name="accounting") as connection:
        channel = connection.channel()
        channel.confirm_select()
        _declare(api, channel)
        stuck = connection.channel()
        stuck.qos(10)
        with stuck.consume("invoices", consumer_tag="accounting", inactivity_timeout=0):
            seller.start()
            yield
    stop.set()
    seller.join()
    api.close()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where they go."""
    chosen = os.environ.get("LEVERET_TEST_PICTURES")
    directory = Path(chosen) if chosen else tmp_path_factory.mktemp("pictures")
    directory.mkdir(exist_ok=True)
    return directory


def _sampled(page: Page) -> None:
    """Wait until the broker has taken samples enough for a line."""
    page.evaluate(
        """async (least) => {
            const headers = {"X-Requested-With": "1"};
            for (let taken = 0; taken < least;) {
                await new Promise((go) => setTimeout(go, 1000));
                const asked = "api/overview?msg_rates_age=600&msg_rates_incr=5";
                const overview = await (await fetch(asked, {headers})).json();
                taken = (overview.message_stats?.publish_details?.samples ?? []).length;
            }
        }""",
        SAMPLES,
    )


def _take(page: Page, pictures: Path, suffix: str) -> None:
    page.goto("#/overview")
    _sampled(page)
    for name, (address, text) in VIEWS.items():
        page.goto(address)
        expect(page.locator("main")).to_contain_text(text)
        if name == "exchange":
            page.get_by_label("Routing key").fill("order.eu.created")
            expect(page.locator(".verdict")).to_contain_text("goes to")
        if name == "messages":
            page.get_by_role("button", name="Show messages").click()
            expect(page.locator(".message").first).to_contain_text("expired")
        expect(page.locator("main .loading")).to_have_count(0)
        picture = page.screenshot(path=pictures / f"{name}{suffix}.png")
        assert 5_000 < len(picture) < BYTES_MAX, f"{name}{suffix}: {len(picture)} bytes"


def test_pictures_of_a_desk(page: Page, pictures: Path) -> None:
    _take(page, pictures, "")


def test_pictures_of_a_phone(narrow_page: Page, pictures: Path) -> None:
    _take(narrow_page, pictures, "-phone")
