"""Publishes with many messages to a staging queue, which stores each as one chunk."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

from leveret.errors import AmqpError
from leveret.limits import CHUNK_BYTES_MAX, CHUNK_RECORDS_MAX
from leveret.store.disks.recording import RecordingDisk
from leveret.wire.content.message_batch import BATCH_PROPERTIES, MessageBatch
from support.node.core import Node, Peer
from support.node.staged import bodies, checkpointed, commit, killed, packed, stage_packed
from support.wire.raw_codec import method, properties, publish

PLACE = {"x-staging-exchange": "", "x-staging-routing-key": "t"}
TOLD = {"x-staging-sink": "s", "x-staging-batch": 1}
BODIES = [b"%d" % number for number in range(300)]


def prepared(mode: str = "confirm.select") -> tuple[Node, Peer]:
    """A broker with the queue `t`, the staging queue `a` for it, and a connection."""
    node = Node()
    peer = node.connect()
    peer.declare("t")
    peer.declare("a", arguments=TOLD | PLACE)
    node.sync()
    if mode:
        peer.call(1, mode)
    peer.take()
    return node, peer


def waiting(node: Node, name: str) -> int:
    return int(node.vhost.queues.by_name[name].ready_count())


def test_the_confirm_follows_the_sync_of_the_chunk() -> None:
    node, peer = prepared()
    node.hold_spill = True
    stage_packed(peer, "a", packed(*BODIES))
    peer.send(publish(1, "", "t", b"alone", delivery_mode=2))
    assert waiting(node, "a") == 300
    draw = random.Random(3).randrange
    for _ in range(50):
        is_confirmed = "basic.ack" in peer.names()
        for image in [node.image(), *node.crashed(draw)]:
            again = Node(RecordingDisk(image))
            assert again.report.damages == []
            kept = waiting(again, "a")
            assert kept in ({300} if is_confirmed else {0, 300})
            again.sync()
            commit(again.connect(), "a")
            again.sync()
            assert set(bodies(again, "t")) >= set(BODIES[:kept])
        if is_confirmed:
            return
        if node.begin_sync():
            node.write()
            node.end_sync()
        elif not node.write_batch():
            node.run()
    raise AssertionError("not confirmed")


def test_messages_keep_their_place_among_others() -> None:
    node, peer = prepared()
    expected = []
    for number in range(3):
        alone = [b"alone %d.%d" % (number, at) for at in range(5)]
        peer.send(*[publish(1, "", "a", body, delivery_mode=2) for body in alone])
        together = [b"%d.%d" % (number, at) for at in range(300)]
        stage_packed(peer, "a", packed(*together))
        expected += alone + together
    node.sync()
    commit(peer, "a")
    node.sync()
    assert bodies(node, "t") == expected


@pytest.mark.parametrize("end", [None, killed, checkpointed])
def test_a_queue_with_rules_judges_each_message(end: Callable[[Node], Node] | None) -> None:
    node = Node()
    peer = node.connect()
    peer.declare("t", arguments={"x-max-length": 250})
    peer.declare("a", arguments=TOLD | PLACE)
    stage_packed(peer, "a", packed(*BODIES))
    node.sync()
    if end is not None:
        node = end(node)
    commit(node.connect(), "a")
    node.sync()
    assert bodies(node, "t") == BODIES[-250:]


@pytest.mark.parametrize("request_name", ["queue.delete", "queue.purge"])
def test_a_queue_that_is_emptied_before_the_chunk_is_written(request_name: str) -> None:
    node, peer = prepared()
    node.hold_spill = True
    stage_packed(peer, "a", packed(*BODIES))
    other = node.connect()
    other.call(1, request_name, queue="a")
    node.sync()
    assert peer.names() == []
    node.write_batch()
    node.sync()
    assert "basic.ack" in peer.names()
    again = Node(RecordingDisk(node.image()))
    assert again.report.damages == []
    assert "a" not in again.vhost.queues.by_name or waiting(again, "a") == 0


def test_a_commit_of_unconfirmed_messages_is_refused() -> None:
    node, peer = prepared()
    node.hold_spill = True
    stage_packed(peer, "a", packed(*BODIES))
    commit(peer, "a", mandatory=True)
    got = peer.expect(1, "basic.return")
    assert "batches that are not confirmed yet" in got.fields["text"]
    node.hold_spill = False
    node.sync()
    # Confirms are in the order of the publishes.
    assert peer.names() == ["basic.ack", "basic.nack"]
    commit(peer, "a")
    node.sync()
    assert waiting(node, "t") == 300


def test_a_commit_may_follow_confirmed_messages_whose_chunk_is_being_written() -> None:
    node, peer = prepared()
    node.hold_spill = True
    node.core.memory.window_bytes = 1000
    alone = [b"%d" % number + bytes(300) for number in range(300)]
    peer.send(*[publish(1, "", "a", body, delivery_mode=2) for body in alone])
    node.waiting("a").evict()
    node.sync()
    assert not node.waiting("a").stored.are_durable()
    peer.take()
    commit(peer, "a")
    node.hold_spill = False
    node.sync()
    assert "basic.ack" in peer.names()
    assert bodies(node, "t") == alone


def test_a_commit_is_refused_until_the_record_of_a_chunk_is_in_the_journal() -> None:
    node, peer = prepared()
    node.hold_spill = True
    stage_packed(peer, "a", packed(*BODIES))
    # Another record, behind which that of the chunk comes.
    node.connect().send(publish(1, "", "t", b"other", delivery_mode=2))
    node.write_batch()
    commit(peer, "a", mandatory=True)
    node.sync()
    assert "basic.nack" in peer.names()
    assert ("s", "") not in node.staging.sinks.by_place


def test_messages_for_a_committed_batch_are_dropped() -> None:
    node, peer = prepared()
    stage_packed(peer, "a", packed(*BODIES))
    node.sync()
    commit(peer, "a")
    node.sync()
    peer.take()
    peer.declare("a", arguments=TOLD | PLACE)
    stage_packed(peer, "a", packed(*BODIES))
    node.sync()
    assert "basic.ack" in peer.names()
    assert (waiting(node, "a"), waiting(node, "t")) == (0, 300)


def test_a_quota_counts_them() -> None:
    node, peer = prepared()
    node.vhost.limits.add({"max-messages": 400})
    for _ in range(2):
        stage_packed(peer, "a", packed(*BODIES))
        node.sync()
    assert "basic.nack" in peer.names()
    assert waiting(node, "a") == 300


# -- what is refused -------------------------------------------------------------------------------


def numbers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


PRIORITY = properties(priority=3)
EXPIRING = properties(expiration="1000")

MANY = [b"1"] * 300

MALFORMED = {
    "empty": b"",
    "no head": numbers(1),
    "no messages": numbers(0, 0),
    "too few": packed(*[b"1"] * 255),
    "too many": packed(*[b""] * (CHUNK_RECORDS_MAX + 1)),
    "too large": packed(bytes(CHUNK_BYTES_MAX)),
    "negative": numbers(2**32 - 1, 0),
    "too short": packed(*MANY)[:-1],
    "too long": packed(*MANY) + b"3",
    "a body's size": numbers(300, 600, *[2] * 300, *[1] * 299, 2) + bytes(600) + b"1" * 300,
    "properties' size": numbers(300, 601, *[2] * 300, *[0] * 300) + bytes(601),
    "properties that cross": numbers(300, 600, 1, 3, *[2] * 298, *[0] * 300) + bytes(600),
    "wrapping sizes": numbers(300, 600, *[2] * 300, 2**32 - 1, 2, *[0] * 298) + bytes(600) + b"1",
    "priority": packed(*MANY, properties=PRIORITY),
    "expiration": packed(*MANY, properties=EXPIRING),
    "CC": packed(*MANY, properties=properties(headers={"CC": ["u"]})),
    "another user": packed(*MANY, properties=properties(user_id="else")),
    "no frame": packed(b"1", properties=properties(headers={"h": "x" * 140_000})),
}


#: The texts of the refusals of these; of all others the sizes do not match the length.
TEXTS = {
    **dict.fromkeys(("empty", "no head", "no messages", "too few", "negative"), "fewer than 256"),
    **dict.fromkeys(("too many", "too large"), "larger than a chunk"),
    **dict.fromkeys(("priority", "expiration", "CC"), "an expiration, a priority, copies"),
    "another user": "user_id property set to 'else'",
    "no frame": "fit into no frame",
}


@pytest.mark.parametrize("why", MALFORMED)
def test_a_malformed_batch_closes_the_channel_and_changes_nothing(why: str) -> None:
    node, peer = prepared()
    stage_packed(peer, "a", MALFORMED[why])
    node.sync()
    closed = peer.expect(1, "channel.close")
    assert closed.code == 406
    assert TEXTS.get(why, "sizes do not match") in closed.fields["text"]
    assert waiting(node, "a") == 0


def test_illegal_properties_close_the_connection() -> None:
    node, peer = prepared()
    stage_packed(peer, "a", packed(*MANY, properties=b"\x80\x00\xff"))
    node.sync()
    assert peer.expect(0, "connection.close").code == 502
    assert waiting(node, "a") == 0


def test_a_batch_needs_a_queue_with_one_place_and_no_transaction() -> None:
    node, peer = prepared("tx.select")
    stage_packed(peer, "a", packed(*BODIES))
    assert peer.expect(1, "channel.close").code == 406
    other = node.connect()
    other.declare("b", arguments=TOLD)
    stage_packed(other, "b", packed(*BODIES))
    assert other.expect(1, "channel.close").code == 406
    # Elsewhere it is a message like others.
    other.send(method(1, "channel.close-ok"))
    third = node.connect()
    stage_packed(third, "t", packed(b"1"))
    assert bodies(node, "t") == [packed(b"1")]


def test_the_mark_of_a_batch_is_its_only_property() -> None:
    assert properties(headers={"x-staged-batch": True}) == BATCH_PROPERTIES


def test_any_bytes_are_a_batch_or_refused() -> None:
    draw = random.Random(11)
    good = packed(*[bytes(draw.randrange(9)) for _ in range(300)])
    taken = 0
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(draw.randrange(4)):
            data[draw.randrange(len(data))] = draw.choice((0, 1, 2, 3, 16, 255))
        try:
            batch = MessageBatch(bytes(data))
        except AmqpError:
            continue
        taken += 1
        assert batch.size == len(batch.properties) + len(batch.bodies)
        assert all(properties in batch.properties for properties in batch.distinct)
    assert taken > 100
