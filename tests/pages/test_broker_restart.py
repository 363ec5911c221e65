"""The page while the broker is away, and when it is back: by itself, with the view kept."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from leveret.client import blocking
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api

expect.set_options(timeout=60_000)

pytestmark = pytest.mark.pages_more

#: As a proxy that logs its users in sends it.
BASIC = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="}
VIEW = "#/queues?name=orders&sort=messages_ready&reverse=true"


@pytest.fixture(scope="module")
def port() -> int:
    """A port that is free now, so that a broker that starts again has it again."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[BrokerProcess]:
    """A broker with some queues whose page is always at the same address."""
    data_dir = tmp_path_factory.mktemp("data")
    with BrokerProcess(data_dir, flags=["--http-port", str(port)]) as process:
        api = Api(data_dir / "management.sock")
        for name in ("orders.eu", "orders.us", "mail"):
            assert api.change("PUT", f"/api/queues/%2F/{name}", {"durable": True}) == 201
        api.close()
        yield process


@pytest.fixture
def base(broker: BrokerProcess, port: int) -> str:
    """The address of its page."""
    return f"http://127.0.0.1:{port}/"


@pytest.fixture
def away(visitor: Any) -> None:
    """A test in which the broker is away for a while: the browser logs that as errors."""
    visitor.expects("ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE")
    visitor.expects("ERR_SOCKET_NOT_CONNECTED|status of 401|ERR_INCOMPLETE_CHUNKED_ENCODING")


def publish(broker: BrokerProcess, count: int) -> None:
    """Publish to one of the queues; confirmed messages outlive a crash."""
    with blocking.connect(broker.uri) as connection:
        channel = connection.channel()
        channel.confirm_select()
        for _ in range(count):
            channel.publish(b"", routing_key="orders.us")


def first_row(page: Page) -> Any:
    return page.locator("tbody tr").first


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_the_page_goes_on_by_itself(visitor: Any, broker: BrokerProcess, how: str) -> None:
    page = visitor.open(user=None, extra_http_headers=BASIC)
    page.goto(VIEW)
    expect(page.locator("tbody tr")).to_have_count(2)
    getattr(broker, how)()
    banner = page.locator(".banner")
    expect(banner).to_contain_text("The broker does not answer")
    # What was known stays, and is marked as old.
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator("main.old")).to_have_count(1)
    expect(page.locator("header.old .health")).to_have_text("no answer")
    broker.start()
    publish(broker, 3)
    expect(first_row(page)).to_contain_text("orders.us")
    expect(first_row(page)).to_contain_text("3")
    expect(banner).to_have_count(0)
    expect(page.locator("main.old")).to_have_count(0)
    assert page.url.endswith(VIEW)
    with closing(Api(broker.data_dir / "management.sock")) as api:
        api.change("DELETE", "/api/queues/%2F/orders.us/contents")


@pytest.mark.usefixtures("away")
def test_a_session_ends_with_the_broker_and_the_view_is_kept(
    visitor: Any, broker: BrokerProcess
) -> None:
    page = visitor.open()
    page.goto(VIEW)
    expect(page.locator("tbody tr")).to_have_count(2)
    broker.restart()
    expect(page.get_by_role("status")).to_contain_text("Your session has ended")
    page.get_by_label("Name").fill("guest")
    page.get_by_label("Password").fill("guest")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    assert page.url.endswith(VIEW)


@pytest.mark.usefixtures("away")
def test_the_log_goes_on_after_a_restart(visitor: Any, broker: BrokerProcess) -> None:
    page = visitor.open(user=None, extra_http_headers=BASIC)
    page.goto("#/log")
    expect(page.locator(".log")).to_contain_text("listening on http")
    broker.kill()
    expect(page.locator(".hint")).to_contain_text("The log was interrupted")
    expect(page.locator(".banner")).to_contain_text("The broker does not answer")
    broker.start()
    with closing(Api(broker.data_dir / "management.sock")) as api:
        assert api.change("PUT", "/api/vhosts/made-after") == 201
        expect(page.locator(".log")).to_contain_text("made-after")
        expect(page.locator(".hint")).to_have_count(0)
        expect(page.locator(".banner")).to_have_count(0)
        assert api.change("DELETE", "/api/vhosts/made-after") == 204


