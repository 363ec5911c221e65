"""Every view of the broker's page shows what there is, or what to do, and fits a phone's width."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, Response, expect

from broker_process import BrokerProcess
from http_api import Api
from leveret.client import blocking
from page_measures import BROKEN, WIDER, serious_faults

# A list is asked for every five seconds, and the machine may be busy.
expect.set_options(timeout=60_000)

#: Compressed, with the answers of the API.
FIRST_VIEW_BYTES_MAX = 150_000

#: The views, with a text that each shows in the broker below.
VIEWS = (
    ("#/overview", "Messages in a second"),
    ("#/queues", "orders.eu"),
    ("#/queues/%2F/orders.eu", "Messages in a second"),
    ("#/queues/%2F/orders.eu?tab=bindings", "*.eu.#"),
    ("#/queues/%2F/events?tab=stream", "reporting"),
    ("#/streams", "events"),
    ("#/exchanges", "orders"),
    ("#/exchanges/%2F/orders", "orders.eu"),
    ("#/connections", "shown"),
    ("#/channels", "no limit"),
    ("#/policies/%2F/bounded", "in effect"),
    ("#/users", "guest"),
    ("#/definitions", "Download definitions"),
)


@pytest.fixture(scope="module", autouse=True)
def topology(broker: BrokerProcess) -> Iterator[None]:
    """A little of each kind, with a client that stays connected."""
    api = Api(broker.data_dir / "management.sock")
    for method, path, body in (
        ("PUT", "queues/%2F/orders.eu", {"durable": True}),
        ("PUT", "queues/%2F/orders.us", {"durable": True}),
        ("PUT", "queues/%2F/events", {"durable": True, "arguments": {"x-queue-type": "stream"}}),
        ("PUT", "streams/%2F/events/consumers/reporting", {"offset": "first"}),
        ("PUT", "exchanges/%2F/orders", {"type": "topic", "durable": True}),
        ("PUT", "exchanges/%2F/all", {"type": "fanout", "durable": True}),
        ("POST", "bindings/%2F/e/orders/q/orders.eu", {"routing_key": "*.eu.#"}),
        ("POST", "bindings/%2F/e/orders/q/orders.us", {"routing_key": "*.us.#"}),
        ("POST", "bindings/%2F/e/orders/e/all", {"routing_key": "#"}),
        ("POST", "bindings/%2F/e/all/q/events", {"routing_key": ""}),
        (
            "PUT",
            "policies/%2F/bounded",
            {"pattern": "^orders", "definition": {"max-length": 9}, "apply-to": "queues"},
        ),
    ):
        status, answer = api.ask(method, f"/api/{path}", body)
        assert status in (201, 204), (path, answer)
    api.close()
    url = f"amqp://guest:guest@127.0.0.1:{broker.port}/%2F"
    with blocking.connect(url, connection_name="shown") as connection:
        connection.channel()
        yield


def test_every_view_shows_what_there_is(page: Page) -> None:
    for address, text in VIEWS:
        page.goto(address)
        expect(page.locator("main")).to_contain_text(text)
        expect(page.locator("main [role=alert]")).to_have_count(0)


@pytest.mark.pages_more
@pytest.mark.parametrize("size", [(1280, 800), (390, 844)], ids=["wide", "narrow"])
def test_no_view_overflows_or_breaks_a_word(visitor: Any, size: tuple[int, int]) -> None:
    page = visitor.open(size)
    for address, text in VIEWS:
        page.goto(address)
        expect(page.locator("main")).to_contain_text(text)
        assert page.evaluate(WIDER) <= 0, address
        assert page.evaluate(BROKEN) == [], address


@pytest.mark.pages_more
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_use_each_view(visitor: Any, scheme: str) -> None:
    """Axe, which looks for what hinders people, finds nothing that is serious."""
    page = visitor.open(color_scheme=scheme)
    for address, text in VIEWS:
        page.goto(address)
        expect(page.locator("main")).to_contain_text(text)
        assert serious_faults(page) == [], address


def test_the_first_view_is_light(visitor: Any) -> None:
    page = visitor.open()
    sizes: dict[str, int] = {}
    page.on("response", lambda answer: sizes.update({answer.url: _weight(answer)}))
    page.goto("#/overview")
    expect(page.locator("main")).to_contain_text("Messages in a second")
    assert len(sizes) > 10
    assert sum(sizes.values()) < FIRST_VIEW_BYTES_MAX, sizes


def _weight(answer: Response) -> int:
    return int(answer.headers.get("content-length", 0))


def test_a_routing_key_lights_its_path(page: Page) -> None:
    page.goto("#/exchanges/%2F/orders")
    page.get_by_label("Key of a message").fill("new.eu.berlin")
    expect(page.locator(".verdict")).to_contain_text("goes to 2 queues")
    expect(page.locator(".node.queue.lit")).to_have_count(2)
    expect(page.locator(".node.dim")).to_contain_text("orders.us")
    page.get_by_label("Key of a message").fill("new.us")
    expect(page.locator(".node.dim")).to_contain_text("orders.eu")


def test_the_log_goes_on_while_it_is_read(page: Page, api: Api) -> None:
    page.goto("#/log")
    for name in ("logged-before", "logged-after"):
        assert api.ask("PUT", f"/api/vhosts/{name}")[0] == 201
        expect(page.locator("main")).to_contain_text(name)


@pytest.mark.pages_more
def test_definitions_are_compared_before_they_are_applied(page: Page, api: Api) -> None:
    page.goto("#/definitions")
    given = b"""{"queues": [
        {"vhost": "/", "name": "orders.eu", "durable": true, "auto_delete": false, "arguments": {}},
        {"vhost": "/", "name": "new", "durable": true, "auto_delete": false, "arguments": {}}],
        "policies": [{"vhost": "/", "name": "bounded", "pattern": "^orders", "priority": 3,
        "apply-to": "queues", "definition": {"max-length": 9}}]}"""
    file = {"name": "d.json", "mimeType": "application/json", "buffer": given}
    page.get_by_label("File").set_input_files(file)
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text="new")).to_contain_text("added")
    expect(rows.filter(has_text="bounded")).to_contain_text("priority 0 → 3")
    assert api.ask("GET", "/api/queues/%2F/new")[0] == 404
    page.get_by_role("button", name="Apply").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 object will be added and 1 changed")
    dialog.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("status").last).to_contain_text("applied")
    assert api.ask("GET", "/api/queues/%2F/new")[0] == 200


@pytest.mark.pages_more
def test_a_connection_is_closed_with_a_reason(page: Page, broker: BrokerProcess) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{broker.port}/%2F"
    connection = blocking.connect(url, connection_name="doomed")
    page.goto("#/connections")
    page.get_by_role("link", name="doomed").click()
    page.get_by_role("button", name="Close …").click()
    page.get_by_role("dialog").get_by_role("button", name="Close it").click()
    expect(page.get_by_role("status").last).to_contain_text("The connection is closed")
    expect(page.get_by_role("link", name="doomed")).to_have_count(0)
    connection.close()
