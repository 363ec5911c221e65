"""The queues of the broker's page: found, looked into, filled, emptied, moved, and removed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from leveret.client import blocking
from leveret.client.blocking import Channel
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api

# A list is asked for every five seconds, and the machine may be busy.
expect.set_options(timeout=60_000)


@pytest.fixture(scope="module")
def channel(broker: BrokerProcess) -> Iterator[Channel]:
    """A channel that confirms."""
    with blocking.connect(f"amqp://guest:guest@127.0.0.1:{broker.port}/%2F") as connection:
        channel = connection.channel()
        channel.confirm_select()
        yield channel


@pytest.fixture
def refused(visitor: Any) -> None:
    """A test in which the broker refuses something: the browser logs that as an error."""
    visitor.expects("status of 40[04]")


def filled(channel: Channel, queue: str, count: int, **arguments: object) -> None:
    """Declare a queue with messages."""
    channel.queue_declare(queue, durable=True, arguments=arguments)
    for number in range(count):
        channel.publish(b'{"number": %d}' % number, routing_key=queue)


def waiting(api: Api, queue: str) -> int:
    """Return how many messages wait in a queue."""
    status, row = api.ask("GET", f"/api/queues/%2F/{queue}")
    assert status == 200
    assert isinstance(row, dict)
    return int(row["messages_ready"])


def test_a_queue_is_found_by_its_name_and_by_the_keyboard(page: Page, channel: Channel) -> None:
    filled(channel, "found.me", 3)
    filled(channel, "other", 1)
    page.goto("#/overview")
    page.get_by_role("heading", name="Overview").wait_for()
    page.keyboard.press("g")
    page.keyboard.press("q")
    rows = page.locator("tbody tr")
    expect(rows.filter(has_text="found.me")).to_contain_text("3")
    page.get_by_label("Filter by name").fill("found")
    expect(rows).to_have_count(1)
    assert "name=found" in page.url
    page.get_by_label("Filter by name").press("Escape")
    page.get_by_role("heading", name="Queues").click()
    page.keyboard.press("/")
    page.get_by_role("combobox", name="Part of a name").fill("und.m")
    page.get_by_role("option").filter(has_text="found.me").wait_for()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("found.me")


def test_the_longest_queue_is_first_and_features_are_badges(
    page: Page, channel: Channel, api: Api
) -> None:
    arguments = {"x-message-ttl": 900_000, "x-max-priority": 3, "x-expires": 900_000}
    to_dead = {"x-dead-letter-exchange": "", "x-single-active-consumer": True}
    filled(channel, "featured.short", 1, **arguments, **to_dead)
    filled(channel, "featured.long", 4)
    policy = {"pattern": "^featured.short", "definition": {"max-length": 9}}
    assert api.change("PUT", "/api/policies/%2F/limited", policy) == 201
    page.goto("#/queues?name=featured")
    rows = page.locator("tbody tr")
    expect(rows.first).to_contain_text("featured.long")
    badges = rows.last.locator(".marks .tag")
    expect(badges).to_have_text(["D", "TTL", "Pri", "Exp", "DLX", "SAC", "Lim", "limited"])
    expect(rows.last.get_by_text("Lim", exact=True)).to_have_attribute(
        "title", "max-length = 9 (policy)"
    )
    # A column in which all rows would be equal is left out.
    vhost = page.get_by_role("columnheader", name="Vhost")
    expect(vhost).to_have_count(0)
    assert api.change("PUT", "/api/vhosts/second") == 201
    page.reload()
    expect(vhost).to_have_count(1)
    assert api.change("DELETE", "/api/vhosts/second") == 204
    page.goto("#/overview")
    longest = page.get_by_role("region", name="Longest queues").locator("tbody tr")
    expect(longest.first).to_contain_text("featured.long")
    assert api.change("DELETE", "/api/policies/%2F/limited") == 204


@pytest.mark.pages_more
def test_a_list_is_sorted_and_cut_by_the_broker(page: Page, channel: Channel, api: Api) -> None:
    filled(channel, "unasked", 0)
    for number in range(30):
        filled(channel, f"page.{number:02}", number % 3)
    page.goto("#/queues?name=page.&size=25")
    expect(page.locator("tbody tr")).to_have_count(25)
    expect(page.locator(".pager")).to_contain_text("25 of 30")
    page.get_by_role("button", name="Next page").click()
    expect(page.locator("tbody tr")).to_have_count(5)
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Ready▾")
    page.get_by_role("button", name="Ready").click()
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("Ready▴")
    expect(page.locator("tbody tr").first).to_contain_text("page.00")
    for number in range(30):
        api.ask("DELETE", f"/api/queues/%2F/page.{number:02}")
    # The page that is asked for is not there any more: the list shows the first.
    expect(page.locator(".nothing")).to_contain_text("page.")


def test_messages_are_browsed_without_being_taken(page: Page, channel: Channel, api: Api) -> None:
    filled(channel, "browsed", 25)
    page.goto("#/queues/%2F/browsed?tab=messages")
    page.get_by_role("button", name="Show messages").click()
    messages = page.locator("details.message")
    expect(messages).to_have_count(20)
    page.get_by_role("button", name="Show more").click()
    expect(messages).to_have_count(25)
    messages.nth(24).locator("summary").click()
    expect(messages.nth(24).locator("pre")).to_have_text('{\n  "number": 24\n}')
    assert waiting(api, "browsed") == 25


@pytest.mark.pages_more
def test_a_message_is_published_and_got(page: Page, channel: Channel, api: Api) -> None:
    filled(channel, "published", 0)
    page.goto("#/queues/%2F/published?tab=messages")
    form = page.get_by_role("form", name="Publish to this queue")
    form.get_by_label("Body").fill("<b>hello</b>")
    form.get_by_label("Headers").fill("no JSON")
    form.get_by_role("button", name="Publish").click()
    expect(form.get_by_role("alert")).to_contain_text("The headers are not JSON")
    form.get_by_label("Headers").fill('{"tenant": "a"}')
    form.get_by_role("button", name="Publish").click()
    expect(page.get_by_role("status")).to_contain_text("a queue has it")
    assert waiting(api, "published") == 1
    page.get_by_role("button", name="Get messages").click()
    page.get_by_label("Then").select_option("ack_requeue_false")
    page.get_by_role("button", name="Get", exact=True).click()
    page.locator("details.message summary").click()
    expect(page.get_by_label("Body").last).to_have_text("<b>hello</b>")
    assert waiting(api, "published") == 0


@pytest.mark.pages_more
def test_a_purge_names_what_is_lost(page: Page, channel: Channel, api: Api) -> None:
    filled(channel, "purged", 7)
    page.goto("#/queues/%2F/purged")
    page.get_by_role("button", name="Purge").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("7 waiting messages will be dropped")
    dialog.get_by_role("button", name="Cancel").click()
    assert waiting(api, "purged") == 7
    page.get_by_role("button", name="Purge").click()
    dialog.get_by_role("button", name="Purge").click()
    expect(page.get_by_role("status")).to_contain_text("is purged")
    assert waiting(api, "purged") == 0


@pytest.mark.pages_more
@pytest.mark.usefixtures("refused")
def test_a_queue_is_deleted_unless_it_is_not_empty(page: Page, channel: Channel, api: Api) -> None:
    filled(channel, "deleted", 2)
    page.goto("#/queues/%2F/deleted")
    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("2 messages in it will be lost")
    dialog.get_by_label("Only if it is empty").check()
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog.get_by_role("alert")).to_contain_text("not empty")
    dialog.get_by_label("Only if it is empty").uncheck()
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    assert api.ask("GET", "/api/queues/%2F/deleted")[0] == 404


@pytest.mark.pages_more
@pytest.mark.usefixtures("refused")
def test_messages_move_to_another_queue(page: Page, channel: Channel, api: Api) -> None:
    filled(channel, "moved.from", 4)
    filled(channel, "moved.to", 0)
    page.goto("#/queues/%2F/moved.from")
    page.get_by_role("button", name="Move").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("To queue").fill("moved.nowhere")
    dialog.get_by_role("button", name="Move").click()
    expect(dialog.get_by_role("alert")).to_contain_text("There is no queue 'moved.nowhere'")
    dialog.get_by_label("To queue").fill("moved.to")
    dialog.get_by_role("button", name="Move").click()
    expect(page.get_by_role("status")).to_contain_text("4 messages moved")
    assert (waiting(api, "moved.from"), waiting(api, "moved.to")) == (0, 4)


def test_dead_letters_are_told_by_reason_and_put_back(
    page: Page, channel: Channel, api: Api
) -> None:
    filled(channel, "dead", 0)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    filled(channel, "work", 5, **dead, **{"x-max-length": 3})
    rejected = channel.get("work")
    assert rejected is not None
    channel.nack(rejected.delivery_tag, requeue=False)
    page.goto("#/queues/%2F/dead?tab=dead")
    rows = page.locator("tbody tr")
    expect(rows.filter(has_text="maxlen")).to_contain_text("2")
    rows.filter(has_text="rejected").get_by_role("button", name="Put back").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 message in 'dead', dead-lettered in 'work' (rejected)")
    dialog.get_by_role("button", name="Put back").click()
    expect(page.get_by_role("status").last).to_contain_text("1 message put back")
    expect(rows).to_have_count(1)
    assert (waiting(api, "work"), waiting(api, "dead")) == (3, 2)


@pytest.mark.pages_more
def test_a_queue_says_why_it_grows(page: Page, channel: Channel) -> None:
    filled(channel, "alone", 2)
    page.goto("#/queues/%2F/alone")
    expect(page.locator(".hint")).to_contain_text("this queue has no consumers")
    page.get_by_role("link", name="Consumers").first.click()
    expect(page.locator(".empty-title")).to_have_text("Nobody consumes this queue")


@pytest.mark.pages_more
def test_a_name_that_a_browser_would_resolve_is_refused(page: Page, channel: Channel) -> None:
    channel.queue_declare("..", durable=True)
    page.goto("#/queues/%2F/..")
    expect(page.get_by_role("alert")).to_contain_text("A browser cannot name '..'")
    channel.queue_delete("..")
