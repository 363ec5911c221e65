"""The queue: order, requeue, purge, delete, and what is counted and held.

Sources: AMQP 0-9-1 section 1.7 and behaviours 42 to 50 (queues), 58 (unknown delivery tags) and 59
(requeue keeps its place).
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker.queue.classic import ClassicQueue
from leveret.names import Name
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish


def queue_of(node: Node, name: str = "q") -> ClassicQueue:
    """The classic queue `name`."""
    queue = node.vhost.queues.existing(Name(name), None)
    assert isinstance(queue, ClassicQueue)
    return queue


def put(peer: Peer, *numbers: int) -> None:
    """Publish numbers to `q`."""
    peer.send(*[publish(1, "", "q", b"%d" % number) for number in numbers])


def get(peer: Peer) -> tuple[int, bool]:
    """Get a message of `q`: its number, and whether it was redelivered."""
    got = peer.call_get("q")
    return int(got.body), got.redelivered


@pytest.fixture
def filled(peer: Peer) -> Peer:
    """A connection that declared `q` and put 0 to 4 into it."""
    peer.call(1, "queue.declare", queue="q")
    put(peer, *range(5))
    return peer


# -- order -----------------------------------------------------------------------------------------


def test_requeued_messages_return_to_their_old_places(filled: Peer) -> None:
    """Behaviour 59 (requeue keeps its place)."""
    for _ in range(4):
        get(filled)
    for tag in (3, 1):
        filled.send(method(1, "basic.reject", delivery_tag=tag, requeue=True))
    put(filled, 5)
    expected = [(0, True), (2, True), (4, False), (5, False)]
    assert [get(filled) for _ in range(4)] == expected


def test_recover_requeues_all_in_order(filled: Peer) -> None:
    """Behaviour 60 (recover)."""
    for _ in range(3):
        get(filled)
    filled.send(method(1, "basic.ack", delivery_tag=2))
    filled.call(1, "basic.recover", requeue=True)
    assert [get(filled) for _ in range(4)] == [(0, True), (2, True), (3, False), (4, False)]


def test_a_consumer_gets_requeued_messages_first(filled: Peer) -> None:
    get(filled)
    filled.call(1, "basic.qos", prefetch_count=1)
    filled.call(1, "basic.consume", queue="q")
    assert filled.bodies() == [b"1"]
    filled.send(method(1, "basic.nack", delivery_tag=1, requeue=True))
    assert filled.take() == []
    filled.send(method(1, "basic.ack", delivery_tag=2))
    assert filled.bodies() == [b"0"]


# -- purge and delete ------------------------------------------------------------------------------


def test_purge_keeps_what_is_unacked(filled: Peer) -> None:
    """Behaviour 47 (passive declare, delete, purge)."""
    get(filled)
    get(filled)
    filled.send(method(1, "basic.reject", delivery_tag=2, requeue=True))
    assert filled.call(1, "queue.purge", queue="q").message_count == 4
    assert filled.call(1, "queue.purge", queue="q").message_count == 0
    put(filled, 5)
    filled.send(method(1, "basic.reject", delivery_tag=1, requeue=True))
    assert [get(filled), get(filled)] == [(0, True), (5, False)]


def test_declare_ok_counts_what_is_ready(filled: Peer) -> None:
    """Behaviour 50 (ready count)."""
    get(filled)
    declared = filled.call(1, "queue.declare", queue="q", passive=True)
    assert (declared.message_count, declared.consumer_count) == (4, 0)


def test_delete_if_empty_refuses_what_waits(filled: Peer) -> None:
    """Behaviour 47 (passive declare, delete, purge)."""
    filled.send(method(1, "queue.delete", queue="q", if_empty=True))
    closed = filled.expect(1, "channel.close")
    text = "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty"
    assert (closed.code, closed.text) == (406, text)


def test_delete_if_unused_refuses_while_there_are_consumers(filled: Peer) -> None:
    """Behaviour 47 (passive declare, delete, purge)."""
    other = filled.node.connect()
    other.call(1, "basic.consume", queue="q", consumer_tag="c", no_ack=True)
    filled.send(method(1, "queue.delete", queue="q", if_unused=True))
    closed = filled.expect(1, "channel.close")
    text = "PRECONDITION_FAILED - queue 'q' in vhost '/' in use"
    assert (closed.code, closed.text) == (406, text)
    other.take()
    other.call(1, "basic.cancel", consumer_tag="c")
    other.call(1, "queue.delete", queue="q", if_unused=True)


def test_unacked_messages_do_not_keep_a_queue_from_being_empty(filled: Peer) -> None:
    for _ in range(5):
        get(filled)
    deleted = filled.call(1, "queue.delete", queue="q", if_empty=True, if_unused=True)
    assert deleted.message_count == 0
    # What becomes of its deliveries is of no matter any more.
    filled.send(method(1, "basic.ack", delivery_tag=1))
    filled.send(method(1, "basic.nack", delivery_tag=5, multiple=True, requeue=True))
    filled.call(1, "basic.qos")
    assert (filled.node.core.memory.held_bytes, filled.node.core.memory.held_messages) == (0, 0)


def test_delete_says_what_waited(filled: Peer) -> None:
    get(filled)
    assert filled.call(1, "queue.delete", queue="q").message_count == 4
    assert filled.call(1, "queue.delete", queue="q").message_count == 0


def test_a_queue_declared_again_is_a_new_one(filled: Peer) -> None:
    """A delivery of the old queue does not come back into the new one."""
    get(filled)
    filled.call(1, "queue.delete", queue="q")
    filled.call(1, "queue.declare", queue="q")
    filled.send(method(1, "basic.reject", delivery_tag=1, requeue=True))
    filled.send(method(1, "basic.get", queue="q"))
    filled.expect(1, "basic.get-empty")


# -- auto-delete and exclusive ---------------------------------------------------------------------


@pytest.mark.parametrize("way", ["cancel", "channel", "connection"])
def test_an_auto_delete_queue_goes_with_its_last_consumer(peer: Peer, way: str) -> None:
    """Behaviour 48 (auto-delete): never before it had one."""
    node = peer.node
    peer.call(1, "queue.declare", queue="q", auto_delete=True)
    consumers = [node.connect(), node.connect()]
    for consumer in consumers:
        consumer.call(1, "basic.consume", queue="q", consumer_tag="c")
    for consumer in consumers:
        assert "q" in node.vhost.queues.by_name
        if way == "cancel":
            consumer.call(1, "basic.cancel", consumer_tag="c")
        elif way == "channel":
            consumer.call(1, "channel.close")
        else:
            consumer.lose()
    assert "q" not in node.vhost.queues.by_name


def test_basic_get_is_no_consumer(peer: Peer) -> None:
    peer.call(1, "queue.declare", queue="q", auto_delete=True)
    put(peer, 0)
    get(peer)
    peer.call(1, "channel.close")
    assert "q" in peer.node.vhost.queues.by_name


EXCLUSIVE: dict[str, dict[str, Any]] = {
    "queue.declare": {"queue": "q", "passive": True},
    "queue.bind": {"queue": "q", "exchange": "amq.fanout"},
    "queue.unbind": {"queue": "q", "exchange": "amq.fanout"},
    "queue.purge": {"queue": "q"},
    "queue.delete": {"queue": "q"},
    "basic.get": {"queue": "q"},
    "basic.consume": {"queue": "q"},
}


@pytest.mark.parametrize("name", EXCLUSIVE)
def test_an_exclusive_queue_is_locked_to_others(peer: Peer, name: str) -> None:
    """Behaviour 44 (exclusive queue)."""
    peer.call(1, "queue.declare", queue="q", exclusive=True)
    peer.call(1, "queue.bind", queue="q", exchange="amq.fanout")
    other = peer.node.connect()
    other.send(method(1, name, **EXCLUSIVE[name]))
    assert other.expect(1, "channel.close").code == 405
    peer.lose()
    assert "q" not in peer.node.vhost.queues.by_name


def test_others_may_publish_to_an_exclusive_queue(peer: Peer) -> None:
    peer.call(1, "queue.declare", queue="q", exclusive=True)
    put(peer.node.connect(), 7)
    assert get(peer) == (7, False)


# -- counters and memory ---------------------------------------------------------------------------

steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 3), st.booleans()),
        st.tuples(st.sampled_from(["get", "get_no_ack"]), st.integers(0, 3), st.just(False)),
        st.tuples(st.sampled_from(["ack", "nack", "drop"]), st.integers(0, 9), st.booleans()),
        st.tuples(st.sampled_from(["purge", "sync", "recover"]), st.just(0), st.just(False)),
    ),
    max_size=40,
)


class Model:
    """What a queue with one channel on it holds: numbers in order, and unacked ones by tag."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.ready: list[int] = []
        self.unacked: dict[int, int] = {}
        self.out_before: set[int] = set()
        self.tag = 0
        self.published = 0

    def publish(self, count: int, lasting: bool) -> None:
        for _ in range(count):
            body = b"%d" % self.published
            mode = 2 if lasting else 1
            self.peer.send(publish(1, "", "q", body, delivery_mode=mode))
            self.ready.append(self.published)
            self.published += 1

    def get(self, no_ack: bool) -> None:
        if not self.ready:
            self.peer.send(method(1, "basic.get", queue="q", no_ack=no_ack))
            self.peer.expect(1, "basic.get-empty")
            return
        number = self.ready.pop(0)
        got = self.peer.call_get("q", no_ack=no_ack)
        self.tag += 1
        assert (got.delivery_tag, got.message_count) == (self.tag, len(self.ready))
        assert (int(got.body), got.redelivered) == (number, number in self.out_before)
        if not no_ack:
            self.unacked[self.tag] = number

    def settle(self, verb: str, place: int, multiple: bool) -> None:
        if not self.unacked:
            return
        tag = sorted(self.unacked)[place % len(self.unacked)]
        tags = [one for one in self.unacked if one == tag or (multiple and one < tag)]
        numbers = [self.unacked.pop(one) for one in tags]
        if verb == "ack":
            self.peer.send(method(1, "basic.ack", delivery_tag=tag, multiple=multiple))
            return
        again = verb == "nack"
        values = {"delivery_tag": tag, "multiple": multiple, "requeue": again}
        self.peer.send(method(1, "basic.nack", **values))
        if again:
            self.requeued(numbers)

    def requeued(self, numbers: list[int]) -> None:
        self.out_before.update(numbers)
        self.ready = sorted(self.ready + numbers)

    def purge(self) -> None:
        assert self.peer.call(1, "queue.purge", queue="q").message_count == len(self.ready)
        self.ready = []

    def recover(self) -> None:
        self.peer.call(1, "basic.recover", requeue=True)
        self.requeued(list(self.unacked.values()))
        self.unacked = {}

    def step(self, step: tuple[str, int, bool]) -> None:
        verb, number, flag = step
        if verb == "publish":
            self.publish(number, flag)
        elif verb in {"ack", "nack", "drop"}:
            self.settle(verb, number, flag)
        elif verb in {"get", "get_no_ack"}:
            for _ in range(number):
                self.get(verb == "get_no_ack")
        elif verb == "sync":
            self.peer.node.sync()
        elif verb == "purge":
            self.purge()
        else:
            self.recover()

    def check(self) -> None:
        """Compare what is counted."""
        node, queue = self.peer.node, queue_of(self.peer.node)
        assert (queue.ready_count(), queue.unacked_count) == (len(self.ready), len(self.unacked))

        def size(numbers: list[int]) -> int:
            return sum(3 + len(b"%d" % number) for number in numbers)

        ready, unacked = size(self.ready), size(list(self.unacked.values()))
        assert (queue.ready_bytes(), queue.unacked_bytes) == (ready, unacked)
        assert node.core.memory.held_bytes == ready + unacked
        assert node.core.memory.held_messages == len(self.ready) + len(self.unacked)


