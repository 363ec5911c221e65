"""The header of the page: the name and version of the broker, its vhost, and its health."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from leveret import __version__
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api

expect.set_options(timeout=60_000)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose disk is never free enough, with a name."""
    settings = {"disk_free_bytes_min": "900TB"}
    with BrokerProcess(tmp_path_factory.mktemp("data"), settings=settings) as process:
        yield process


def test_the_header_names_the_broker_and_what_is_wrong(visitor: Any, api: Api) -> None:
    assert api.change("PUT", "/api/cluster-name", {"name": "shop"}) == 204
    page = visitor.open()
    page.goto("#/queues")
    header = page.get_by_role("banner")
    expect(header).to_contain_text(f"shop {__version__}")
    expect(header).to_contain_text("vhost /")
    expect(page).to_have_title("queues · shop")
    header.get_by_role("link", name="Disk alarm").click()
    expect(page.get_by_role("alert")).to_contain_text("Disk alarm: publishers are blocked")
    assert api.change("PUT", "/api/vhosts/other") == 201
    page.reload()
    expect(header.get_by_label("Vhost")).to_contain_text("other")


def test_users_who_may_not_see_the_node_see_no_health(visitor: Any, api: Api) -> None:
    assert api.change("PUT", "/api/users/ada", {"password": "guest", "tags": "management"}) == 201
    page = visitor.open(user="ada")
    page.goto("#/overview")
    expect(page.locator(".broker-name")).to_have_text("shop")
    expect(page.locator(".health")).to_have_count(0)
