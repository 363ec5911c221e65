"""Whatever a name has in it, every view of the broker's page shows it as text.

Each name is that of a vhost and of all that can be named in it.  Nothing that a name holds becomes
an element, runs, asks, or turns the text around it; the fixture `visitor` fails a test in which the
browser complained.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from leveret.client import BasicProperties, blocking
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api
from support.pages.page_measures import BROKEN, STANDS_OUT, WIDER, faults_of

MARKUP = "<img src=x onerror=alert(1)>"
#: Quotes of each kind, and what HTML and addresses read as their own.
MIXED = f"{MARKUP}</script><b class=hostile>\"'`&lt; ../ %2F?#é{1}"

NAMES = {
    "mixed": MIXED,
    "markup": MARKUP,
    "script": "</script><script>alert(1)</script>",
    "long": (MARKUP * 9)[:255],
}
#: What no new name may hold, though keys, headers, bodies and names of connections may: line feeds
#: and what turns the text around it.
CODES = "\n\r\t\u202e\u202c\u2066"
FREE = f"{CODES}{MARKUP}"

SIZES = {"wide": (1280, 800), "narrow": (390, 844)}

LOOK = """wanted => {
  const shown = document.getElementById("content");
  return shown && !shown.querySelector(".loading") && shown.textContent.includes(wanted);
}"""
#: What only a name could have made, as the page itself has none of it.
MADE = "#app img, #app script, #app style, #app iframe, .hostile, [onerror], [onclick], [onload]"
TURNS = """() => {
  const turning = /[\\u202a-\\u202e\\u2066-\\u2069]/;
  const turns = one => [...one.childNodes].some(node => node.data && turning.test(node.data));
  return [...document.querySelectorAll("#app *")]
    .filter(one => turns(one) && !one.closest("pre")).map(one => one.outerHTML);
}"""


def legible(name: str) -> str:
    """Return a name as the page writes it."""
    return "".join(f"⟨U+{ord(char):04X}⟩" if char in CODES else char for char in name)


def segment(name: str) -> str:
    """Return a name as a part of an address."""
    return quote(name, safe="")


def of_stream(name: str) -> str:
    """Return how the stream beside the queue of a name is called."""
    return f"~s{name}"[:254]


def of_delays(name: str) -> str:
    """Return how the exchange that delays, beside that of a name, is called."""
    return f"~d{name}"[:254]


def put(api: Api, path: str, body: object, method: str = "PUT") -> None:
    """Make what the path names."""
    status, answer = api.ask(method, f"/api/{path}", body)
    assert status in {201, 204}, (path, status, answer)


def made(api: Api, port: int, name: str) -> blocking.Connection:
    """Name one of each kind so; return the connection, which has the name too."""
    part = segment(name)
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    put(api, f"vhosts/{part}", {})
    put(api, f"users/{part}", {"password": "guest", "tags": "monitoring"})
    for user in ("guest", part):
        put(api, f"permissions/{part}/{user}", rights)
    arguments = {"x-dead-letter-exchange": name, "x-constructor": name, "x-__proto__": name}
    put(api, f"queues/{part}/{part}", {"durable": True, "arguments": arguments})
    put(api, f"exchanges/{part}/{part}", {"type": "topic", "durable": True})
    stream = {"x-queue-type": "stream"}
    put(api, f"queues/{part}/{segment(of_stream(name))}", {"durable": True, "arguments": stream})
    put(
        api,
        f"exchanges/{part}/{segment(of_delays(name))}",
        {
            "type": "x-delayed-message",
            "durable": True,
            "arguments": {"x-delayed-type": "topic", "alternate-exchange": name},
        },
    )
    put(
        api,
        f"bindings/{part}/e/{part}/q/{part}",
        {"routing_key": FREE, "arguments": {"x": FREE}},
        "POST",
    )
    put(api, f"policies/{part}/{part}", {
        "pattern": ".*", "apply-to": "all", "priority": 1, "definition": {"max-length": 1000},
    })  # fmt: skip
    connection = blocking.connect(
        host="127.0.0.1", port=port, user=name, password="guest", virtual_host=name,
        connection_name=FREE,
    )  # fmt: skip
    channel = connection.channel()
    channel.confirm_select()
    headers: dict[str, object] = {name[:128]: name, "free": [FREE, {"name": FREE}]}
    properties = BasicProperties(headers=headers, content_type=name, message_id=FREE, type=FREE)
    channel.publish(FREE.encode(), name, FREE, properties)
    channel.queue_declare("consumed", durable=True)
    channel.consume("consumed", print, consumer_tag=name)
    channel.qos(1)
    channel.publish(FREE.encode(), "", of_stream(name), properties)
    channel.consume(of_stream(name), print, consumer_tag=of_stream(name)[:128])
    query = f"run=r&query_id=q&position=0&query_name={segment(FREE)}"
    api.answer(f"/api/streams/{part}/{segment(of_stream(name))}?{query}")
    headers["x-delay"] = 3_600_000
    channel.publish(FREE.encode(), of_delays(name), FREE, properties)
    return connection


@pytest.fixture(scope="module")
def named(broker: BrokerProcess) -> Iterator[dict[str, blocking.Connection]]:
    """Connections by the key of the name that all in their vhost has."""
    api = Api(broker.data_dir / "management.sock")
    found: dict[str, blocking.Connection] = {}
    yield found
    for connection in found.values():
        connection.close()
    api.close()


def views(api: Api, name: str) -> list[tuple[str, str]]:
    """Return the address of each view, with what it is to show."""
    part, shown = segment(name), legible(name)
    rows = api.answer("/api/connections")[1]
    assert isinstance(rows, list)
    [row] = [one for one in rows if one["vhost"] == name]
    connection = segment(row["name"])
    queue, exchange = f"#/queues/{part}/{part}", f"#/exchanges/{part}/{part}"
    stream = f"#/streams/{part}/{segment(of_stream(name))}"
    delays = f"#/exchanges/{part}/{segment(of_delays(name))}"
    return [
        ("#/overview", "Overview"),
        ("#/queues?size=500", shown),
        (queue, shown),
        (f"{queue}?tab=consumers", shown),
        (f"{queue}?tab=bindings", legible(FREE)),
        (f"{queue}?tab=messages", shown),
        (f"{queue}?tab=dead", shown),
        (f"#/queues/{part}/consumed?tab=consumers", shown),
        ("#/streams", legible(of_stream(name))),
        (stream, legible(of_stream(name))),
        (f"{stream}?tab=stream", legible(of_stream(name)[:128])),
        (f"{stream}?tab=consumers", legible(of_stream(name)[:128])),
        (f"{delays}?tab=delayed", legible(FREE)),
        ("#/exchanges?size=500", shown),
        (exchange, shown),
        (f"{exchange}?tab=bindings", legible(FREE)),
        (f"{exchange}?tab=publish", shown),
        ("#/connections", legible(FREE)),
        (f"#/connections/{connection}", shown),
        ("#/channels", shown),
        (f"#/channels/{segment(row['name'] + ' (1)')}", shown),
        ("#/policies", shown),
        (f"#/policies/{part}/{part}", shown),
        ("#/users", shown),
        (f"#/users/{part}", shown),
        ("#/definitions", "Definitions"),
        ("#/log", "Log"),
        (f"#/{part}", "There is no such view"),
    ]


def look(page: Page, address: str, shown: str) -> None:
    """Go to a view, wait for the text, and see that nothing was made of it."""
    page.goto(address)
    page.wait_for_function(LOOK, arg=shown)
    assert page.locator(MADE).count() == 0, address
    assert page.evaluate(TURNS) == [], address
    assert page.evaluate(WIDER) <= 0, address
    assert page.evaluate(BROKEN) == [], address


@pytest.mark.parametrize(
    "key",
    [key if key == "mixed" else pytest.param(key, marks=pytest.mark.pages_more) for key in NAMES],
)
def test_each_view_shows_a_name_as_text(
    page: Page, broker: BrokerProcess, api: Api, named: dict[str, Any], key: str
) -> None:
    name = NAMES[key]
    named[key] = made(api, broker.port, name)
    for address, shown in views(api, name):
        look(page, address, shown)
    # A message, opened: its key, properties, headers and body.
    look(page, f"#/queues/{segment(name)}/{segment(name)}?tab=messages", legible(name))
    page.get_by_role("button", name="Show messages").click()
    page.locator("details.message summary").click()
    page.locator('[aria-label="Headers"]').wait_for()
    assert page.locator('[aria-label="Body"]').text_content() == FREE
    assert page.locator(MADE).count() == 0
    # The choice of a vhost, and the search.
    assert page.locator("select.vhost option").filter(has_text=legible(name)[:20]).count() > 0
    page.locator("button.find").click()
    page.get_by_role("combobox", name="Part of a name").fill(name[:12])
    page.locator("dialog [role=option]").first.wait_for()
    assert page.locator(MADE).count() == 0


#: What asks before it acts, by the view: the address after the vhost and name, and the button.
ACTS = (
    ("#/queues/{0}/{0}", "Purge …"),
    ("#/queues/{0}/{0}", "Move …"),
    ("#/queues/{0}/{0}", "Delete …"),
    ("#/queues/{0}/{0}?tab=bindings", "Bind …"),
    ("#/queues/{0}/{0}?tab=bindings", "Unbind …"),
    ("#/exchanges/{0}/{0}", "Bind …"),
    ("#/exchanges/{0}/{0}", "Delete …"),
    ("#/exchanges/{0}/{0}?tab=bindings", "Unbind …"),
    ("#/policies/{0}/{0}", "Change …"),
    ("#/policies/{0}/{0}", "Delete …"),
    ("#/connections/{1}", "Close …"),
    ("#/connections/{1}", "Close all of this user …"),
    ("#/users/{0}", "Change …"),
    ("#/users/{0}", "Delete …"),
)


@pytest.mark.pages_more
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("key", ["mixed", "long"])
def test_each_view_and_question_has_room_for_a_name(
    visitor: Any, broker: BrokerProcess, api: Api, named: dict[str, Any], key: str, size: str
) -> None:
    name = NAMES[key]
    if key not in named:
        named[key] = made(api, broker.port, name)
    page: Page = visitor.open(SIZES[size])
    for address, shown in views(api, name):
        look(page, address, shown)
    rows = api.answer("/api/connections")[1]
    assert isinstance(rows, list)
    [connection] = [segment(one["name"]) for one in rows if one["vhost"] == name]
    for address, button in ACTS:
        page.goto(address.format(segment(name), connection))
        page.locator("main").get_by_role("button", name=button).first.click()
        dialog = page.get_by_role("dialog")
        dialog.wait_for()
        assert page.locator(MADE).count() == 0, (address, button)
        assert page.evaluate(TURNS) == [], (address, button)
        assert page.evaluate(WIDER) <= 0, (address, button)
        assert dialog.evaluate(STANDS_OUT) <= 0, (address, button)
        assert page.evaluate(BROKEN) == [], (address, button)
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)


@pytest.mark.pages_more
def test_everybody_can_use_a_view_with_such_a_name(
    page: Page, broker: BrokerProcess, api: Api, named: dict[str, Any]
) -> None:
    name = NAMES["mixed"]
    if "mixed" not in named:
        named["mixed"] = made(api, broker.port, name)
    for address, shown in views(api, name):
        look(page, address, shown)
        assert faults_of(page) == [], address