@pytest.mark.in_memory
@settings(max_examples=80)
@given(st.booleans(), steps)
def test_a_queue_is_what_its_model_is(durable: bool, steps: list[tuple[str, int, bool]]) -> None:
    """Order, redelivered flags, counters and held bytes, after every step."""
    peer = Node().connect()
    peer.declare("q", durable=durable)
    model = Model(peer)
    for step in steps:
        model.step(step)
        model.check()
    # However it ends, nothing is left.
    if model.published % 2:
        peer.call(1, "channel.close")
        model.requeued(list(model.unacked.values()))
        model.unacked = {}
        model.check()
        peer.call(1, "channel.open")
    peer.call(1, "queue.delete", queue="q")
    peer.node.sync()
    assert (peer.node.core.memory.held_bytes, peer.node.core.memory.held_messages) == (0, 0)
    assert peer.node.journal.unsynced_bytes == 0


def test_a_message_in_two_queues_is_held_twice(filled: Peer) -> None:
    """Each queue counts what it holds."""
    node = filled.node
    before = node.core.memory.held_messages
    filled.call(1, "queue.declare", queue="r")
    for queue in ("q", "r"):
        filled.call(1, "queue.bind", queue=queue, exchange="amq.fanout")
    filled.send(publish(1, "amq.fanout", "", b"both"))
    assert node.core.memory.held_messages == before + 2
    filled.call(1, "queue.delete", queue="r")
    assert node.core.memory.held_messages == before + 1
