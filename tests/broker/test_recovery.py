"""Any operations, any stop: what a restart finds is what a reference model holds.

A state machine works on a broker in memory and on `broker_model`, byte for byte over a session.
Groups are sealed, written and told of by rules of their own, checkpoints go on in small slices
between other operations, and a crash keeps any legal part of what was not synced.  The recovery
says with which group the journal ends; the model was copied when that group was sealed, and must be
equal: promises 1, 2 and 3 of the store, seen from the broker.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from leveret.store.disks.recording import Image, RecordingDisk
from leveret.store.records.returns import acquisitions
from leveret.wire.buffer import COMPILED
from support.node.broker_model import Delivery, Model, ModelBinding, ModelMessage, Transaction
from support.node.core import Node, Peer, all_waiting
from support.node.variants import few_of
from support.wire.raw_codec import decode_properties, method, publish

QUEUES = st.sampled_from(["q1", "q2", "q3"])
STREAMS = st.sampled_from(["s1", "s2"])
ANY_QUEUE = st.one_of(QUEUES, STREAMS)
EXCHANGES = st.sampled_from(["x1", "x2", "x3"])
KEYS = st.sampled_from(["", "k1", "k2"])
SIZES = st.sampled_from([0, 10, 10, 1000, 70_000])
#: Messages by size and persistence.
MESSAGES = st.lists(st.tuples(SIZES, st.sampled_from([True, True, False])), min_size=1, max_size=4)
#: `s2` drops what is more than a few large messages.
STREAM_ARGUMENTS: dict[str, dict[str, Any]] = {
    "s1": {"x-queue-type": "stream"},
    "s2": {"x-queue-type": "stream", "x-max-length-bytes": 100_000},
}

PLAIN = 1
TX = 2
READER = 3


def name_of(body: bytes) -> tuple[str, int]:
    """What tells a body from all others, short enough to be read; the rest of it is checked."""
    name, _, rest = body.partition(b".")
    assert rest == bytes(len(rest))
    return name.decode(), len(rest)


class BrokerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.node = Node()
        self.copies: dict[int, Model] = {}
        self.tags = {PLAIN: 0, TX: 0}
        #: Deliveries of the transaction's channel, by tag.
        self.tx_out: dict[int, Delivery] = {}
        self.number = 0
        self.peer: Peer

    @initialize()
    def start(self) -> None:
        """Connect to an empty broker and define a little, so that most steps have an effect."""
        self.connect()
        for name in ("q1", "q2"):
            self.declare(name, durable=True)
        self.declare_stream("s1")
        self.declare_exchange("x1", fanout=False, durable=True)
        for source, key, name in (("amq.fanout", "", "q1"), ("amq.fanout", "", "q2"),
                                  ("amq.fanout", "", "s1"), ("x1", "k1", "q1")):  # fmt: skip
            self.bind_to(source, True, name, key, unbind=False)

    def connect(self) -> None:
        """A new connection: one plain channel, one with transactions."""
        self.node.sealed = self.copy
        self.copies = {int(self.node.journal.durable_group): self.model.durable()}
        self.reconnect()

    def reconnect(self) -> None:
        """Open the connection anew."""
        self.peer = self.node.connect(PLAIN, TX)
        self.peer.call(TX, "tx.select")
        self.tags = {PLAIN: 0, TX: 0}
        self.tx_out.clear()

    def copy(self, group: int) -> None:
        """Keep what the disk will hold when `group` is on it."""
        self.copies[group] = self.model.durable()

    def body(self, size: int) -> bytes:
        """A body that no other message has."""
        self.number += 1
        return b"%d." % self.number + bytes(size)

    # -- definitions -------------------------------------------------------------------------------

    @rule(name=QUEUES, durable=st.sampled_from([True, True, False]))
    def declare(self, name: str, durable: bool) -> None:
        if name not in self.model.queues:
            self.model.declare(name, durable=durable, stream=False)
        else:
            durable = self.model.queues[name].durable
        count = len(self.model.queues[name].ready())
        assert self.peer.declare(name, durable=durable).message_count == count

    @rule(name=STREAMS)
    def declare_stream(self, name: str) -> None:
        if name not in self.model.queues:
            self.model.declare(name, durable=True, stream=True)
        self.peer.declare(name, arguments=STREAM_ARGUMENTS[name])

    @rule(name=ANY_QUEUE)
    def delete(self, name: str) -> None:
        queue = self.model.queues.get(name)
        if queue is not None:
            self.model.delete(name)
        got = self.peer.call(PLAIN, "queue.delete", queue=name)
        if queue is None:
            assert got.message_count == 0
        elif not queue.stream:
            assert got.message_count == len(queue.ready())

    @rule(name=EXCHANGES, fanout=st.booleans(), durable=st.booleans())
    def declare_exchange(self, name: str, fanout: bool, durable: bool) -> None:
        kind, durable = self.model.exchanges.setdefault(
            name, ("fanout" if fanout else "direct", durable)
        )
        values = {"exchange": name, "type": kind, "durable": durable}
        self.peer.call(PLAIN, "exchange.declare", **values)

    @rule(name=EXCHANGES)
    def delete_exchange(self, name: str) -> None:
        if name in self.model.exchanges:
            self.model.delete_exchange(name)
        self.peer.call(PLAIN, "exchange.delete", exchange=name)

    @rule(data=st.data(), key=KEYS, unbind=st.sampled_from([False, False, True]))
    def bind(self, data: st.DataObject, key: str, unbind: bool) -> None:
        source = data.draw(st.sampled_from(sorted(self.model.exchanges)))
        ends = [(True, name) for name in sorted(self.model.queues)]
        ends += [(False, name) for name in sorted(self.model.exchanges)]
        to_queue, destination = data.draw(st.sampled_from(ends))
        self.bind_to(source, to_queue, destination, key, unbind=unbind)

    def bind_to(
        self, source: str, to_queue: bool, destination: str, key: str, *, unbind: bool
    ) -> None:
        """Make or remove a binding."""
        binding = ModelBinding(source, to_queue, destination, key)
        if unbind:
            self.model.bindings.pop(binding, None)
        else:
            self.model.bindings[binding] = None
        verb = "unbind" if unbind else "bind"
        if to_queue:
            values = {"queue": destination, "exchange": source, "routing_key": key}
            self.peer.call(PLAIN, f"queue.{verb}", **values)
        else:
            values = {"destination": destination, "source": source, "routing_key": key}
            self.peer.call(PLAIN, f"exchange.{verb}", **values)

    # -- messages ----------------------------------------------------------------------------------

    @rule(name=ANY_QUEUE, some=MESSAGES, tx=st.sampled_from([0, 0, 1]))
    def publish_to_queue(self, name: str, some: list[tuple[int, bool]], tx: int) -> None:
        self.publish_some("", name, some, tx)

    @rule(some=MESSAGES, tx=st.integers(0, 1))
    def publish_to_all(self, some: list[tuple[int, bool]], tx: int) -> None:
        self.publish_some("amq.fanout", "", some, tx)

    @rule(data=st.data(), key=KEYS, some=MESSAGES, tx=st.integers(0, 1))
    def publish_to_exchange(
        self, data: st.DataObject, key: str, some: list[tuple[int, bool]], tx: int
    ) -> None:
        exchange = data.draw(st.sampled_from(sorted(self.model.exchanges)))
        self.publish_some(exchange, key, some, tx)

    def publish_some(self, exchange: str, key: str, some: list[tuple[int, bool]], tx: int) -> None:
        """Publish messages one by one."""
        for size, persistent in some:
            self.publish(exchange, key, size, persistent, tx)

    def publish(self, exchange: str, key: str, size: int, persistent: bool, tx: int) -> None:
        """Publish a message, in the transaction or not."""
        body = self.body(size)
        queues = self.model.route(exchange, key)
        if tx:
            message = ModelMessage(body, persistent)
            self.model.tx.publishes.append((message, queues))
        else:
            self.model.publish(body, persistent, queues)
        channel = TX if tx else PLAIN
        mode = 2 if persistent else 1
        self.peer.send(publish(channel, exchange, key, body, delivery_mode=mode))

    @rule(
        name=QUEUES,
        channel=st.sampled_from([PLAIN, TX]),
        no_ack=st.sampled_from([0, 0, 1]),
        times=st.integers(1, 3),
    )
    def get(self, name: str, channel: int, no_ack: int, times: int) -> None:
        for _ in range(times if name in self.model.queues else 0):
            self.get_one(name, channel, no_ack)

    def get_one(self, name: str, channel: int, no_ack: int) -> None:
        """Get a message and compare it with the model's."""
        out, self.model.out = self.model.out, {}
        tag = self.tags[channel] + 1
        expected = self.model.get(name, 0 if no_ack else tag)
        taken, self.model.out = self.model.out, out
        self.peer.send(method(channel, "basic.get", queue=name, no_ack=bool(no_ack)))
        got = self.peer.take()[0]
        if expected is None:
            assert got.name == "basic.get-empty"
            return
        self.tags[channel] = tag
        assert (got.delivery_tag, got.body) == (tag, expected.body)
        assert got.redelivered == (expected.taken_count > 0)
        assert got.message_count == len(self.model.queues[name].ready())
        (self.model.out if channel == PLAIN else self.tx_out).update(taken)

    def outstanding(self) -> bool:
        """Whether anything is out on either channel."""
        return bool(self.model.out or self.tx_out)

    @precondition(outstanding)
    @rule(data=st.data(), requeue=st.booleans(), multiple=st.booleans())
    def settle(self, data: st.DataObject, requeue: bool, multiple: bool) -> None:
        channel = data.draw(st.sampled_from([c for c in (PLAIN, TX) if self.out(c)]))
        tag = data.draw(st.sampled_from(sorted(self.out(channel))))
        self.settle_one(channel, tag, requeue=requeue, multiple=multiple)

    def settle_one(self, channel: int, tag: int, *, requeue: bool, multiple: bool) -> None:
        """Let go or requeue what a tag names."""
        out = self.out(channel)
        tags = [one for one in sorted(out) if one <= tag] if multiple else [tag]
        for one in tags:
            delivery = out.pop(one)
            if channel == TX:
                self.model.tx.settles.append((delivery, requeue))
            else:
                self.model.settle(delivery, requeue=requeue)
        values: dict[str, Any] = {"delivery_tag": tag, "multiple": multiple}
        self.peer.send(method(channel, "basic.nack", requeue=requeue, **values))

    def out(self, channel: int) -> dict[int, Delivery]:
        """What is out on a channel."""
        return self.model.out if channel == PLAIN else self.tx_out

    @rule(commit=st.sampled_from([True, True, False]))
    def end_transaction(self, commit: bool) -> None:
        if commit:
            self.model.commit()
            self.peer.call(TX, "tx.commit")
            return
        restored = self.model.tx.settles
        self.model.tx = Transaction()
        self.peer.call(TX, "tx.rollback")
        # The deliveries are out again under their tags.
        for delivery, _ in restored:
            tag = self.tag_of(delivery)
            self.tx_out[tag] = delivery

    def tag_of(self, delivery: Delivery) -> int:
        """The tag under which the session has a delivery."""
        channel = self.peer.connection.channels.by_number[TX]
        for unacked in channel.unacked.from_tag(0, channel.unacked.count):
            if self.same(unacked, delivery):
                return int(unacked.tag)
        raise AssertionError(f"rolled back, but not out: {delivery}")

    def same(self, unacked: Any, delivery: Delivery) -> bool:
        """Whether the session's delivery is the model's: bodies are unique, but a queue's alone."""
        number = int(unacked.tag)
        queue: str = unacked.queue.name
        if queue != delivery.queue.name or number in self.tx_out:
            return False
        message = delivery.queue.messages.get(delivery.number)
        return message is not None and bytes(unacked.message.body) == message.body

    @rule(name=QUEUES)
    def purge(self, name: str) -> None:
        if name in self.model.queues:
            dropped = self.model.purge(name)
            assert self.peer.call(PLAIN, "queue.purge", queue=name).message_count == dropped

    @rule()
    def lose_the_connection(self) -> None:
        self.model.out |= {-tag: delivery for tag, delivery in self.tx_out.items()}
        self.model.lose()
        self.peer.lose()
        self.reconnect()

    # -- the disk ----------------------------------------------------------------------------------

    @rule()
    def seal(self) -> None:
        self.node.begin_sync()

    @rule()
    def write(self) -> None:
        if self.node.group is not None:
            self.node.write()
            self.node.end_sync()

    @rule(items=st.integers(1, 6))
    def checkpoint(self, items: int) -> None:
        self.node.step_checkpoint(items)

    @rule()
    def whole_checkpoint(self) -> None:
        self.node.take_checkpoint()

    @rule(seed=st.integers(0, 1 << 32))
    def crash(self, seed: int) -> None:
        """Lose the process, and any legal part of what was not synced."""
        draw = random.Random(seed)
        if self.node.group is not None and draw.randrange(2):
            # The group is written and perhaps synced, and the core has not heard of it.
            self.node.write()
        images = self.node.crashed(draw.randrange)
        durable = int(self.node.journal.durable_group)
        self.restart(draw.choice(images))
        found = int(self.node.report.next_group) - 1
        assert found >= durable
        self.model = self.copies[found]
        self.model.crashed()
        assert not self.node.report.clean_stop or not self.outstanding()
        self.compare()
        self.connect()

    @rule()
    def stop_in_order(self) -> None:
        self.model.out |= {-tag: delivery for tag, delivery in self.tx_out.items()}
        self.model.lose()
        self.model = self.model.durable()
        if self.node.group is not None:
            self.node.write()
            self.node.end_sync()
        before = self.node
        self.restart(before.stop())
        assert self.node.report.clean_stop
        self.compare()
        for name, queue in self.model.queues.items():
            if queue.stream:
                first = before.stream(name).first_offset
                assert self.node.stream(name).first_offset == first
        self.connect()

    def restart(self, image: Image) -> None:
        """Start on what a stop left."""
        self.node = Node(RecordingDisk(image), clock=self.node.clock)
        assert self.node.report.damages == []
        assert self.node.orphaned == []

    # -- comparing ---------------------------------------------------------------------------------

    def compare(self) -> None:
        """Assert that the restarted broker holds what the model does."""
        vhost = self.node.vhost
        exchanges = {
            name: (exchange.kind, exchange.durable)
            for name, exchange in vhost.exchanges.by_name.items()
            if not name.startswith("amq.") and name
        }
        assert exchanges | {"amq.fanout": ("fanout", True)} == self.model.exchanges
        bindings = {
            ModelBinding(name, binding.queue is not None, binding.destination, binding.binding_key)
            for name, exchange in vhost.exchanges.by_name.items()
            for binding in exchange.bindings.values()
        }
        assert bindings == set(self.model.bindings)
        assert set(vhost.queues.by_name) == set(self.model.queues)
        for name, queue in self.model.queues.items():
            if queue.stream:
                self.compare_stream(name)
            else:
                self.compare_queue(name)

    def compare_queue(self, name: str) -> None:
        """Compare messages, their order, and what their next delivery says of earlier ones."""
        queue = self.model.queues[name]
        real = self.node.classic(name)
        found = [
            (
                name_of(item.message.body),
                item.message.persistent,
                int(acquisitions(item.count)) or int(item.sequence < real.redelivered_below),
            )
            for item in all_waiting(real)
        ]
        messages = [queue.messages[number] for number in sorted(queue.messages)]
        assert found == [(name_of(m.body), m.persistent, m.taken_count) for m in messages]

    def compare_stream(self, name: str) -> None:
        """Read a stream from its start and compare."""
        queue = self.model.queues[name]
        reader = self.node.connect(READER)
        reader.call(READER, "basic.qos", prefetch_count=1000)
        values = {"queue": name, "consumer_tag": "r", "arguments": {"x-stream-offset": "first"}}
        reader.call(READER, "basic.consume", **values)
        got = reader.take()
        offsets = [decode_properties(one.properties)["headers"]["x-stream-offset"] for one in got]
        first = int(self.node.stream(name).first_offset)
        assert first == 0 or name == "s2"
        assert offsets == list(range(first, queue.next_number))
        bodies = [name_of(queue.messages[number].body) for number in offsets]
        assert [name_of(one.body) for one in got] == bodies
        reader.lose()

    @invariant()
    def counts_agree(self) -> None:
        """Ready, unacked and held messages are what the model counts."""
        held = unchunked = 0
        for name, queue in self.model.queues.items():
            if queue.stream:
                stream = self.node.stream(name)
                assert stream.next_offset == queue.next_number
                held += sum(int(b.count) for b in stream.blocks if b.messages is not None)
                unchunked += sum(int(b.size) for b in stream.blocks if b.ref is None)
            else:
                real = self.node.classic(name)
                assert real.ready_count() == len(queue.ready())
                assert real.unacked_count == len(queue.out)
                pages = real.ready.pages
                held += len(queue.messages) - (int(pages.away_count) if pages is not None else 0)
        assert self.node.core.memory.held_messages == held
        assert self.node.core.memory.unchunked_bytes == unchunked


