"""The address of a view has all that is chosen on it: a link, a reload and the way back keep it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api

expect.set_options(timeout=60_000)

RIGHTS = {"configure": ".*", "write": ".*", "read": ".*"}


@pytest.fixture(scope="module", autouse=True)
def vhosts(broker: BrokerProcess) -> Iterator[None]:
    """Two vhosts, each with a queue."""
    with closing(Api(broker.data_dir / "management.sock")) as api:
        assert api.change("PUT", "/api/queues/%2F/here", {"durable": True}) == 201
        made_vhost(api, "there")
        assert api.change("PUT", "/api/queues/there/elsewhere", {"durable": True}) == 201
        yield


def made_vhost(api: Api, name: str) -> None:
    """Add a vhost that guest may enter."""
    assert api.change("PUT", f"/api/vhosts/{name}") == 201
    assert api.change("PUT", f"/api/permissions/{name}/guest", RIGHTS) in (201, 204)


def rows(page: Page) -> Locator:
    return page.locator("tbody tr")


def test_the_chosen_vhost_is_part_of_the_address(page: Page) -> None:
    page.goto("#/queues?sort=name")
    expect(rows(page)).to_have_count(2)
    page.get_by_label("Vhost").select_option("there")
    expect(rows(page)).to_have_count(1)
    expect(page).to_have_url(re.compile(r"#/queues\?sort=name&vhost=there$"))
    page.reload()
    expect(page.get_by_label("Vhost")).to_have_value("there")
    expect(rows(page)).to_contain_text("elsewhere")
    # Other views have it too, and the browser's way back has what was chosen before.
    page.locator("nav.views").get_by_role("link", name="Exchanges").click()
    expect(page).to_have_url(re.compile(r"#/exchanges\?vhost=there$"))
    page.go_back()
    page.go_back()
    expect(page.get_by_label("Vhost")).to_have_value("")
    expect(rows(page)).to_have_count(2)
    page.go_forward()
    expect(page.get_by_label("Vhost")).to_have_value("there")
    expect(rows(page)).to_have_count(1)


@pytest.mark.pages_more
def test_what_is_of_another_vhost_is_left_for_the_list(page: Page) -> None:
    page.goto("#/queues/%2F/here?tab=bindings")
    page.get_by_label("Vhost").select_option("there")
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    expect(rows(page)).to_contain_text("elsewhere")
    page.get_by_role("link", name="elsewhere").click()
    page.get_by_label("Vhost").select_option("")
    expect(page.get_by_role("heading", level=1)).to_contain_text("elsewhere")
    page.get_by_role("link", name="vhost there").click()
    expect(rows(page)).to_have_count(1)


@pytest.mark.pages_more
def test_a_vhost_that_is_gone_is_told(visitor: Any, api: Api) -> None:
    # The list of a vhost that is not there is refused.
    visitor.expects("status of 404")
    made_vhost(api, "passing")
    page = visitor.open()
    page.goto("#/queues")
    expect(rows(page)).to_have_count(2)
    # A vhost that is newer than the list of vhosts is no mistake.
    made_vhost(api, "new")
    page.goto("#/queues?vhost=new")
    expect(page.get_by_label("Vhost")).to_have_value("new")
    expect(page.locator(".empty-title")).to_have_text("There is no queue here")
    page.get_by_label("Vhost").select_option("passing")
    assert api.change("DELETE", "/api/vhosts/passing") == 204
    expect(page.locator(".said")).to_contain_text("There is no vhost 'passing'")
    expect(rows(page)).to_have_count(2)
    expect(page).to_have_url(re.compile(r"#/queues$"))
    assert api.change("DELETE", "/api/vhosts/new") == 204


@pytest.mark.pages_more
def test_a_stream_is_shown_among_streams(visitor: Any, api: Api) -> None:
    # The stream is deleted while it is shown.
    visitor.expects("status of 404")
    page = visitor.open()
    stream = {"durable": True, "arguments": {"x-queue-type": "stream"}}
    assert api.change("PUT", "/api/queues/%2F/kept", stream) == 201
    page.goto("#/streams")
    page.get_by_role("link", name="kept").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Stream kept")
    expect(page.locator("nav.views [aria-current]")).to_have_text("Streams")
    expect(page.locator(".empty-title")).to_have_text("Nobody has stored an offset")
    page.get_by_role("link", name="State").click()
    expect(page.locator("main")).to_contain_text("Message rates")
    assert api.change("DELETE", "/api/queues/%2F/kept") == 204
    expect(page.locator(".empty-title")).to_contain_text("There is no such")
