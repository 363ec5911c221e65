"""Every view of the broker's page shows what there is, or what to do, and fits a phone's width."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, Response, expect

from leveret import __version__
from leveret.client import BasicProperties, blocking
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api
from support.pages.page_measures import BROKEN, WIDER, faults_of

# A list is asked for every five seconds, and the machine may be busy.
expect.set_options(timeout=60_000)

#: Compressed, with the answers of the API.
FIRST_VIEW_BYTES_MAX = 150_000

SIZES = [(1280, 800), (390, 844)]

#: The views, with a text that each shows in the broker below.
VIEWS = (
    ("#/overview", "Message rates"),
    ("#/queues", "orders.eu"),
    ("#/queues/%2F/orders.eu", "Message rates"),
    ("#/queues/%2F/orders.eu?tab=consumers", "Nobody consumes this queue"),
    ("#/queues/%2F/consumed?tab=consumers", "accounting"),
    ("#/queues/%2F/orders.eu?tab=bindings", "*.eu.#"),
    ("#/queues/%2F/dead?tab=messages", "Show messages"),
    ("#/queues/%2F/dead?tab=dead", "rejected"),
    ("#/queues/%2F/events?tab=stream", "reporting"),
    ("#/streams", "events"),
    ("#/exchanges", "orders"),
    ("#/exchanges/%2F/orders", "orders.eu"),
    ("#/exchanges/%2F/orders?tab=bindings", "*.us.#"),
    ("#/exchanges/%2F/orders?tab=publish", "Publish"),
    ("#/exchanges/%2F/later?tab=delayed", "in.an.hour"),
    ("#/connections", "shown"),
    ("#/channels", "no limit"),
    ("#/policies", "bounded"),
    ("#/policies/%2F/bounded", "in effect"),
    ("#/vhosts", "no"),
    ("#/vhosts/%2F", "Permissions"),
    ("#/users", "guest"),
    ("#/users/guest", "administrator"),
    ("#/definitions", "Download definitions"),
    ("#/log", "listening on"),
    ("#/nowhere", "There is no such view"),
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
    api.answer("/api/streams/%2F/events?run=r&position=0&query_id=q-7&query_name=nightly+archive")
    api.close()
    url = f"amqp://guest:guest@127.0.0.1:{broker.port}/%2F"
    with blocking.connect(url, connection_name="shown") as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.queue_declare("dead", durable=True)
        to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        channel.queue_declare("consumed", durable=True, arguments=to_dead)
        channel.publish(b'{"number": 1}', routing_key="consumed")
        rejected = channel.get("consumed")
        assert rejected is not None
        channel.reject(rejected.delivery_tag, requeue=False)
        delayed = {"x-delayed-type": "topic"}
        channel.exchange_declare("later", "x-delayed-message", durable=True, arguments=delayed)
        channel.queue_bind("consumed", "later", "#")
        in_an_hour = BasicProperties(headers={"x-delay": 3_600_000}, delivery_mode=2)
        channel.publish(b"", "later", "in.an.hour", in_an_hour)
        channel.consume("consumed", print, consumer_tag="accounting")
        yield


def views(api: Api) -> list[tuple[str, str]]:
    """Return the address of each view with a text that it shows."""
    [connection] = [
        row for row in rows_of(api, "connections") if row["user_provided_name"] == "shown"
    ]
    channels = [row for row in rows_of(api, "channels") if row["consumer_count"] == 1]
    name = quote(connection["name"], safe="")
    channel = quote(channels[0]["name"], safe="")
    return [*VIEWS, (f"#/connections/{name}", "guest"), (f"#/channels/{channel}", "accounting")]


def rows_of(api: Api, kind: str) -> list[dict[str, Any]]:
    """Return the rows of a list of the API."""
    status, rows = api.ask("GET", f"/api/{kind}")
    assert status == 200
    assert isinstance(rows, list)
    return rows


def test_every_view_shows_what_there_is(page: Page, api: Api) -> None:
    for address, text in views(api):
        page.goto(address)
        expect(page.locator("main")).to_contain_text(text)
        expect(page.locator("main [role=alert]")).to_have_count(0)


def test_lists_tell_who_does_what_and_how_much(page: Page) -> None:
    row = page.locator("tbody tr")
    page.goto("#/connections")
    expect(row).to_contain_text(["127.0.0.1:"])
    expect(row).to_contain_text([f"Leveret {__version__}"])
    expect(row).to_contain_text(["B/s"])
    page.goto("#/exchanges?name=later")
    expect(row.locator(".tag")).to_have_text(["D", "Args"])
    expect(row).to_contain_text(["0/s"])
    page.goto("#/queues/%2F/consumed?tab=consumers")
    expect(page.get_by_role("columnheader", name="Unacked")).to_have_count(1)
    expect(row.get_by_role("link", name="shown")).to_have_count(1)
    page.goto("#/queues/%2F/dead?tab=messages")
    page.get_by_role("button", name="Show messages").click()
    expect(page.locator(".message")).to_contain_text('{"number": 1}')


@pytest.mark.pages_more
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES, ids=["wide", "narrow"])
def test_everybody_can_use_each_view(
    visitor: Any, api: Api, size: tuple[int, int], scheme: str
) -> None:
    """No view is wider than the window or breaks a word, and axe finds nothing."""
    page = visitor.open(size, color_scheme=scheme)
    for address, text in views(api):
        page.goto(address)
        expect(page.locator("main")).to_contain_text(text)
        assert page.evaluate(WIDER) <= 0, address
        assert page.evaluate(BROKEN) == [], address
        assert faults_of(page) == [], address


@pytest.mark.pages_more
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES, ids=["wide", "narrow"])
def test_everybody_can_use_what_opens(visitor: Any, size: tuple[int, int], scheme: str) -> None:
    """A message, the way of a key, the search, the list of keys, and the form to sign in."""
    page = visitor.open(size, color_scheme=scheme)
    for open_it in (open_message, open_way, open_search, open_keys):
        open_it(page)
        assert page.evaluate(WIDER) <= 0, open_it
        assert page.evaluate(BROKEN) == [], open_it
        assert faults_of(page) == [], open_it
        page.keyboard.press("Escape")
    visitor.expects("status of 401")
    stranger = visitor.open(size, user=None, color_scheme=scheme)
    stranger.goto("#/overview")
    stranger.get_by_role("button", name="Sign in").wait_for()
    assert stranger.evaluate(WIDER) <= 0
    assert stranger.evaluate(BROKEN) == []
    assert faults_of(stranger) == []


def open_message(page: Page) -> None:
    """Open a message of a queue."""
    page.goto("#/queues/%2F/dead?tab=messages")
    page.get_by_role("button", name="Show messages").click()
    page.locator("details.message summary").click()
    page.get_by_label("Body").last.wait_for()


def open_way(page: Page) -> None:
    """Follow a key through an exchange."""
    page.goto("#/exchanges/%2F/orders")
    page.get_by_label("Routing key").fill("new.eu.berlin")
    expect(page.locator(".verdict")).to_contain_text("goes to 2 queues")


def open_search(page: Page) -> None:
    """Find something by a part of its name."""
    page.goto("#/overview")
    page.get_by_role("heading", name="Overview").wait_for()
    page.keyboard.press("/")
    page.get_by_role("combobox", name="Part of a name").fill("orders")
    page.locator("dialog [role=option]").first.wait_for()


def open_keys(page: Page) -> None:
    """Ask which keys do what."""
    page.goto("#/log")
    page.get_by_role("heading", name="Log").wait_for()
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()


def test_the_first_view_is_light(visitor: Any) -> None:
    page = visitor.open()
    sizes: dict[str, int] = {}
    page.on("response", lambda answer: sizes.update({answer.url: _weight(answer)}))
    page.goto("#/overview")
    expect(page.locator("main")).to_contain_text("Message rates")
    assert len(sizes) > 10
    assert sum(sizes.values()) < FIRST_VIEW_BYTES_MAX, sizes


def test_the_first_view_loads_at_once(page: Page) -> None:
    """The document names every module, and no request waits for a module and is sent again."""
    loaded: set[str] = set()
    page.on("request", lambda one: loaded.add(one.url.rpartition("/ui/")[2]))
    page.goto("#/overview")
    expect(page.locator("main")).to_contain_text("Message rates")
    named = page.locator("head > [rel=modulepreload], head > script").evaluate_all(
        "all => all.map(one => (one.href ?? one.src).split('/ui/')[1])"
    )
    assert {one for one in loaded if one.endswith(".js")} == set(named)
    assert page.evaluate("leveretBegun.size") == 0


def _weight(answer: Response) -> int:
    return int(answer.headers.get("content-length", 0))


def test_a_routing_key_lights_its_path(page: Page) -> None:
    page.goto("#/exchanges/%2F/orders")
    page.get_by_label("Routing key").fill("new.eu.berlin")
    expect(page.locator(".verdict")).to_contain_text("goes to 2 queues")
    expect(page.locator(".node.queue.lit")).to_have_count(2)
    expect(page.locator(".node.dim")).to_contain_text("orders.us")
    page.get_by_label("Routing key").fill("new.us")
    expect(page.locator(".node.dim")).to_contain_text("orders.eu")


def test_many_bindings_are_a_table_and_a_picture_of_what_a_key_reaches(
    page: Page, api: Api
) -> None:
    assert api.change("PUT", "/api/exchanges/%2F/many", {"type": "topic", "durable": True}) == 201
    for number in range(13):
        binding = {"routing_key": f"tenant.{number:02}.#"}
        assert api.ask("POST", "/api/bindings/%2F/e/many/q/orders.eu", binding)[0] == 201
    everything = {"routing_key": "#"}
    assert api.ask("POST", "/api/bindings/%2F/e/many/q/orders.us", everything)[0] == 201
    page.goto("#/exchanges/%2F/many")
    rows = page.get_by_role("region", name="Bindings by key").locator("tbody tr")
    expect(rows).to_have_count(14)
    expect(page.locator(".picture")).to_have_count(0)
    page.get_by_label("Routing key").fill("tenant.07.made")
    expect(rows).to_have_text(["#orders.us", "tenant.07.#orders.eu"])
    expect(page.locator(".picture .node.queue")).to_have_count(2)
    # Its lines are straight: each ends at the height at which it begins.
    ways = page.locator(".picture path.link").evaluate_all(
        "paths => paths.map((one) => one.getBBox().height)"
    )
    assert ways == [0, 0]
    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.locator(".picture")).to_be_hidden()
    expect(rows).to_have_count(2)
    assert api.change("DELETE", "/api/exchanges/%2F/many") == 204


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


#: The points of links of a picture that lie within a node, and the texts that no ground is behind.
STRUCK = """() => {
  const svg = document.querySelector(".picture svg");
  const boxes = [...svg.querySelectorAll(".node rect")].map((rect) => rect.getBBox());
  const within = (at, box) => at.x > box.x + 2 && at.x < box.x + box.width - 2
    && at.y > box.y + 2 && at.y < box.y + box.height - 2;
  const behind = [...svg.querySelectorAll("path.link")].filter((path) => {
    for (let along = 0; along < path.getTotalLength(); along += 4) {
      if (boxes.some((box) => within(path.getPointAtLength(along), box))) return true;
    }
    return false;
  });
  const parts = [...svg.querySelectorAll("path.link, .key")];
  const lastLink = parts.findLastIndex((one) => one.matches("path"));
  const bare = [...svg.querySelectorAll(".key")].filter((key) => {
    const ground = key.querySelector("rect").getBBox();
    const text = key.querySelector("text").getBBox();
    return ground.x > text.x || ground.x + ground.width < text.x + text.width
      || parts.indexOf(key) < lastLink;
  });
  return [behind.length, bare.length];
}"""

#: The least contrast of a text of a picture with the ground of the picture.
CONTRAST = """() => {
  const shade = (text) => {
    const parts = text.match(/[\\d.]+/g).slice(0, 3).map((one) => one / 255)
      .map((one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] + 0.05;
  };
  const under = shade(getComputedStyle(document.querySelector(".picture")).backgroundColor);
  const found = [...document.querySelectorAll(".picture .dim text")].map((text) => {
    let opacity = 1;
    for (let one = text; one.matches("svg, svg *"); one = one.parentElement) {
      opacity *= getComputedStyle(one).opacity;
    }
    const over = opacity * shade(getComputedStyle(text).fill) + (1 - opacity) * under;
    return Math.max(over, under) / Math.min(over, under);
  });
  return Math.min(...found);
}"""


@pytest.mark.pages_more
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_picture_can_be_read(visitor: Any, api: Api, scheme: str) -> None:
    """Links pass behind no node and through no key, and what is not reached is legible."""
    for method, path, body in (
        # Round trips, in one column and over one, and a link that passes two columns.
        ("PUT", "exchanges/%2F/last", {"type": "fanout", "durable": True}),
        ("POST", "bindings/%2F/e/all/e/last", {"routing_key": ""}),
        ("POST", "bindings/%2F/e/last/e/orders", {"routing_key": "again"}),
        ("POST", "bindings/%2F/e/last/e/last", {"routing_key": "self"}),
        ("POST", "bindings/%2F/e/last/q/orders.us", {"routing_key": "from the last"}),
        ("POST", "bindings/%2F/e/orders/q/events", {"routing_key": "first.key"}),
    ):
        assert api.ask(method, f"/api/{path}", body)[0] in (201, 204), path
    page = visitor.open(color_scheme=scheme)
    page.goto("#/exchanges/%2F/orders")
    expect(page.locator(".picture .key")).to_have_count(9)
    assert page.evaluate(STRUCK) == [0, 0]
    assert api.ask("DELETE", "/api/exchanges/%2F/last")[0] == 204
    page.reload()
    page.get_by_label("Routing key").fill("new.us")
    expect(page.locator(".node.dim")).to_contain_text("orders.eu")
    assert page.evaluate(CONTRAST) >= 4.5


def test_a_row_of_tabs_tells_that_it_goes_on(narrow_page: Page) -> None:
    """A shadow lies on the side where there is more; the tab that is shown is in view."""
    page = narrow_page
    page.goto("#/queues/%2F/orders.eu")
    tabs = page.locator("nav.tabs")
    expect(tabs.get_by_role("link", name="Dead letters")).to_be_attached()
    at = tabs.bounding_box()
    assert at is not None
    # The upper edge has no letters in it.
    edge = {"x": at["x"] + at["width"] - 4, "y": at["y"] + 1, "width": 4, "height": 3}
    middle = edge | {"x": at["x"] + at["width"] / 2}
    assert page.screenshot(clip=edge) != page.screenshot(clip=middle)
    tabs.evaluate("row => row.scrollTo(row.scrollWidth, 0)")
    assert page.screenshot(clip=edge) == page.screenshot(clip=middle)
    page.goto("#/queues/%2F/orders.eu?tab=dead")
    expect(tabs.get_by_role("link", name="Dead letters")).to_be_in_viewport(ratio=0.95)