@pytest.mark.usefixtures("away")
def test_a_view_that_was_not_loaded_before_is_loaded_when_the_broker_is_back(
    visitor: Any, broker: BrokerProcess
) -> None:
    page = visitor.open(user=None, extra_http_headers=BASIC)
    other = visitor.open(user=None, extra_http_headers=BASIC)
    for one in (page, other):
        one.goto("#/overview")
        expect(one.locator("main")).to_contain_text("Message rates")
    broker.kill()
    failure = page.locator(".failure")
    for one in (other, page):
        one.goto("#/users")
        expect(one.locator(".failure")).to_contain_text("could not be loaded")
    other.goto("#/overview")
    other.evaluate("globalThis.isKept = true")
    expect(failure.get_by_role("button", name="Try again")).to_be_visible()
    # It is loaded without a click as soon as the broker answers.
    broker.start()
    expect(page.get_by_role("heading", level=1)).to_have_text("Users")
    expect(page.locator("tbody").first).to_contain_text("guest")
    # A page that shows a loaded view again is not reloaded: its user may be typing.
    expect(other.locator(".banner")).to_have_count(0)
    assert other.evaluate("globalThis.isKept")


@pytest.mark.usefixtures("away")
def test_what_is_done_meanwhile_says_that_it_was_not(visitor: Any, broker: BrokerProcess) -> None:
    page = visitor.open(user=None, extra_http_headers=BASIC)
    page.goto("#/queues/%2F/mail")
    page.get_by_role("button", name="Purge …").click()
    dialog = page.get_by_role("dialog")
    broker.kill()
    dialog.get_by_role("button", name="Purge").click()
    expect(dialog.get_by_role("alert")).to_contain_text("The broker does not answer")
    broker.start()
    dialog.get_by_role("button", name="Purge").click()
    expect(page.locator(".said")).to_contain_text("is purged")


@pytest.mark.usefixtures("away")
def test_what_fails_after_its_dialog_was_closed_is_told(
    visitor: Any, broker: BrokerProcess
) -> None:
    """And the question that was asked meanwhile stays."""
    page = visitor.open(user=None, extra_http_headers=BASIC)
    page.goto("#/queues/%2F/mail")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/contents", hold)
    dialog = page.get_by_role("dialog")
    page.get_by_role("button", name="Purge …").click()
    with page.expect_request("**/contents"):
        dialog.get_by_role("button", name="Purge").click()
    dialog.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Move …").click()
    expect(dialog).to_contain_text("Move messages of queue 'mail'")
    held[0].abort("connectionrefused")
    expect(page.locator(".said")).to_contain_text("Purge queue 'mail': The broker does not answer")
    expect(dialog).to_contain_text("Move messages of queue 'mail'")


@pytest.mark.usefixtures("away")
def test_a_search_without_an_answer_does_not_say_that_nothing_is_there(
    visitor: Any, broker: BrokerProcess
) -> None:
    page = visitor.open(user=None, extra_http_headers=BASIC)
    page.goto("#/queues")
    expect(page.locator("tbody tr")).to_have_count(3)
    broker.kill()
    page.keyboard.press("/")
    page.get_by_role("combobox", name="Part of a name").fill("orders")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("alert")).to_contain_text("The broker does not answer")
    expect(dialog.locator(".nothing")).to_have_count(0)
    broker.start()


@pytest.mark.usefixtures("away")
def test_who_cannot_sign_out_is_told(visitor: Any, broker: BrokerProcess) -> None:
    page = visitor.open()
    page.goto("#/queues")
    expect(page.locator("tbody tr")).to_have_count(3)
    broker.kill()
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator(".said")).to_contain_text("You are still signed in")
    # What needs an answer first is not asked without one.
    page.get_by_role("button", name="Declare a queue").click()
    expect(page.locator(".said")).to_contain_text("The broker does not answer")
    broker.start()
