"""The 32 levels of a quorum queue, which it keeps from the first message on that needs one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.backlog.priorities import PriorityReady
from leveret.errors import PreconditionFailed
from leveret.names import Name
from leveret.store.disks.recording import RecordingDisk
from leveret.store.survey.salvage import Salvage, write_salvage
from leveret.store.survey.survey import Survey
from support.node.core import Node, Peer, all_waiting
from support.node.paged import no_chance
from support.wire.raw_codec import method, publish

WINDOWS = pytest.mark.parametrize("window", [1 << 30, 20_000, 0], ids=["flat", "some", "paged"])


def declared(window: int, **arguments: Any) -> Peer:
    """A client of the quorum queue `q`."""
    peer = Node(window_bytes=window).connect()
    peer.declare("q", arguments={"x-queue-type": "quorum"} | arguments)
    return peer


def put(peer: Peer, body: bytes, priority: int | None = None, mode: int = 2) -> None:
    """Publish a message."""
    more: dict[str, Any] = {} if priority is None else {"priority": priority}
    peer.send(publish(1, "", "q", body, delivery_mode=mode, **more))


def level(priority: int | None) -> int:
    """The level of a message, as in RabbitMQ 4.3."""
    return 4 if priority is None else min(priority, 31)


def again(peer: Peer, crash: bool) -> Peer:
    """Start again, after a stop in order or after a crash."""
    node = peer.node
    image = node.crashed(no_chance)[0] if crash else node.stop()
    disk = RecordingDisk(image)
    return Node(disk, window_bytes=int(node.core.memory.window_bytes), clock=node.clock).connect()


def drained(peer: Peer) -> list[bytes]:
    """Take all that waits."""
    bodies = []
    while peer.node.classic("q").ready_count() > 0:
        bodies.append(peer.call_get("q", no_ack=True).body)
    return bodies


@WINDOWS
def test_the_highest_goes_first_and_4_is_that_of_no_priority(window: int) -> None:
    peer = declared(window)
    priorities = (None, 0, 1, 3, 4, 5, 9, 31, 32, 100, 255, None, 4, 31)
    for number, priority in enumerate(priorities):
        put(peer, b"%d" % number, priority)
    # As RabbitMQ 4.3.6 delivers them.
    assert drained(peer) == [b"%d" % n for n in (7, 8, 9, 10, 13, 6, 5, 0, 4, 11, 12, 3, 2, 1)]


@WINDOWS
def test_without_priorities_it_costs_what_it_did(window: int) -> None:
    peer = declared(window)
    for number in range(30):
        put(peer, b"%d" % number, (None, 4)[number % 2])
    assert not isinstance(peer.node.classic("q").ready, PriorityReady)
    peer.node.sync()
    peer = again(peer, crash=True)
    assert not isinstance(peer.node.classic("q").ready, PriorityReady)
    assert drained(peer) == [b"%d" % number for number in range(30)]


@WINDOWS
@pytest.mark.parametrize("seed", range(6))
def test_at_random_over_restarts(window: int, seed: int) -> None:
    """Against a list: what waits, by level and by the order in which it came."""
    chance = random.Random(seed)
    peer = declared(window)
    waiting: list[tuple[int, int]] = []
    plain = chance.choice([0, 20, 200])
    for number in range(plain + 200):
        priority = None if number < plain else chance.choice([None, 0, 3, 4, 5, 31, 200])
        put(peer, b"%d" % number + bytes(chance.choice([10, 3000])), priority)
        waiting.append((-level(priority), number))
        if chance.random() < 0.4:
            self_taken = min(waiting)
            got = peer.call_get("q")
            assert int(got.body.rstrip(b"\0")) == self_taken[1]
            how = chance.choice(["ack", "nack", "reject"])
            requeue = {} if how == "ack" else {"requeue": True}
            peer.send(method(1, f"basic.{how}", delivery_tag=got.delivery_tag, **requeue))
            if how == "ack":
                waiting.remove(self_taken)
        if chance.random() < 0.05:
            peer.node.take_checkpoint()
        if chance.random() < 0.05:
            peer.node.sync()
            peer = again(peer, crash=chance.random() < 0.5)
    found = [int(body.rstrip(b"\0")) for body in drained(peer)]
    assert found == [number for _, number in sorted(waiting)]
    assert peer.node.core.memory.held_bytes == 0


@WINDOWS
def test_a_salvage_keeps_the_levels(window: int) -> None:
    """Also those of messages that lie in the journal alone, whose rows it writes."""
    peer = declared(window)
    for number in range(40):
        put(peer, b"%d" % number + bytes(2000), number % 10)
    peer.node.sync()
    survey = Survey(RecordingDisk(peer.node.crashed(no_chance)[0]), keep=True)
    for _ in survey.run():
        pass
    saved = RecordingDisk()
    for _ in write_salvage(saved, Salvage(survey), bytes(16), 0):
        pass
    peer = Node(RecordingDisk(saved.image()), window_bytes=window).connect()
    expected = sorted(range(40), key=lambda number: (-(number % 10), number))
    assert [int(body.rstrip(b"\0")) for body in drained(peer)] == expected


@WINDOWS
def test_what_is_out_or_came_back_keeps_its_count_and_place(window: int) -> None:
    """The levels begin while some messages are unacked, and others have come back."""
    peer = declared(window)
    for number in range(40):
        put(peer, b"%d" % number + bytes(2000))
    tags = [peer.call_get("q").delivery_tag for _ in range(4)]
    for tag in tags[1:3]:
        peer.send(method(1, "basic.reject", delivery_tag=tag, requeue=True))
    put(peer, b"high", 9)
    peer.send(method(1, "basic.nack", delivery_tag=tags[0], requeue=True))
    got = [peer.call_get("q") for _ in range(4)]
    assert [one.body.rstrip(b"\0") for one in got] == [b"high", b"0", b"1", b"2"]
    assert [one.redelivered for one in got] == [False, True, True, True]


def test_a_full_queue_drops_what_would_go_next() -> None:
    """As RabbitMQ 4.3."""
    peer = declared(1 << 30, **{"x-max-length": 2})
    for priority in (9, 1, 5, 0):
        put(peer, b"%d" % priority, priority)
    assert [one.message.body for one in all_waiting(peer.node.classic("q"))] == [b"1", b"0"]


def test_a_new_quorum_queue_takes_no_max_priority() -> None:
    peer = declared(1 << 30)
    node = peer.node
    for arguments in ({"x-max-priority": 5}, {"x-max-priority": 0}):
        fields = {"durable": True, "arguments": {"x-queue-type": "quorum"} | arguments}
        # One that is there has it or not, whatever is declared.
        peer.send(method(1, "queue.declare", queue="q", **fields))
        assert peer.names() == ["queue.declare-ok"]
        peer.send(method(1, "queue.declare", queue="other", **fields))
        closed = peer.expect(1, "channel.close")
        text = "invalid arg 'x-max-priority' for queue 'other' in vhost '/' of queue type"
        assert (closed.code, closed.text) == (
            406,
            f"PRECONDITION_FAILED - {text} rabbit_quorum_queue",
        )
        peer = node.connect()
    node.vhost.metadata.default_queue_type = "quorum"
    peer.send(method(1, "queue.declare", queue="o", durable=True, arguments={"x-max-priority": 5}))
    assert peer.expect(1, "channel.close").code == 406


def test_definitions_with_a_new_one_are_refused() -> None:
    """As in RabbitMQ 4.3; those of a queue that is there change nothing."""
    attributes = QueueAttributes(arguments={"x-queue-type": "quorum", "x-max-priority": 5})
    with pytest.raises(PreconditionFailed, match="invalid arg 'x-max-priority'"):
        Node().vhost.queues.create(Name("q"), attributes)


def test_one_of_an_earlier_release_keeps_its_levels() -> None:
    """It has the levels that it was declared with, and may be declared again with or without."""
    node = Node()
    arguments = {"x-queue-type": "quorum", "x-max-priority": 2}
    attributes = QueueAttributes(arguments=arguments)
    node.vhost.queues.make(1, "q", attributes)
    node.core.journal.define("queue", node.classic("q").definition("/"))
    peer = again(node.connect(), crash=False)
    for more in ({}, {"x-max-priority": 2}, {"x-max-priority": 7}):
        peer.declare("q", arguments={"x-queue-type": "quorum"} | more)
    for number, priority in enumerate((None, 1, 9, 2, 0)):
        put(peer, b"%d" % number, priority)
    assert drained(peer) == [b"2", b"3", b"1", b"0", b"4"]
