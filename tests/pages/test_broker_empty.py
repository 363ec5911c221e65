"""Each view of the broker's page where there is nothing yet says so, and what to do."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from support.http.http_api import Api
from support.pages.page_measures import BROKEN, WIDER, faults_of

expect.set_options(timeout=60_000)

pytestmark = pytest.mark.pages_more

#: The views of a broker on which nobody has done anything, with what each says.
NOTHING = (
    ("#/overview", "Overview"),
    ("#/queues", "There is no queue yet"),
    ("#/streams", "There is no stream yet"),
    ("#/exchanges", "amq.direct"),
    ("#/exchanges/%2F/amq.direct", "Nothing is bound"),
    ("#/exchanges/%2F/amq.direct?tab=bindings", "Nothing is bound to it"),
    ("#/exchanges/%2F/amq.direct?tab=publish", "Publish"),
    ("#/connections", "No client is connected"),
    ("#/channels", "No channel is open"),
    ("#/policies", "There is no policy yet"),
    ("#/users", "guest"),
    ("#/definitions", "Download definitions"),
    ("#/log", "listening on"),
)
#: The views of a queue and a stream in which nothing is.
EMPTY = (
    ("#/queues/%2F/empty", "Message rates"),
    ("#/queues/%2F/empty?tab=consumers", "Nobody consumes this queue"),
    ("#/queues/%2F/empty?tab=bindings", "Bind"),
    ("#/queues/%2F/empty?tab=messages", "Show messages"),
    ("#/queues/%2F/empty?tab=dead", "dead letter"),
    ("#/queues/%2F/void?tab=stream", "Readers"),
    ("#/queues/%2F/missing", "missing"),
    ("#/exchanges/%2F/missing", "missing"),
    ("#/policies/%2F/missing", "There is no policy yet"),
    ("#/connections/missing", "missing"),
    ("#/channels/missing", "missing"),
    ("#/vhosts/missing", "There is no such vhost"),
    ("#/users/missing", "There is no such user"),
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 800), (390, 844)], ids=["wide", "narrow"])
@pytest.mark.parametrize("views", [NOTHING, EMPTY], ids=["nothing", "empty"])
def test_each_view_says_that_there_is_nothing(
    visitor: Any, api: Api, views: tuple[tuple[str, str], ...], size: tuple[int, int], scheme: str
) -> None:
    visitor.expects("status of 404")
    if views is EMPTY:
        for name, arguments in (("empty", {}), ("void", {"x-queue-type": "stream"})):
            body = {"durable": True, "arguments": arguments}
            assert api.change("PUT", f"/api/queues/%2F/{name}", body) in (201, 204)
    page = visitor.open(size, color_scheme=scheme)
    for address, text in views:
        page.goto(address)
        expect(page.locator("main")).to_contain_text(text)
        expect(page.locator("main .loading")).to_have_count(0)
        assert page.evaluate(WIDER) <= 0, address
        assert page.evaluate(BROKEN) == [], address
        assert faults_of(page) == [], address
    if views is EMPTY:
        for name in ("empty", "void"):
            assert api.change("DELETE", f"/api/queues/%2F/{name}") == 204
