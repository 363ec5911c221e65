"""Very many delayed messages are written, read and dropped in slices."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leveret.broker.delayed.memory import Delayed, DelayedMemory
from leveret.broker.delayed.pages import PAGE_MESSAGES_MAX
from leveret.message import Address, Message
from support.costs.cost_gauge import PLAIN, Gauge, GaugedNode
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish

MESSAGES = 12_000

#: Memory for a third of them.
WINDOW_BYTES = 2 << 20

#: What a call that writes or loads a page may take beside it: it may begin to unload, or cut.
BESIDE_STEPS = 3 * PAGE_MESSAGES_MAX


def declare(peer: Peer) -> None:
    kind = {"x-delayed-type": "direct"}
    values = {"exchange": "later", "type": "x-delayed-message", "arguments": kind}
    peer.send(method(1, "exchange.declare", **values))
    peer.send(method(1, "queue.declare", queue="q"))
    peer.send(method(1, "queue.bind", queue="q", exchange="later", routing_key="k"))


def delayed(count: int = MESSAGES) -> Iterator[bytes]:
    """Publish messages in batches, the times of which are mixed."""
    for start in range(0, count, 100):
        yield b"".join(
            publish(1, "later", "k", b"%d" % number, headers={"x-delay": 60_000 + number % 7})
            for number in range(start, start + 100)
        )


@pytest.fixture
def gauge() -> Gauge:
    return Gauge(counts_lines=False)


def test_they_come_back_page_by_page(gauge: Gauge) -> None:
    node = GaugedNode(gauge)
    node.core.memory.window_bytes = WINDOW_BYTES
    peer = node.connect()
    declare(peer)
    for data in delayed():
        peer.send(data)
    node.sync()
    store = node.vhost.exchanges.by_name["later"].delayed
    assert store is not None
    assert store.pages.away > MESSAGES // 3
    gauge.most.clear()
    node.tick(60_007)
    for _ in range(100):
        node.tick(1)
    assert node.vhost.queues.by_name["q"].ready_count() == MESSAGES
    assert store.ready_count() == 0
    assert 0 < gauge.most["read steps"] <= PAGE_MESSAGES_MAX + BESIDE_STEPS


def test_what_came_while_others_were_written_is_written_page_by_page() -> None:
    node = Node(window_bytes=100_000)
    peer = node.connect()
    declare(peer)
    node.hold_spill = True
    body = bytes(4_000)
    for _ in range(20):
        peer.send(publish(1, "later", "k", body, headers={"x-delay": 60_000}) * 100)
        node.sync()
    store = node.vhost.exchanges.by_name["later"].delayed
    assert store is not None
    waiting = len(store.memory.fresh)
    assert waiting > 500
    node.hold_spill = False
    node.settle()
    batch = node.spill.take()
    node.spill_files.write(batch)
    node.judged(lambda: node.core.spilled(batch))
    assert len(store.memory.fresh) > waiting // 2
    # The others follow in the next rounds, whoever else asks for anything.
    node.run()
    assert len(store.memory.fresh) < waiting // 4


@pytest.mark.both_builds
def test_a_commit_of_delayed_messages_reads_their_headers_no_more() -> None:
    """It is one slice, whatever it publishes."""
    gauge = Gauge(counts_lines=PLAIN)
    node = GaugedNode(gauge)
    peer = node.connect()
    declare(peer)
    node.sync()
    peer.take()
    peer.call(1, "tx.select")
    headers = {f"h{number:03}": True for number in range(900)} | {"x-delay": 60_000}
    for _ in range(200):
        peer.send(publish(1, "later", "k", b"m", headers=headers))

    def commit() -> None:
        peer.receive(method(1, "tx.commit"))

    gauge.measure("receive", node.core, commit)
    assert gauge.counted == []
    node.sync()
    node.tick(59_999)
    assert node.classic("q").ready_count() == 0
    node.tick(1)
    node.tick(1)
    assert node.classic("q").ready_count() == 200
    assert gauge.counted == []


def test_entries_of_what_has_left_are_sorted_out_in_parts() -> None:
    core = Node().core
    memory = DelayedMemory(core)
    message = Message(Address(b"", b""), b"", b"", 0, True)
    count = 20_000
    for sequence in range(1, count + 1):
        memory.add_fresh(sequence, Delayed(message, count - sequence))
    for sequence in range(1, count * 3 // 4):
        memory.remove(sequence)
    for sequence in range(count + 1, 2 * count):
        memory.add_fresh(sequence, Delayed(message, count + sequence))
    found = []
    while memory.count():
        first = memory.first()
        assert first is not None
        memory.pop()
        if memory.get(first[1]) is not None:
            memory.remove(first[1])
            found.append(first)
    assert len(found) == count // 4 + count
    assert found == sorted(found)
