"""The event stream: what is noted of a message's life, of which messages, and when nothing is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leveret.broker.attributes.message_events import EVENT_STREAM
from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.events import EVENTS_PER_TURN_MAX, Events
from leveret.broker.stream.stream import Stream
from leveret.names import Name
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish

DEAD: dict[str, object] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


def followed(every: int = 1, **options: Any) -> tuple[Node, Peer]:
    """A node that follows messages, and a client with the queue `q`."""
    node = Node(**options)
    node.core.follow(Events(node.core, node.broker.vhosts, every))
    peer = node.connect()
    peer.declare("q", arguments={})
    return node, peer


def put(peer: Peer, count: int, queue: str = "q", **properties: Any) -> None:
    """Publish so many persistent messages."""
    for number in range(count):
        peer.send(publish(1, "", queue, b"%d" % number, delivery_mode=2, **properties))


def events(node: Node, vhost: str = "/") -> list[dict[str, Any]]:
    """All events, in the order of the stream."""
    node.sync()
    stream = node.broker.vhosts[vhost].queues.by_name.get(EVENT_STREAM)
    if stream is None:
        return []
    assert isinstance(stream, Stream)
    found = []
    for block in stream.blocks:
        for message in block.messages or []:
            assert message is not None
            event = json.loads(message.body)
            assert message.address.routing_key.decode() == event["event"]
            assert message.persistent
            found.append(event)
    return found


def steps(node: Node) -> list[tuple[str, int]]:
    """The events of queues by their names and sequences."""
    return [(e["event"], e["sequence"]) for e in events(node) if "sequence" in e]


def test_a_life_from_publish_to_ack() -> None:
    node, peer = followed()
    put(peer, 1, message_id="order-7")
    node.tick(1000)
    assert peer.call_get("q").body == b"0"
    node.tick(500)
    peer.send(method(1, "basic.ack", delivery_tag=1))
    node.run()
    found = events(node)
    assert [e["event"] for e in found] == ["routed", "published", "delivered", "acked"]
    routed, published, delivered, acked = found
    assert published["queues"] == 1
    for event in (routed, delivered, acked):
        assert (event["vhost"], event["queue"], event["sequence"]) == ("/", "q", 1)
        assert (event["exchange"], event["routing_key"]) == ("", "q")
        assert (event["message_id"], event["bytes"]) == ("order-7", 1)
        assert event["taken_ms"] == routed["at_ms"]
    assert delivered["at_ms"] - routed["at_ms"] == 1000
    assert acked["at_ms"] - delivered["at_ms"] == 500


def test_a_message_that_comes_back_and_dies() -> None:
    node, peer = followed()
    peer.declare("dead", arguments={})
    peer.declare("w", arguments=DEAD)
    put(peer, 1, "w")
    peer.call_get("w")
    peer.send(method(1, "basic.reject", delivery_tag=1, requeue=True))
    peer.call_get("w")
    peer.send(method(1, "basic.reject", delivery_tag=2, requeue=False))
    node.run()
    found = [e for e in events(node) if e["event"] != "published"]
    assert [(e["event"], e["queue"], e.get("count"), e.get("reason")) for e in found] == [
        ("routed", "w", None, None),
        ("delivered", "w", None, None),
        ("requeued", "w", 1, None),
        ("delivered", "w", 1, None),
        ("dead_lettered", "w", 1, "rejected"),
        ("routed", "dead", None, None),
    ]


def test_expired_and_dropped_without_a_dead_letter_exchange() -> None:
    node, peer = followed()
    peer.declare("short", arguments={"x-message-ttl": 100})
    peer.declare("small", arguments={"x-max-length": 1})
    put(peer, 1, "short")
    put(peer, 2, "small")
    node.tick(1000)
    node.run()
    ends = [(e["event"], e["queue"], e["reason"]) for e in events(node) if "reason" in e]
    assert sorted(ends) == [("dropped", "small", "maxlen"), ("expired", "short", "expired")]


def test_a_purge_and_a_delete_are_one_event_each() -> None:
    node, peer = followed()
    put(peer, 3)
    peer.call(1, "queue.purge", queue="q")
    put(peer, 1)
    peer.call(1, "queue.delete", queue="q")
    ends = [
        (e["event"], e["sequence"]) for e in events(node) if e["event"] in ("purged", "deleted")
    ]
    assert ends == [("purged", 4), ("deleted", 5)]


def test_what_no_queue_takes_is_unroutable() -> None:
    node, peer = followed()
    peer.send(publish(1, "amq.direct", "nowhere", b"x"))
    found = events(node)
    assert [(e["event"], e["queues"], e["routing_key"]) for e in found] == [
        ("unroutable", 0, "nowhere")
    ]


def test_a_publish_says_how_many_of_its_queues_are_streams() -> None:
    """They note nothing themselves, so that its message is in no queue's events."""
    node, peer = followed()
    stream = {"x-queue-type": "stream"}
    peer.call(1, "queue.declare", queue="log", durable=True, arguments=stream)
    for queue in ("log", "q"):
        peer.call(1, "queue.bind", queue=queue, exchange="amq.fanout")
    put(peer, 1, "log")
    put(peer, 1, "q")
    peer.send(publish(1, "amq.fanout", "", b"", delivery_mode=2))
    found = [(e["queues"], e.get("streams")) for e in events(node) if e["event"] == "published"]
    assert found == [(1, 1), (1, None), (2, 1)]


