"""What the broker's page asks before it acts fits a phone, and everybody can answer it."""

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

expect.set_options(timeout=60_000)

pytestmark = pytest.mark.pages_more

SIZES = [(1280, 800), (390, 844)]

#: By the address of a view, the buttons in it that ask.
ASKS = {
    "#/queues": ["Declare a queue"],
    "#/queues/%2F/kept": ["Purge …", "Move …", "Rewind …", "Delete …"],
    "#/queues/%2F/kept?tab=bindings": ["Bind …", "Unbind …"],
    "#/queues/%2F/dead?tab=dead": ["Put back …"],
    "#/queues/%2F/read?tab=stream": ["Rewind …", "Forget …"],
    "#/streams": ["Declare a stream"],
    "#/exchanges": ["Declare an exchange"],
    "#/exchanges/%2F/later": ["Bind …", "Delete …"],
    "#/exchanges/%2F/later?tab=bindings": ["Unbind …"],
    "#/exchanges/%2F/later?tab=delayed": ["Cancel …", "Cancel all …"],
    "#/policies": ["Add a policy", "Add an operator policy"],
    "#/policies/%2F/bounded": ["Change …", "Delete …"],
    "#/users": ["Add a user", "Change …", "Delete …", "Permissions of guest in /"],
    "#/connections/CONNECTION": ["Close …", "Close all of this user …"],
    "#/definitions": ["Apply …"],
}


@pytest.fixture(scope="module", autouse=True)
def topology(broker: BrokerProcess) -> Iterator[None]:
    """What each question is about."""
    api = Api(broker.data_dir / "management.sock")
    # Nobody deletes oneself.
    assert api.change("PUT", "/api/users/other", {"password": "other", "tags": ""}) == 201
    policy = {"pattern": "^kept", "definition": {"max-length": 9}, "apply-to": "queues"}
    assert api.change("PUT", "/api/policies/%2F/bounded", policy) == 201
    with blocking.connect(broker.uri, connection_name="asked") as connection:
        channel = connection.channel()
        channel.confirm_select()
        kept = {"x-retain-acked": "1h", "x-dead-letter-exchange": "dead"}
        channel.queue_declare("kept", durable=True, arguments=kept)
        channel.exchange_declare("dead", "fanout", durable=True)
        channel.queue_declare("dead", durable=True)
        channel.queue_bind("dead", "dead", "")
        for _ in range(2):
            channel.publish(b"", routing_key="kept")
        channel.get("kept", no_ack=True)
        rejected = channel.get("kept")
        assert rejected is not None
        channel.reject(rejected.delivery_tag, requeue=False)
        delayed = {"x-delayed-type": "topic"}
        channel.exchange_declare("later", "x-delayed-message", durable=True, arguments=delayed)
        channel.queue_bind("kept", "later", "#")
        in_an_hour = BasicProperties(headers={"x-delay": 3_600_000}, delivery_mode=2)
        channel.publish(b"", "later", "in.an.hour", in_an_hour)
        channel.queue_declare("read", durable=True, arguments={"x-queue-type": "stream"})
        reader = "/api/streams/%2F/read/consumers/job"
        assert api.change("PUT", reader, {"offset": "next"}) in (201, 204)
        yield
    api.close()


def ask(page: Page, button: str) -> None:
    """Press a button of a view; one of definitions is there when a file is chosen."""
    if button.startswith("Apply"):
        given = b'{"queues": [{"vhost": "/", "name": "new", "durable": true}]}'
        file = {"name": "d.json", "mimeType": "application/json", "buffer": given}
        page.get_by_label("File").set_input_files(file)
    if button.startswith("Permissions"):
        page.get_by_title(button).click()
    else:
        page.locator("main").get_by_role("button", name=button, exact=True).first.click()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES, ids=["wide", "narrow"])
def test_each_question_can_be_answered(
    visitor: Any, api: Api, size: tuple[int, int], scheme: str
) -> None:
    """No question is wider than its window or breaks a word, and axe finds nothing."""
    status, rows = api.ask("GET", "/api/connections")
    assert status == 200
    assert isinstance(rows, list)
    [name] = [quote(row["name"], safe="") for row in rows if row["user_provided_name"] == "asked"]
    page = visitor.open(size, color_scheme=scheme)
    for address, buttons in ASKS.items():
        for button in buttons:
            page.goto(address.replace("CONNECTION", name))
            ask(page, button)
            dialog = page.get_by_role("dialog")
            dialog.wait_for()
            # By the keyboard alone one is in it.
            assert page.evaluate("document.activeElement.closest('dialog') !== null"), button
            assert page.evaluate(WIDER) <= 0, (address, button)
            assert page.evaluate(BROKEN) == [], (address, button)
            assert dialog.evaluate(STANDS_OUT) <= 0, (address, button)
            assert faults_of(page) == [], (address, button)
            page.keyboard.press("Escape")
            expect(dialog).to_have_count(0)
