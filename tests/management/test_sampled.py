"""What the API tells of what was done: since when a queue is idle, what clients published."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest

from leveret.client import BasicProperties, Returned
from leveret.client.blocking import Channel
from leveret.management.metrics.totals import Walks
from leveret.management.routes.queues.queues import SORTED
from leveret.management.sampling.sampler import Sampler
from leveret.management.sampling.series import DETAILED, LISTED, Samples
from support.http.http_api import Api
from support.node.core import Node
from support.node.virtual_loop import LoopClock, lapse, run


def test_a_series_tells_when_its_values_came() -> None:
    series = Samples(["ready"], LISTED)
    assert series.changed_ms == 0
    for at, value in ((1_000, 1), (6_000, 1), (11_000, 2), (16_000, 2)):
        series.add(at, [value])
    assert series.changed_ms == 11_000


def test_a_rate_is_known_a_second_after_the_first_sample() -> None:
    series = Samples(["in", "out"], LISTED)
    assert not series.has_rates(1_000)
    series.add(1_000, [10, 5])
    assert (series.has_rates(1_999), series.rate(["in"], 60, 1_999)) == (False, 0.0)
    assert (series.has_rates(3_000), series.rate(["in"], 60, 3_000)) == (True, 25.0)
    series.add(6_000, [110, 5])
    # From the second sample on, those two count, whatever there is now.
    assert series.rate(["in", "out"], 999, 7_000) == 20.0
    more = Samples(["in", "out"], DETAILED)
    more.carry_on(series)
    assert more.rate(["in"], 999, 7_000) == 20.0


def test_few_queues_are_sampled_before_anybody_asks() -> None:
    node = Node()
    client = node.connect(1)
    for name in ("a", "b"):
        client.declare(name)

    async def watched() -> set[str]:
        sampler = Sampler(Walks(node.broker, node.clock), unasked_max=2)
        sampler.start()
        await asyncio.sleep(0)
        await sampler.sample()
        sampler.stop()
        return {name for (_, name), one in sampler.queues.items() if one.series.changed_ms}

    assert asyncio.run(watched()) == {"a", "b"}
    client.declare("one too many")
    assert asyncio.run(watched()) == set()


def test_totals_are_sampled_though_nobody_asks() -> None:
    node = Node()
    node.connect(1).declare("one too many")

    async def ages() -> list[int]:
        clock = LoopClock()
        sampler = Sampler(Walks(node.broker, clock), unasked_max=0)
        sampler.start()
        await lapse(900)
        now = clock.wall_ms()
        points = sampler.totals.points(("queue_declared",), 600_000, 60_000, now)
        sampler.stop()
        return [(now - at) // 60_000 for at, declared in points if declared == 1]

    assert run(ages()) == list(range(11))


def test_what_the_node_uses_has_rates() -> None:
    node = Node()
    used = {"fd_used": 10}

    async def rate() -> float:
        sampler = Sampler(Walks(node.broker, node.clock), lambda: used)
        await sampler.sample()
        used["fd_used"] = 25
        node.clock.advance(5_000)
        await sampler.sample()
        return sampler.totals.rate(("fd_used",), 25, sampler.now_ms())

    assert asyncio.run(rate()) == 3.0


def read(api: Api, path: str) -> Any:
    """Return what a path holds."""
    status, body, _ = api.answer(path)
    assert status == 200, body
    return body


def test_the_overview_counts_what_clients_publish_once(api: Api, channel: Channel) -> None:
    names = (
        "publish",
        "confirm",
        "return_unroutable",
        "drop_unroutable",
        "get_no_ack",
        "get_empty",
    )
    before = read(api, "/api/overview")["message_stats"]
    channel.exchange_declare("x.sampled", "fanout")
    for name in ("q.sampled.1", "q.sampled.2"):
        channel.queue_declare(name)
        channel.queue_bind(name, "x.sampled")
    channel.confirm_select()
    channel.publish(b"twice", "x.sampled")
    channel.publish(b"dropped", "amq.direct", "nowhere")
    with pytest.raises(Returned):
        channel.publish(b"returned", "amq.direct", "nowhere", mandatory=True)
    for _ in range(2):
        channel.get("q.sampled.1", no_ack=True)
    after = read(api, "/api/overview")["message_stats"]
    assert [after[name] - before[name] for name in names] == [3, 3, 1, 1, 1, 1]
    assert {after[f"{name}_details"]["rate"] >= 0 for name in names} == {True}
    for name in ("q.sampled.1", "q.sampled.2"):
        channel.queue_delete(name)
    channel.exchange_delete("x.sampled")


def test_a_new_queue_has_no_rate_yet(api: Api, channel: Channel) -> None:
    channel.queue_declare("q.new")
    channel.publish(b"x", "", "q.new")
    queue = read(api, "/api/queues/%2F/q.new")
    assert queue["message_stats"]["publish_details"]["rate"] == 0
    assert queue["rates_known"] is False
    channel.queue_delete("q.new")


def test_a_queue_tells_where_its_messages_are(api: Api, channel: Channel) -> None:
    channel.queue_declare("q.places", durable=True)
    for mode in (1, 2):
        channel.publish(b"x", "", "q.places", BasicProperties(delivery_mode=mode, timestamp=7))
    queue = read(api, "/api/queues/%2F/q.places")
    counts = ("messages_persistent", "messages_ram", "messages_ready_ram", "messages_paged_out")
    assert [queue[name] for name in counts] == [1, 2, 2, 0]
    assert queue["message_bytes_ram"] == queue["message_bytes"] > 0
    assert queue["message_bytes_paged_out"] == 0
    assert "leader" not in queue
    channel.queue_delete("q.places")


def test_a_queue_is_idle_since_a_look_that_found_it_as_it_is(api: Api, channel: Channel) -> None:
    channel.queue_declare("q.idle")
    first = read(api, "/api/queues/%2F/q.idle")["idle_since"]
    assert first.endswith("+00:00")
    assert datetime.fromisoformat(first).year >= 2024
    assert read(api, "/api/queues/%2F/q.idle")["idle_since"] == first
    channel.queue_delete("q.idle")


def test_a_stream_has_its_node_as_a_member(api: Api, channel: Channel) -> None:
    channel.queue_declare("s.member", durable=True, arguments={"x-queue-type": "stream"})
    stream = read(api, "/api/queues/%2F/s.member")
    assert stream["members"] == stream["online"] == [stream["leader"]] == [stream["node"]]
    channel.queue_delete("s.member")


def test_a_page_shows_queues_as_they_come_and_go(api: Api, channel: Channel) -> None:
    assert api.change("PUT", "/api/vhosts/paged") == 201
    rights = dict.fromkeys(("configure", "write", "read"), ".*")
    assert api.change("PUT", "/api/permissions/paged/guest", rights) == 201

    def names(query: str) -> list[str]:
        return [row["name"] for row in read(api, f"/api/queues/paged?page=1&{query}")["items"]]

    for name in "bac":
        assert api.change("PUT", f"/api/queues/paged/{name}", {}) == 201
        assert name in names("")
    assert names("") == ["a", "b", "c"]
    assert names("page_size=2") == ["a", "b"]
    assert names("page_size=2&sort_reverse=true") == ["c", "b"]
    assert names("name=b") == ["b"]
    assert api.change("DELETE", "/api/queues/paged/b") == 204
    assert names("") == ["a", "c"]
    assert (
        read(api, "/api/queues/paged?page=2&page_size=1&sort_reverse=true")["items"][0]["name"]
        == "a"
    )
    assert api.change("DELETE", "/api/vhosts/paged") == 204


def test_pages_are_sorted_by_figures(api: Api, channel: Channel) -> None:
    for name, count in (("f.a", 1), ("f.b", 3), ("f.c", 2)):
        channel.queue_declare(name)
        for _ in range(count):
            channel.publish(b"x", "", name)
        channel.get(name)

    def names(query: str) -> list[str]:
        rows = read(api, f"/api/queues?page=1&page_size=2&name=f.&{query}")["items"]
        return [row["name"] for row in rows]

    assert names("sort=messages") == ["f.a", "f.c"]
    assert names("sort=messages&sort_reverse=true") == ["f.b", "f.c"]
    assert names("sort=messages_ready,name&sort_reverse=true") == ["f.b", "f.c"]
    assert names("sort=messages_unacknowledged") == ["f.a", "f.b"]
    for column in SORTED:
        # The order is that of the column, however it was found.
        paged, whole = names(f"sort={column}"), f"/api/queues?sort={column}&columns=name"
        listed = [row["name"] for row in read(api, whole) if row["name"].startswith("f.")]
        assert paged == listed[:2], column
        assert names(f"sort={column}&sort_reverse=true") == listed[:0:-1], column
    for name in ("f.a", "f.b", "f.c"):
        channel.queue_delete(name)


def test_pages_of_many_queues_continue_each_other(api: Api, channel: Channel) -> None:
    assert api.change("PUT", "/api/vhosts/wide") == 201
    names = [f"w.{number:04}" for number in range(2_001)]
    queue = {"vhost": "wide", "durable": False, "auto_delete": False, "arguments": {}}
    queues = [{**queue, "name": name} for name in names]
    assert api.ask("POST", "/api/definitions", {"queues": queues})[0] == 200

    def page(number: int) -> dict[str, Any]:
        query = f"page={number}&page_size=100&sort=messages_ready&sort_reverse=true"
        found: dict[str, Any] = read(api, f"/api/queues/wide?{query}")
        return found

    pages = [page(number) for number in (1, 2, 5, 6)]
    assert {one["total_count"] for one in pages} == {2_001}
    listed = [row["name"] for one in pages for row in one["items"]]
    backwards = names[::-1]
    assert listed == backwards[:200] + backwards[400:600]
    assert api.change("DELETE", "/api/queues/wide/w.2000") == 204
    assert page(1)["items"][0]["name"] == "w.1999"
    assert api.change("DELETE", "/api/vhosts/wide") == 204
    assert api.answer("/api/queues/wide?page=1&sort=messages_ready&sort_reverse=true")[0] == 404