TestRecovery = BrokerMachine.TestCase
TestRecovery.settings = settings(
    max_examples=150 if COMPILED else 60,
    stateful_step_count=60,
    suppress_health_check=list(HealthCheck),
)


def step(machine: BrokerMachine, draw: random.Random) -> None:
    """One step by chance, with weights that keep messages on their way between the stops."""

    def some() -> list[tuple[int, bool]]:
        sizes = [0, 10, 10, 1000, 70_000]
        return [(draw.choice(sizes), draw.random() < 0.7) for _ in range(draw.randrange(1, 5))]

    def settle() -> None:
        channels = [channel for channel in (PLAIN, TX) if machine.out(channel)]
        if channels:
            channel = draw.choice(channels)
            tag = draw.choice(sorted(machine.out(channel)))
            requeue, multiple = draw.random() < 0.5, draw.random() < 0.3
            machine.settle_one(channel, tag, requeue=requeue, multiple=multiple)

    def bind() -> None:
        ends = [(True, name) for name in machine.model.queues]
        ends += [(False, name) for name in machine.model.exchanges]
        machine.bind_to(source, *draw.choice(sorted(ends)), key, unbind=draw.random() < 0.3)

    queue = draw.choice(["q1", "q1", "q2", "q3"])
    exchange = draw.choice(["x1", "x2", "x3"])
    source = draw.choice(sorted(machine.model.exchanges))
    key = draw.choice(["", "k1", "k2"])
    tx = int(draw.random() < 0.3)
    weighted: list[tuple[int, Callable[[], None]]] = [
        (10, lambda: machine.publish_to_all(some(), tx)),
        (10, lambda: machine.publish_to_queue(draw.choice([queue, "s1", "s2"]), some(), tx)),
        (5, lambda: machine.publish_some(source, key, some(), tx)),
        (15, lambda: machine.get(queue, draw.choice([PLAIN, TX]), draw.randrange(2), 3)),
        (15, settle),
        (6, lambda: machine.end_transaction(draw.random() < 0.7)),
        (6, lambda: machine.declare(queue, durable=draw.random() < 0.8)),
        (2, lambda: machine.declare_stream(draw.choice(["s1", "s2"]))),
        (1, lambda: machine.delete(draw.choice([queue, "s1", "s2"]))),
        (2, lambda: machine.declare_exchange(exchange, draw.random() < 0.5, draw.random() < 0.8)),
        (1, lambda: machine.delete_exchange(exchange)),
        (4, bind),
        (1, lambda: machine.purge(queue)),
        (2, machine.lose_the_connection),
        (8, machine.seal),
        (8, machine.write),
        (30, lambda: machine.checkpoint(draw.choice([1, 3, 8, 40]))),
        (5, lambda: machine.crash(draw.getrandbits(32))),
        (2, machine.stop_in_order),
    ]
    steps = [one for _, one in weighted]
    draw.choices(steps, [weight for weight, _ in weighted])[0]()


@pytest.mark.parametrize("seed", few_of(range(30), 8))
def test_long_runs(seed: int) -> None:
    """Longer lives than a shrinking search takes: checkpoints over checkpoints, and old counts."""
    machine = BrokerMachine()
    machine.start()
    draw = random.Random(seed)
    for _ in range(800):
        step(machine, draw)
        machine.counts_agree()
    machine.stop_in_order()