def test_a_transaction_notes_its_publishes_when_it_commits() -> None:
    node, peer = followed()
    peer.call(1, "tx.select")
    put(peer, 2)
    put(peer, 1, "nobody")
    assert events(node) == []
    peer.call(1, "tx.commit")
    found = [e["event"] for e in events(node)]
    assert found == ["routed", "published", "routed", "published", "unroutable"]


def test_every_fourth_message_is_followed_whole() -> None:
    node, peer = followed(every=4)
    put(peer, 9)
    for _ in range(9):
        peer.call_get("q")
    peer.send(method(1, "basic.ack", delivery_tag=0, multiple=True))
    node.run()
    assert sorted(steps(node)) == sorted(
        (event, sequence) for event in ("routed", "delivered", "acked") for sequence in (4, 8)
    )
    assert [e["event"] for e in events(node)].count("published") == 2


def test_nothing_is_noted_and_no_stream_is_made_without_it() -> None:
    node = Node()
    peer = node.connect()
    peer.declare("q", arguments={})
    put(peer, 3)
    peer.call_get("q", no_ack=True)
    peer.call(1, "queue.purge", queue="q")
    assert events(node) == []


def test_consumers_without_acks_end_a_message_at_once() -> None:
    node, peer = followed()
    put(peer, 1)
    peer.call_get("q", no_ack=True)
    assert [step for step in steps(node) if step[0] != "routed"] == [("delivered", 1), ("acked", 1)]


def test_reading_the_events_makes_none() -> None:
    node, peer = followed()
    put(peer, 1)
    before = events(node)
    peer.call(1, "basic.qos", prefetch_count=10)
    peer.call(
        1, "basic.consume", queue=EVENT_STREAM, consumer_tag="c",
        arguments={"x-stream-offset": "first"},
    )  # fmt: skip
    node.run()
    assert peer.names() == ["basic.deliver"] * len(before)
    assert events(node) == before


@pytest.mark.in_memory
def test_events_survive_a_crash_with_what_they_tell_of() -> None:
    node, peer = followed()
    put(peer, 2)
    before = events(node)
    assert len(before) == 4
    lost_the_unsynced = node.crashed(lambda _most: 0)[0]
    again = Node(RecordingDisk(lost_the_unsynced))
    assert events(again) == before
    assert again.classic("q").ready_count() == 2


def test_each_vhost_has_its_own() -> None:
    """And one that is deleted with its queues gets none any more."""
    node, _ = followed()
    noted = node.core.events
    assert noted is not None
    node.broker.add_vhost("other")
    other = node.broker.vhosts["other"]
    queue = other.queues.create(Name("q"), QueueAttributes(True))
    noted.queue_event("routed", "other", queue.name, 1, None)
    node.run()
    assert [e["vhost"] for e in events(node, "other")] == ["other"]
    assert events(node) == []
    node.broker.delete_vhost("other")
    node.run()
    node.sync()
    assert "other" not in node.broker.vhosts
    assert EVENT_STREAM not in other.queues.by_name


def test_what_was_noted_before_a_vhost_was_deleted_is_not_told_in_a_new_one() -> None:
    node, _ = followed()
    noted = node.core.events
    assert noted is not None
    node.broker.add_vhost("other")
    noted.queue_event("routed", "other", "q", 1, None)
    node.broker.delete_vhost("other")
    node.broker.add_vhost("other")
    node.run()
    assert events(node, "other") == []
    assert noted.dropped == 1


def test_no_event_while_publishers_are_blocked() -> None:
    node, peer = followed()
    put(peer, 2)
    before = events(node)
    node.broker.judge_disk(0)
    assert node.broker.blocked
    peer.call_get("q", no_ack=True)
    assert events(node) == before
    node.broker.judge_disk(1 << 40)
    peer.call_get("q", no_ack=True)
    assert steps(node)[-2:] == [("delivered", 2), ("acked", 2)]
    assert node.core.events is not None
    assert node.core.events.dropped == 2


def test_a_turn_notes_so_many_events_and_counts_the_rest() -> None:
    node, peer = followed()
    noted = node.core.events
    assert noted is not None
    queue = node.classic("q")
    for number in range(EVENTS_PER_TURN_MAX + 1):
        noted.queue_event("routed", "/", queue.name, number + 1, None)
    node.run()
    assert len(events(node)) == EVENTS_PER_TURN_MAX
    assert noted.dropped == 1
    put(peer, 1)
    assert steps(node)[-1] == ("routed", 1)


def test_a_queue_of_that_name_that_is_no_stream_gets_none() -> None:
    node, peer = followed()
    node.broker.vhosts["/"].queues.create(EVENT_STREAM, QueueAttributes(True))
    put(peer, 1)
    assert node.classic(EVENT_STREAM).ready_count() == 0
    assert node.core.events is not None
    assert node.core.events.dropped == 2
