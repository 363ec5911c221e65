"""Staged batches: published to staging queues, made visible whole by one commit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from leveret.broker.attributes.message_events import EVENT_STREAM
from leveret.broker.events import Events
from leveret.broker.policies.policy import make_policy
from leveret.broker.stats.stats import SinkStats, queue_rows, sink_rows
from leveret.errors import PreconditionFailed
from leveret.limits import (
    SLICE_MESSAGES,
)
from leveret.management.metrics.totals import Walks
from leveret.wire.properties import NO_PROPERTIES, BasicProperties
from leveret.wire.staged import read_staged, without_staged
from support.node.core import Node
from support.node.exporting import export_definitions
from support.node.staged import (
    bodies,
    checkpointed,
    claimed,
    commit,
    forget,
    killed,
    released,
    stage,
    stage_queue,
    start,
    stopped,
)
from support.wire.raw_codec import decode_properties, method, properties, publish

# -- the headers -----------------------------------------------------------------------------------


def test_the_headers_are_read_and_taken_off() -> None:
    staged: dict[str, object] = {"x-staged-exchange": "ü", "x-staged-routing-key": "k" * 255}
    others: dict[str, object] = {"a": 1, "b": {"x-staged-exchange": "no"}}
    raw = BasicProperties(headers={**others, **staged}, app_id="x", delivery_mode=1).encode()
    found = read_staged(raw)
    assert (found.exchange.decode(), found.routing_key.decode()) == ("ü", "k" * 255)
    assert (
        without_staged(raw) == BasicProperties(headers=others, app_id="x", delivery_mode=1).encode()
    )
    # Where nothing else was in the headers there were none.
    assert without_staged(BasicProperties(headers=staged).encode()) == NO_PROPERTIES
    for untouched in (NO_PROPERTIES, BasicProperties(headers={}).encode()):
        assert without_staged(untouched) == untouched
    # Unless a third one says that there was an empty table.
    empty = BasicProperties(headers={**staged, "x-staged-headers": True}).encode()
    assert without_staged(empty) == BasicProperties(headers={}).encode()
    named = {**staged, "x-staged-routing-key": "x-staged-headers"}
    assert without_staged(BasicProperties(headers=named).encode()) == NO_PROPERTIES


@pytest.mark.parametrize(
    "headers",
    [
        None,
        {},
        {"x-staged-exchange": "x"},
        {"x-staged-routing-key": "k"},
        {"x-staged-exchange": b"x", "x-staged-routing-key": "k"},
        {"x-staged-exchange": "x", "x-staged-routing-key": 1},
        {"x-staged-exchange": "x", "x-staged-routing-key": "k" * 256},
        {"x-staged-exchange": "\r\n", "x-staged-routing-key": "k"},
    ],
)
def test_what_says_not_where_to_go_is_refused(headers: dict[str, object] | None) -> None:
    raw = properties() if headers is None else properties(headers=headers)
    with pytest.raises(PreconditionFailed):
        read_staged(raw)
    node = Node()
    peer = start(node, "a")
    props: dict[str, Any] = {} if headers is None else {"headers": headers}
    peer.send(publish(1, "", "a", b"m", **props))
    assert peer.expect(1, "channel.close").code == 406
    assert node.vhost.queues.by_name["a"].ready_count() == 0


# -- a batch ---------------------------------------------------------------------------------------


def test_a_committed_batch_is_there_whole_and_in_order() -> None:
    node = Node()
    peer = start(node, "a", "b")
    stage(peer, "a", b"1", b"2")
    stage(peer, "b", b"3")
    stage(peer, "a", b"4")
    node.sync()
    assert node.vhost.queues.by_name["q"].ready_count() == 0
    assert released(peer, "b", "a") == ["basic.ack"]
    assert bodies(node) == [b"3", b"1", b"2", b"4"]
    assert set(node.vhost.queues.by_name) == {"q"}
    assert node.staging.sinks.has("s", "", 1)
    assert not node.staging.sinks.has("s", "", 2)


def test_messages_are_as_their_publisher_meant_them() -> None:
    node = Node()
    peer = start(node, "a")
    peer.declare("copy")
    peer.call(1, "exchange.declare", exchange="x", type="topic", durable=True)
    peer.call(1, "queue.bind", queue="q", exchange="x", routing_key="#")
    more = {"a": {"b": [1]}, "CC": ["more"], "BCC": ["hidden"]}
    stage(
        peer, "a", b"m", exchange="x", key="a.b", headers=more, app_id="app", expiration="60000",
        delivery_mode=1, message_id="id",
    )  # fmt: skip
    stage(peer, "a", b"n", key="copy", delivery_mode=2)
    node.tick(1000)
    assert released(peer, "a") == ["basic.ack"]
    queue = node.waiting("q")
    item = queue.ready.waiting()[0].message
    assert (item.address.exchange, item.address.routing_key) == (b"x", b"a.b")
    assert (item.persistent, int(item.timestamp_ms)) == (False, node.clock.wall_ms())
    assert decode_properties(item.properties) == {
        "headers": {"a": {"b": [1]}, "CC": ["more"]}, "app_id": "app", "expiration": "60000",
        "delivery_mode": 1, "message_id": "id",
    }  # fmt: skip
    other = node.waiting("copy").ready.waiting()[0].message
    assert (other.persistent, other.properties) == (True, properties(delivery_mode=2))
    # Its time to live began when it was released.
    node.tick(59_999)
    assert queue.ready_count() == 1
    node.tick(2)
    assert queue.ready_count() == 0


def test_an_expiration_means_nothing_before_that() -> None:
    node = Node()
    node.vhost.policies.set(make_policy("p", ".*", {"message-ttl": 5, "max-length": 1}))
    peer = start(node, "a")
    node.vhost.policies.clear("p")
    stage(peer, "a", b"1", b"2", expiration="1")
    node.vhost.policies.set(make_policy("p", "^a$", {"message-ttl": 5, "max-length": 1}))
    node.tick(1000)
    node.vhost.policies.clear("p")
    assert released(peer, "a") == ["basic.ack"]
    assert bodies(node) == [b"1", b"2"]


def test_copies_count_when_it_is_released() -> None:
    node = Node()
    peer = start(node, "a")
    peer.declare("copy")
    peer.declare("hidden")
    stage(peer, "a", b"m", headers={"CC": ["copy"], "BCC": ["hidden"]})
    node.sync()
    assert node.vhost.queues.by_name["copy"].ready_count() == 0
    assert released(peer, "a") == ["basic.ack"]
    assert [bodies(node, name) for name in ("q", "copy", "hidden")] == [[b"m"]] * 3


def test_a_transient_message_is_staged_durably() -> None:
    node = Node()
    peer = start(node, "a")
    stage(peer, "a", b"m", delivery_mode=1)
    node.sync()
    again = killed(node)
    assert released(start(again), "a") == ["basic.ack"]
    assert bodies(again) == [b"m"]


def test_a_long_batch_goes_in_slices() -> None:
    node = Node(window_bytes=20_000)
    peer = start(node, "a", "b")
    total = 2 * SLICE_MESSAGES + 17
    stage(peer, "a", *[b"%d" % number for number in range(total)])
    stage(peer, "b", b"last")
    node.sync()
    peer.take()
    commit(peer, "a", "b")
    node.run()
    assert peer.names() == []
    seen = set()
    for _ in range(100):
        if not node.begin_sync():
            break
        node.write()
        node.end_sync()
        seen.add(int(node.vhost.queues.by_name["q"].ready_count()))
    assert len(seen) > 3
    assert bodies(node) == [*[b"%d" % number for number in range(total)], b"last"]


def test_nothing_is_released_before_the_decision_is_synced() -> None:
    node = Node()
    peer = start(node, "a")
    stage(peer, "a", b"1")
    node.sync()
    peer.take()
    commit(peer, "a")
    node.begin_sync()
    node.write()
    assert (peer.names(), node.vhost.queues.by_name["q"].ready_count()) == ([], 0)
    node.end_sync()
    assert (peer.names(), node.vhost.queues.by_name["q"].ready_count()) == ([], 1)
    node.sync()
    assert peer.names() == ["basic.ack"]


def test_a_commit_waits_until_all_that_is_staged_is_synced() -> None:
    """A decision must not outlive what it is about."""
    node = Node()
    peer = start(node, "a")
    stage(peer, "a", b"1")
    commit(peer, "a")
    # What comes after it waits too, so that confirms come in order.
    peer.send(publish(1, "", "q", b"after", delivery_mode=2))
    assert node.vhost.queues.by_name["q"].ready_count() == 0
    assert not node.staging.sinks.has("s", "", 1)
    node.begin_sync()
    node.write()
    node.end_sync()
    assert node.staging.sinks.has("s", "", 1)
    node.sync()
    acks = [got for got in peer.take() if got.name == "basic.ack"]
    assert acks[-1].delivery_tag == 3
    assert bodies(node) == [b"after", b"1"]


def test_streams_and_unbound_exchanges_are_targets_too() -> None:
    node = Node()
    peer = start(node, "a")
    peer.declare("stream", arguments={"x-queue-type": "stream"})
    peer.call(1, "queue.bind", queue="stream", exchange="amq.headers", routing_key="",
              arguments={"x-match": "all", "kind": "x"})  # fmt: skip
    stage(peer, "a", b"1", exchange="amq.headers", key="", headers={"kind": "x"})
    stage(peer, "a", b"2", exchange="amq.headers", key="", headers={"kind": "y"})
    stage(peer, "a", b"3", exchange="amq.headers", key="", headers={"kind": "x"})
    assert released(peer, "a", unroutable="drop") == ["basic.ack"]
    assert node.stream("stream").ready_count() == 2
    assert node.staging.sinks.by_place["s", ""].unroutable == 1


def test_numbered_messages_are_staged_once() -> None:
    node = Node()
    peer = start(node, "a")
    for number in (1, 2, 1, 2, 3):
        headers = {"x-publisher": "p", "x-publishing-id": number}
        stage(peer, "a", b"%d" % number, headers=headers)
    assert released(peer, "a") == ["basic.ack"]
    assert bodies(node) == [b"1", b"2", b"3"]


# -- the same batch again --------------------------------------------------------------------------


def test_a_batch_that_is_committed_is_known_again() -> None:
    node = Node()
    peer = start(node, "a")
    stage(peer, "a", b"1")
    assert released(peer, "a") == ["basic.ack"]
    stage_queue(peer, "again")
    stage(peer, "again", b"1", b"2")
    node.sync()
    # Staged once more it is dropped at once, and confirmed.
    assert node.vhost.queues.by_name["again"].ready_count() == 0
    assert released(peer, "again", "a") == ["basic.ack"]
    stage_queue(peer, "old", batch=0)
    assert released(peer, "old", batch=0) == ["basic.ack"]
    assert bodies(node) == [b"1"]
    assert set(node.vhost.queues.by_name) == {"q"}


def test_what_was_staged_twice_before_the_commit_is_dropped_with_its_commit() -> None:
    node = Node()
    peer = start(node, "a", "b")
    stage(peer, "a", b"1")
    stage(peer, "b", b"1")
    assert released(peer, "a") == ["basic.ack"]
    assert released(peer, "b") == ["basic.ack"]
    assert bodies(node) == [b"1"]
    assert set(node.vhost.queues.by_name) == {"q"}


def test_a_known_batch_is_confirmed_when_it_is_released() -> None:
    node = Node()
    first, second = start(node, "a"), start(node)
    stage(first, "a", b"1")
    node.sync()
    first.take()
    commit(first, "a")
    node.begin_sync()
    commit(second, "a")
    assert first.names() == second.names() == []
    node.write()
    node.end_sync()
    node.sync()
    assert first.names() == second.names() == ["basic.ack"]


@pytest.mark.parametrize("end", [killed, checkpointed, stopped])
def test_it_is_known_after_a_restart(end: Callable[[Node], Node]) -> None:
    node = Node()
    peer = start(node, "a")
    stage(peer, "a", b"1")
    assert released(peer, "a") == ["basic.ack"]
    again = end(node)
    peer = start(again, "a")
    assert again.staging.sinks.by_place["s", ""].batch == 1
    stage(peer, "a", b"1")
    assert released(peer, "a") == ["basic.ack"]
    assert bodies(again) == [b"1"]


def test_batches_of_a_sink_come_one_after_the_other() -> None:
    node = Node()
    peer = start(node, "a")
    stage_queue(peer, "b", batch=7)
    stage(peer, "a", *[b"a%d" % number for number in range(SLICE_MESSAGES + 1)])
    stage(peer, "b", b"b")
    node.sync()
    commit(peer, "a")
    commit(peer, "b", batch=7)
    found = bodies(node)
    assert (len(found), found[-1]) == (SLICE_MESSAGES + 2, b"b")


@pytest.mark.parametrize("end", [killed, checkpointed, stopped])
def test_a_restart_goes_on_with_what_was_decided(end: Callable[[Node], Node]) -> None:
    node = Node()
    peer = start(node, "a", "b")
    stage_queue(peer, "c", batch=2)
    numbers = [b"%d" % number for number in range(2 * SLICE_MESSAGES)]
    stage(peer, "a", *numbers)
    stage(peer, "b", b"b")
    stage(peer, "c", b"c")
    node.sync()
    commit(peer, "a", "b")
    commit(peer, "c", batch=2)
    # The decisions are synced, and one slice was moved.
    node.begin_sync()
    node.write()
    node.end_sync()
    assert 0 < node.vhost.queues.by_name["q"].ready_count() < len(numbers)
    again = end(node)
    assert bodies(again) == [*numbers, b"b", b"c"]
    assert set(again.vhost.queues.by_name) == {"q"}
    assert again.staging.sinks.has("s", "", 2)


def test_what_is_not_committed_is_not_there_after_a_restart() -> None:
    node = Node()
    peer = start(node, "a")
    stage(peer, "a", b"1")
    node.sync()
    commit(peer, "a")
    assert peer.names() != []
    # The record of the decision is not written.
    again = killed(node)
    again.sync()
    assert bodies(again) == []
    assert again.vhost.queues.by_name["a"].ready_count() == 1
    assert released(start(again), "a") == ["basic.ack"]
    assert bodies(again) == [b"1"]


# -- what no queue takes ---------------------------------------------------------------------------


def test_with_fail_every_message_must_have_a_destination() -> None:
    node = Node()
    peer = start(node, "a", "b")
    stage(peer, "a", *[b"%d" % number for number in range(SLICE_MESSAGES + 5)])
    stage(peer, "b", b"1", b"2")
    stage(peer, "b", b"3", exchange="amq.topic", key="nobody")
    node.sync()
    assert released(peer, "a", "b") == ["basic.nack"]
    assert node.vhost.queues.by_name["q"].ready_count() == 0
    # Refused, the queues are free again.
    stage(peer, "b", b"4")
    assert released(peer, "a", "b", unroutable="drop") == ["basic.ack"]
    assert bodies(node)[-3:] == [b"1", b"2", b"4"]


def test_a_refused_mandatory_commit_comes_back_with_the_reason() -> None:
    node = Node()
    peer = start(node, "a")
    stage(peer, "a", b"1", key="nobody")
    node.sync()
    peer.take()
    commit(peer, "a", mandatory=True)
    node.sync()
    returned, nack = peer.take()
    assert (returned.name, returned.code, nack.name) == ("basic.return", 406, "basic.nack")
    assert "unroutable" in returned.text
    assert "nobody" in returned.text


def test_without_confirms_a_refused_commit_closes_the_channel() -> None:
    node = Node()
    peer = start(node, "a", mode="")
    stage(peer, "a", b"1", key="nobody")
    node.sync()
    commit(peer, "a")
    node.sync()
    closed = peer.expect(1, "channel.close")
    assert (closed.code, closed.class_id, closed.method_id) == (406, 60, 40)
    assert "unroutable" in closed.text


def test_what_no_queue_takes_is_dead_lettered() -> None:
    node = Node()
    peer = start(node, "a")
    peer.call(1, "exchange.declare", exchange="dead", type="fanout", durable=True)
    peer.declare("lost")
    peer.call(1, "queue.bind", queue="lost", exchange="dead", routing_key="")
    stage(peer, "a", b"1", b"2")
    stage(peer, "a", b"3", exchange="amq.topic", key="nobody", headers={"h": 1})
    assert released(peer, "a", unroutable="dead-letter:dead") == ["basic.ack"]
    assert bodies(node) == [b"1", b"2"]
    letter = node.waiting("lost").ready.waiting()[0].message
    headers = decode_properties(letter.properties)["headers"]
    assert (letter.address.exchange, letter.address.routing_key) == (b"dead", b"nobody")
    assert (headers["h"], headers["x-first-death-reason"]) == (1, "unroutable")
    assert headers["x-death"][0]["exchange"] == "amq.topic"
    assert (headers["x-death"][0]["queue"], headers["x-first-death-queue"]) == ("", "")
    assert bodies(node, "lost") == [b"3"]


def test_a_deleted_destination_loses_what_was_decided_to_be_routable() -> None:
    """As a publish a moment later would; it is counted."""
    node = Node()
    peer = start(node, "a")
    stage(peer, "a", b"1")
    node.sync()
    commit(peer, "a")
    peer.send(method(1, "queue.delete", queue="q"))
    node.sync()
    assert node.staging.sinks.by_place["s", ""].unroutable == 1
    assert set(node.vhost.queues.by_name) == set()


def test_a_full_queue_that_rejects_is_waited_for() -> None:
    node = Node()
    peer = node.connect()
    peer.declare("q", arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    peer = node.connect()
    stage_queue(peer, "a")
    peer.call(1, "confirm.select")
    stage(peer, "a", b"1", b"2", b"3", b"4", b"5")
    assert released(peer, "a") == []
    found = []
    for _ in range(3):
        node.tick(1000)
        found.append(bodies(node))
    assert found == [[b"1", b"2"], [b"3", b"4"], [b"5"]]
    assert peer.names() == ["basic.ack"]


def test_it_waits_while_the_disk_is_nearly_full() -> None:
    node = Node()
    peer = start(node, "a")
    stage(peer, "a", b"1")
    node.sync()
    commit(peer, "a")
    node.broker.disk_free_bytes_min = 100
    node.broker.judge_disk(50)
    node.sync()
    assert node.vhost.queues.by_name["q"].ready_count() == 0
    node.broker.judge_disk(10**9)
    assert bodies(node) == [b"1"]


# -- what is staged is nobody's traffic ------------------------------------------------------------


def followed_node() -> Node:
    """A node that follows every message."""
    node = Node()
    node.core.follow(Events(node.core, node.broker.vhosts, 1))
    return node


def told(node: Node) -> list[tuple[str, str | None]]:
    """The events so far: their names and queues."""
    node.sync()
    found = []
    for block in node.stream(EVENT_STREAM).blocks:
        for message in block.messages or []:
            assert message is not None
            event = json.loads(message.body)
            found.append((event["event"], event.get("queue")))
    return found


@pytest.mark.parametrize("mode", ["confirm.select", "tx.select"])
def test_a_staged_message_has_the_events_of_one_publish(mode: str) -> None:
    node = followed_node()
    peer = start(node, "a", "b", "unused", mode=mode)
    stage(peer, "a", b"1", exchange="amq.topic", key="none")
    stage(peer, "b", b"2")
    if mode == "tx.select":
        peer.call(1, "tx.commit")
    peer.call(1, "queue.purge", queue="unused")
    node.sync()
    assert EVENT_STREAM not in node.vhost.queues.by_name
    commit(peer, "a", "b", unroutable="drop")
    if mode == "tx.select":
        peer.call(1, "tx.commit")
    assert told(node) == [("unroutable", None), ("routed", "q"), ("published", None)]
    assert bodies(node) == [b"2"]
    assert told(node)[3:] == [("delivered", "q"), ("acked", "q")]


def test_a_letter_out_of_staging_is_told_of_as_published_to_nobody() -> None:
    node = followed_node()
    peer = start(node, "a")
    peer.call(1, "queue.bind", queue="q", exchange="amq.fanout", routing_key="")
    stage(peer, "a", b"1", exchange="amq.topic", key="none")
    assert released(peer, "a", unroutable="dead-letter:amq.fanout") == ["basic.ack"]
    assert sorted(told(node), key=str) == [("routed", "q"), ("unroutable", None)]


def sinks_of(node: Node) -> list[SinkStats]:
    """What management shows of the sinks."""
    return [stats for stats in sink_rows(node.vhost) if stats is not None]


def test_staging_queues_are_in_no_listing_export_or_policy() -> None:
    node = Node()
    node.vhost.policies.set(make_policy("p", ".*", {"max-length": 1}))
    peer = start(node, "a")
    node.vhost.policies.set(make_policy("p2", "^a$", {"max-length": 1}, priority=5))
    stage(peer, "a", b"1", b"2")
    node.sync()
    listed = list(queue_rows(node.broker, None))
    assert [stats.name for stats in listed] == ["q"]
    assert node.vhost.queues.by_name["a"].policy is None
    assert asyncio.run(Walks(node.broker, node.clock).totals()).sums.queues == 1
    exported = json.loads(json.dumps(export_definitions(node.broker)))
    assert [row["name"] for row in exported["queues"]] == ["q"]
    assert int(node.core.memory.held_messages) == 2


def test_sinks_show_what_they_have_staged_and_whose_it_is() -> None:
    node = Node()
    peer = start(node, "a", "b")
    stage(peer, "a", b"1234")
    node.tick(5000)
    again = checkpointed(node)
    again.tick(1000)
    for of in (node, killed(node), again):
        (row,) = sinks_of(of)
        assert (row.name, row.batch, row.owners) == ("s", -1, ["guest"])
        assert (row.staging_queues, row.staged) == (2, 1)
        assert row.staged_bytes == of.waiting("a").ready_bytes() > 4
        assert row.age_ms >= 5000
    assert sinks_of(again)[0].age_ms >= 6000
    assert released(start(again, mode="confirm.select"), "a", "b") == ["basic.ack"]
    (row,) = sinks_of(again)
    assert (row.batch, row.staging_queues, row.staged_bytes, row.age_ms) == (1, 0, 0, 0)


def test_what_was_left_of_lower_batches_goes_with_the_next_commit() -> None:
    node = Node()
    peer = start(node, "a1", "a2")
    stage_queue(peer, "same", batch=3)
    stage_queue(peer, "later", batch=4)
    stage_queue(peer, "now", batch=3)
    stage_queue(peer, "other", batch=1, sink="t")
    stage_queue(peer, "elsewhere", batch=1, destination="queue:x")
    stage(peer, "a1", b"left")
    stage(peer, "now", b"now")
    assert released(peer, "now", batch=3) == ["basic.ack"]
    expected = {"q", "same", "later", "other", "elsewhere"}
    assert set(node.vhost.queues.by_name) == expected
    assert set(killed(node).vhost.queues.by_name) == expected
    assert bodies(node) == [b"now"]
    # A driver that still stages for the lower batch hears that its queue is gone.
    peer.call(1, "queue.declare", queue="later", passive=True)
    peer.send(method(1, "queue.declare", queue="a1", passive=True))
    assert peer.expect(1, "channel.close").code == 404


# -- the destination is part of the sink -----------------------------------------------------------


def test_two_destinations_are_two_sinks() -> None:
    node = Node()
    peer = start(node)
    for destination in ("queue:x", "queue:y"):
        name = f"staged-{destination}"
        stage_queue(peer, name, destination=destination)
        stage(peer, name, destination.encode())
        assert released(peer, name, destination=destination) == ["basic.ack"]
    again = checkpointed(node)
    assert again.staging.sinks.has("s", "queue:x", 1)
    assert again.staging.sinks.has("s", "queue:y", 1)
    assert not again.staging.sinks.has("s", "queue:z", 1)
    assert not again.staging.sinks.has("s", "", 1)
    assert bodies(node) == [b"queue:x", b"queue:y"]


def test_a_queue_of_another_destination_is_not_committed() -> None:
    node = Node()
    peer = start(node)
    stage_queue(peer, "a", destination="queue:x")
    assert released(peer, "a", destination="queue:y") == ["basic.nack"]
    assert released(peer, "a") == ["basic.nack"]
    assert released(peer, "a", destination="queue:x") == ["basic.ack"]


@pytest.mark.parametrize("restart", [lambda node: node, killed, checkpointed])
def test_the_first_destination_adopts_a_sink_that_has_none(
    restart: Callable[[Node], Node],
) -> None:
    """A batch in flight while the client was brought up to date is known again."""
    node = Node()
    peer = start(node, "a")
    stage(peer, "a", b"1")
    assert released(peer, "a") == ["basic.ack"]
    node = restart(node)
    peer = start(node)
    stage_queue(peer, "again", destination="queue:x")
    stage(peer, "again", b"1")
    assert released(peer, "again", destination="queue:x") == ["basic.ack"]
    node = restart(node)
    peer = start(node)
    # The second destination is new, and the sink is known without one as well.
    stage_queue(peer, "second", destination="queue:y")
    stage(peer, "second", b"2")
    assert released(peer, "second", destination="queue:y") == ["basic.ack"]
    stage_queue(peer, "old")
    stage(peer, "old", b"1")
    assert released(peer, "old") == ["basic.ack"]
    node = restart(node)
    assert {place: int(s.batch) for place, s in node.staging.sinks.by_place.items()} == {
        ("s", "queue:x"): 1,
        ("s", "queue:y"): 1,
    }
    assert node.staging.sinks.has("s", "", 1)
    assert bodies(node) == [b"1", b"2"]


def test_a_batch_that_was_decided_without_a_destination_is_adopted_while_it_is_released() -> None:
    node = Node()
    full = node.connect()
    full.declare("full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    peer = start(node, "a")
    stage(peer, "a", b"1", b"2", key="full")
    assert released(peer, "a") == []
    stage_queue(peer, "next", batch=2, destination="queue:x")
    stage(peer, "next", b"3")
    assert released(peer, "next", batch=2, destination="queue:x") == []
    for again in (killed(node), checkpointed(node)):
        assert len(again.staging.sinks.by_place["s", "queue:x"].releases) == 2
        assert bodies(again, "full") == [b"1"]
        again.tick(10_000)
        assert bodies(again, "full") == [b"2"]
        assert bodies(again) == [b"3"]


def test_a_sink_that_is_adopted_where_an_expired_one_was_is_one_sink_after_a_start() -> None:
    """No record says that a sink expired."""
    node = Node()
    peer = start(node)
    assert released(peer, destination="queue:x") == ["basic.ack"]
    node.tick(int(node.core.publisher_expiry_ms) + 5)
    assert not node.staging.sinks.by_place
    assert released(peer) == ["basic.ack"]
    for batch in (2, 7):
        assert released(peer, batch=batch, destination="queue:x") == ["basic.ack"]
    node.sync()
    again = killed(node)
    assert list(again.staging.sinks.by_place) == [("s", "queue:x")]
    # A batch that is known without a destination is not taken once more.
    peer = start(again)
    stage_queue(peer, "again", batch=5)
    stage(peer, "again", b"again")
    assert released(peer, "again", batch=5) == ["basic.ack"]
    assert bodies(again) == []


def test_a_sink_that_is_adopted_when_a_checkpoint_begins_is_one_sink() -> None:
    """The snapshot has it with its destination, and the journal begins with it without one."""
    node = Node()
    peer = start(node)
    node.sync()
    commit(peer)
    commit(peer, batch=2, destination="queue:x")
    node.take_checkpoint()
    node.sync()
    again = killed(node)
    sinks = {place: int(sink.batch) for place, sink in again.staging.sinks.by_place.items()}
    assert sinks == {("s", "queue:x"): 2}


def test_what_is_dropped_is_counted() -> None:
    node = Node()
    peer = start(node, "a")
    assert released(peer, "a") == ["basic.ack"]
    stage_queue(peer, "again")
    stage(peer, "again", b"1", b"2")
    assert released(peer, "again") == ["basic.ack"]
    (row,) = sinks_of(node)
    assert (row.dropped, row.repeats) == (2, 1)


def test_a_batch_below_the_last_one_fails_where_that_is_asked_for() -> None:
    node = Node()
    peer = start(node)
    stage_queue(peer, "a", batch=7, destination="queue:x")
    assert released(peer, "a", batch=7, destination="queue:x", lower="fail") == ["basic.ack"]
    stage_queue(peer, "b", batch=7, destination="queue:x")
    assert released(peer, "b", batch=7, destination="queue:x", lower="fail") == ["basic.ack"]
    assert "b" not in node.vhost.queues.by_name
    stage_queue(peer, "c", batch=6, destination="queue:x")
    node.sync()
    peer.take()
    commit(peer, "c", batch=6, destination="queue:x", lower="fail", mandatory=True)
    node.sync()
    returned, nack = peer.take()
    assert nack.name == "basic.nack"
    assert returned.text.endswith("batch 6 is below 7, the last batch of sink 's' to 'queue:x'")
    assert "c" in node.vhost.queues.by_name
    assert released(peer, "c", batch=6, destination="queue:x") == ["basic.ack"]
    assert "c" not in node.vhost.queues.by_name


def test_one_destination_of_a_sink_is_forgotten_or_all_of_them() -> None:
    node = Node()
    peer = start(node)
    for destination in ("queue:x", "queue:y", "queue:z"):
        assert released(peer, destination=destination) == ["basic.ack"]
    assert forget(node, "s", "queue:x").over
    assert claimed(node.staging.sinks, "s", "queue:x") == []
    again = killed(node)
    node.sync()
    assert set(killed(node).staging.sinks.by_place) == {("s", "queue:y"), ("s", "queue:z")}
    assert len(again.staging.sinks.by_place) in (2, 3)
    assert forget(node, "s").over
    node.sync()
    assert killed(node).staging.sinks.by_place == {}
