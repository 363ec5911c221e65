"""Retained messages: what stays after its ack, for how long, and what a rewind puts back."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from leveret.broker.policies.policy import make_policy
from leveret.broker.queue.classic import ClassicQueue
from leveret.broker.queue.rewind import RETAINED_OVERHEAD_BYTES, Rewinding
from leveret.broker.scheduler.costs import SLICE
from leveret.broker.stats.stats import QueueStats
from leveret.limits import RETAINED_BYTES_MAX
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer
from support.node.variants import few_of
from support.wire.raw_codec import method, publish

HOUR_MS = 3_600_000


def declare(node: Node, **arguments: object) -> Peer:
    """A client that declared `q`, which retains for a day unless told otherwise."""
    peer = node.connect()
    named = {name.replace("_", "-"): value for name, value in arguments.items()}
    peer.declare("q", arguments={"x-retain-acked": "1D"} | named)
    return peer


def put(peer: Peer, *numbers: int, persistent: bool = True, **props: Any) -> None:
    """Publish numbers, one per second of the node's clock."""
    for number in numbers:
        mode = 2 if persistent else 1
        peer.send(publish(1, "", "q", b"%d" % number, delivery_mode=mode, **props))
        peer.node.tick(1000)


def ack(peer: Peer, count: int) -> list[int]:
    """Get and ack so many; return them."""
    got = [peer.call_get("q") for _ in range(count)]
    peer.send(method(1, "basic.ack", delivery_tag=0, multiple=True))
    return [int(one.body) for one in got]


def drain(peer: Peer) -> list[tuple[int, bool]]:
    """Get and ack all that waits, with their redelivered flags."""
    found = []
    while peer.node.classic("q").ready_count():
        got = peer.call_get("q")
        found.append((int(got.body), got.redelivered))
    peer.send(method(1, "basic.ack", delivery_tag=0, multiple=True))
    return found


def rewind(node: Node, timestamp_ms: int = 0) -> int:
    """Rewind `q`."""
    rewinding = node.classic("q").rewind(timestamp_ms)
    node.run()
    return 0 if rewinding is None else int(rewinding.count)


def kept(queue: ClassicQueue) -> tuple[int, int]:
    """How many messages are ready and how many retained."""
    return int(queue.ready_count()), int(queue.retained_count())


# -- putting back ----------------------------------------------------------------------------------


def test_acked_messages_are_put_back_in_order() -> None:
    node = Node()
    peer = declare(node)
    put(peer, *range(6))
    assert ack(peer, 4) == [0, 1, 2, 3]
    assert kept(node.classic("q")) == (2, 4)
    assert rewind(node) == 4
    assert kept(node.classic("q")) == (6, 0)
    expected = [(number, number < 4) for number in range(6)]
    assert drain(peer) == expected
    # And once more, all of it.
    assert rewind(node) == 6
    assert drain(peer) == [(number, True) for number in range(6)]


def test_a_rewind_goes_to_a_time() -> None:
    """What was published at that moment comes back too."""
    node = Node()
    peer = declare(node)
    start = node.clock.wall_ms()
    put(peer, *range(6))
    ack(peer, 6)
    assert rewind(node, start + 3001) == 2
    assert rewind(node, start + 3000) == 1
    assert drain(peer) == [(3, True), (4, True), (5, True)]
    assert rewind(node, start + 100_000) == 0


def test_a_waiting_consumer_gets_what_is_put_back() -> None:
    node = Node()
    peer = declare(node)
    peer.call(1, "basic.consume", queue="q")
    put(peer, 1, 2)
    peer.send(method(1, "basic.ack", delivery_tag=2, multiple=True))
    assert peer.bodies() == [b"1", b"2"]
    rewind(node)
    got = peer.take()
    assert [(one.body, one.redelivered) for one in got] == [(b"1", True), (b"2", True)]


@pytest.mark.parametrize("how", ["consume", "get"])
def test_without_acks_a_delivery_counts_as_acked(how: str) -> None:
    node = Node()
    peer = declare(node)
    put(peer, 1)
    peer.send(method(1, f"basic.{how}", queue="q", no_ack=True))
    assert kept(node.classic("q")) == (0, 1)


def test_what_was_rejected_expired_or_purged_is_not_kept() -> None:
    node = Node()
    peer = declare(node)
    put(peer, 1, 2, 3)
    peer.call_get("q")
    peer.send(method(1, "basic.reject", delivery_tag=1, requeue=False))
    put(peer, 4, expiration="1")
    peer.call(1, "queue.purge", queue="q")
    assert kept(node.classic("q")) == (0, 0)
    assert node.core.memory.held_messages == 0
    assert node.core.memory.held_bytes == 0


def test_acks_out_of_order_come_back_in_order() -> None:
    node = Node()
    peer = declare(node)
    put(peer, *range(6))
    for _ in range(6):
        peer.call_get("q")
    for tag in (4, 1, 6, 3):
        peer.send(method(1, "basic.ack", delivery_tag=tag))
    peer.send(method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True))
    rewind(node)
    assert drain(peer) == [(number, True) for number in range(6)]


def test_what_has_expired_stays_where_it_is() -> None:
    node = Node()
    peer = declare(node, x_message_ttl=10_000)
    put(peer, 1)
    node.tick(6000)
    put(peer, 2)
    ack(peer, 2)
    node.tick(5000)
    assert rewind(node) == 1
    assert drain(peer) == [(2, True)]


def test_a_limited_queue_keeps_to_its_limit() -> None:
    node = Node()
    peer = declare(node, x_max_length=2)
    put(peer, 1, 2)
    ack(peer, 2)
    put(peer, 3)
    rewind(node)
    assert drain(peer) == [(2, True), (3, False)]


# -- for how long ----------------------------------------------------------------------------------


def test_retention_has_an_age() -> None:
    """Counted from the publish; a message acked later than that is not kept at all."""
    node = Node()
    peer = declare(node, x_retain_acked="1h")
    put(peer, 1, 2)
    ack(peer, 1)
    node.tick(HOUR_MS - 2001)
    assert kept(node.classic("q")) == (1, 1)
    node.tick(1)
    assert kept(node.classic("q")) == (1, 0)
    node.tick(1000)
    ack(peer, 1)
    assert kept(node.classic("q")) == (0, 0)
    assert node.core.memory.held_messages == 0


def test_retention_has_a_size() -> None:
    node = Node()
    peer = node.connect()
    one = RETAINED_OVERHEAD_BYTES + 1 + 3
    peer.declare("q", arguments={"x-retain-acked-bytes": 3 * one})
    put(peer, *range(5))
    ack(peer, 5)
    assert int(node.classic("q").retained_bytes()) == 3 * one
    rewind(node)
    assert [number for number, _ in drain(peer)] == [2, 3, 4]
    assert node.core.memory.held_messages == 3


def test_a_message_larger_than_the_size_is_not_kept() -> None:
    node = Node()
    peer = node.connect()
    peer.declare("q", arguments={"x-retain-acked-bytes": RETAINED_OVERHEAD_BYTES})
    put(peer, 1)
    ack(peer, 1)
    assert kept(node.classic("q")) == (0, 0)


def test_an_age_alone_is_bounded_too() -> None:
    node = Node()
    declare(node)
    retained = node.classic("q").retained
    assert retained is not None
    assert retained.bytes_max == RETAINED_BYTES_MAX


def test_a_deleted_queue_holds_no_memory() -> None:
    node = Node()
    peer = declare(node)
    put(peer, 1, 2, 3)
    ack(peer, 2)
    assert node.core.memory.held_messages == 3
    peer.call(1, "queue.delete", queue="q")
    assert (node.core.memory.held_messages, node.core.memory.held_bytes) == (0, 0)
    node.tick(100 * HOUR_MS)


def test_it_is_counted_apart_from_what_is_ready() -> None:
    node = Node()
    peer = declare(node)
    put(peer, 1, 2, 3)
    ack(peer, 2)
    rewind(node, node.clock.wall_ms() - 2000)
    stats = QueueStats("/", node.classic("q"))
    assert (stats.ready_count, stats.retained_count, stats.rewound) == (2, 1, 1)
    assert stats.retained_bytes == RETAINED_OVERHEAD_BYTES + 1 + 3


def test_a_policy_does_it_and_its_end_drops_all() -> None:
    node = Node()
    peer = node.connect()
    peer.declare("q")
    put(peer, 1)
    ack(peer, 1)
    node.vhost.policies.set(make_policy("p", "^q$", {"retain-acked": "1h"}))
    put(peer, 2, 3)
    ack(peer, 2)
    assert kept(node.classic("q")) == (0, 2)
    node.vhost.policies.clear("p")
    assert kept(node.classic("q")) == (0, 0)
    assert node.core.memory.held_messages == 0
    node.sync()
    again = Node(RecordingDisk(node.image()))
    assert kept(again.classic("q")) == (0, 0)


# -- after a restart -------------------------------------------------------------------------------


def stopped(node: Node) -> Node:
    """The node after a clean stop."""
    return Node(RecordingDisk(node.stop()), clock=node.clock)


def killed(node: Node) -> Node:
    """The node after a kill, when all was synced."""
    node.sync()
    return Node(RecordingDisk(node.image()), clock=node.clock)


def checkpointed(node: Node) -> Node:
    """The node after two checkpoints and a kill: only chunks and a snapshot tell."""
    for _ in range(2):
        node.take_checkpoint()
        node.sync()
    return killed(node)


def all_of_it(node: Node) -> Node:
    """The node after several of them."""
    return checkpointed(stopped(checkpointed(killed(node))))


ENDS = [stopped, killed, checkpointed, all_of_it]


@pytest.mark.in_memory
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("policy", [False, True])
def test_what_is_retained_survives(end: Callable[[Node], Node], policy: bool) -> None:
    """It stays retained: not lost, and not delivered again before a rewind."""
    node = Node()
    if policy:
        node.vhost.policies.set(make_policy("p", "^q$", {"retain-acked": "1D"}))
        peer = node.connect()
        peer.declare("q")
    else:
        peer = declare(node)
    put(peer, *range(6))
    ack(peer, 4)
    held = int(node.core.memory.held_bytes)
    node = end(node)
    assert kept(node.classic("q")) == (2, 4)
    assert (node.core.memory.held_messages, node.core.memory.held_bytes) == (6, held)
    peer = node.connect()
    assert [number for number, _ in drain(peer)] == [4, 5]
    assert rewind(node) == 6
    node = end(node)
    assert kept(node.classic("q")) == (6, 0)
    assert drain(node.connect()) == [(number, True) for number in range(6)]
    node = end(node)
    assert kept(node.classic("q")) == (0, 6)


@pytest.mark.parametrize("end", ENDS)
def test_what_retention_dropped_does_not_come_back(end: Callable[[Node], Node]) -> None:
    node = Node()
    peer = declare(node, x_retain_acked="1h")
    put(peer, 1, 2, 3)
    node.take_checkpoint()
    ack(peer, 2)
    node.tick(HOUR_MS - 2500)
    assert kept(node.classic("q")) == (1, 1)
    node = end(node)
    assert kept(node.classic("q")) == (1, 1)
    node.tick(HOUR_MS)
    node = end(node)
    assert kept(node.classic("q")) == (1, 0)


def test_an_age_that_passed_while_the_broker_was_down_counts() -> None:
    node = Node()
    peer = declare(node, x_retain_acked="1h")
    put(peer, 1)
    ack(peer, 1)
    node.sync()
    node.clock.advance(HOUR_MS)
    node = killed(node)
    node.tick(0)
    assert kept(node.classic("q")) == (0, 0)
    assert node.core.memory.held_messages == 0


def test_transient_messages_are_kept_while_the_broker_lives() -> None:
    node = Node()
    peer = declare(node)
    put(peer, 1, persistent=False)
    put(peer, 2)
    ack(peer, 2)
    assert rewind(node) == 2
    assert [number for number, _ in drain(peer)] == [1, 2]
    node = killed(node)
    assert kept(node.classic("q")) == (0, 1)


def test_acks_and_rewinds_beside_a_checkpoint() -> None:
    """Each at every step of it: nothing is lost, doubled or handed out unasked."""
    for offset in range(12):
        node = Node()
        peer = declare(node)
        put(peer, *range(8))
        ack(peer, 3)
        step = 0
        while not node.step_checkpoint(items=1):
            if step == offset:
                ack(peer, 2)
                assert rewind(node, 0) == 5
                ack(peer, 1)
            step += 1
            node.sync()
        before = kept(node.classic("q"))
        for again in (killed(node), checkpointed(node)):
            assert kept(again.classic("q")) == before
            rewind(again)
            found = [number for number, _ in drain(again.connect())]
            assert found == list(range(8))


def test_a_rewind_that_was_not_synced_may_be_lost_but_nothing_else() -> None:
    node = Node()
    peer = declare(node)
    put(peer, *range(4))
    ack(peer, 2)
    node.sync()
    rewind(node)
    images = node.crashed(lambda bound: bound - 1)
    for image in images:
        again = Node(RecordingDisk(image), clock=node.clock)
        ready, retained = kept(again.classic("q"))
        assert ready + retained == 4
        rewind(again)
        assert [number for number, _ in drain(again.connect())] == [0, 1, 2, 3]


# -- arguments -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"x-retain-acked": 5}, "{unacceptable_type,signedint}"),
        ({"x-retain-acked": "soon"}, "invalid_max_age"),
        ({"x-retain-acked-bytes": "1"}, '"expected integer, got longstr"'),
        ({"x-retain-acked-bytes": -1}, "{value_negative,-1}"),
        ({"x-retain-acked": "1D", "x-queue-type": "stream"}, "of queue type rabbit_stream_queue"),
    ],
)
def test_what_no_retention_can_be_is_406(arguments: dict[str, object], why: str) -> None:
    peer = Node().connect()
    peer.send(method(1, "queue.declare", queue="q", durable=True, arguments=arguments))
    closed = peer.expect(1, "channel.close")
    assert closed.code == 406
    assert closed.text.endswith(why)


# -- any load --------------------------------------------------------------------------------------


class Model:
    """What `q` should hold: the numbers that wait, are out by their tags, and are retained."""

    def __init__(self) -> None:
        self.ready: list[int] = []
        self.out: dict[int, int] = {}
        self.kept: list[int] = []

    def ends(self) -> None:
        """The channel ends: what is out waits again."""
        self.ready = sorted(self.ready + list(self.out.values()))
        self.out.clear()


@pytest.mark.parametrize("seed", few_of(range(25), 8))
def test_any_load_with_crashes_and_checkpoints(seed: int) -> None:
    """Against a simple model: nothing is lost, doubled, or handed out while it is retained."""
    draw = random.Random(seed)
    node = Node(seed=seed)
    peer = declare(node)
    model = Model()
    published = 0
    for _ in range(150):
        step = draw.randrange(12)
        if step < 4:
            put(peer, published)
            model.ready.append(published)
            published += 1
        elif step < 6 and model.ready:
            got = peer.call_get("q")
            assert int(got.body) == model.ready.pop(0)
            model.out[got.delivery_tag] = int(got.body)
        elif step < 9 and model.out:
            tag = draw.choice(sorted(model.out))
            number = model.out.pop(tag)
            what = draw.choice(["ack", "requeue", "reject"])
            if what == "ack":
                model.kept.append(number)
                peer.send(method(1, "basic.ack", delivery_tag=tag))
            else:
                requeue = what == "requeue"
                model.ready = sorted(model.ready + [number] * requeue)
                peer.send(method(1, "basic.nack", delivery_tag=tag, requeue=requeue))
        elif step == 9:
            assert rewind(node) == len(model.kept)
            model.ready = sorted(model.ready + model.kept)
            model.kept.clear()
        elif step == 10:
            node.step_checkpoint(items=draw.randrange(1, 6))
        elif draw.randrange(4) == 0:
            model.ends()
            gently = draw.randrange(2) == 1 and node.checkpoint is None
            node = stopped(node) if gently else killed(node)
            peer = node.connect()
        node.sync()
        assert kept(node.classic("q")) == (len(model.ready), len(model.kept))
    rewind(node)
    model.ends()
    peer.lose()
    found = [number for number, _ in drain(node.connect())]
    assert found == sorted(model.ready + model.kept)


def test_much_is_put_back_in_slices() -> None:
    """Between two of them others are served, and what is acked again stays acked."""
    node = Node()
    peer = declare(node)
    count = 3 * SLICE
    for number in range(count):
        peer.send(publish(1, "", "q", b"%d" % number, delivery_mode=2))
    peer.send(method(1, "basic.consume", queue="q", consumer_tag="c", no_wait=True))
    peer.send(method(1, "basic.ack", delivery_tag=0, multiple=True))
    peer.send(method(1, "basic.cancel", consumer_tag="c", no_wait=True))
    peer.take()
    queue = node.classic("q")
    assert kept(queue) == (0, count)

    def begin() -> Rewinding:
        rewinding = queue.rewind(0)
        assert rewinding is not None
        assert rewinding.task is not None
        assert not rewinding.task.over
        return rewinding

    first, second = begin(), begin()
    assert 0 < queue.ready_count() < count
    # The first ones are there, in their order, and may be acked again meanwhile.
    assert ack(peer, 3) == [0, 1, 2]
    node.run()
    assert first.task is not None
    assert first.task.over
    assert second.task is not None
    assert second.task.over
    assert first.count + second.count == count
    assert kept(queue) == (count - 3, 3)
    assert rewind(node) == 3
    assert drain(peer) == [(number, True) for number in range(count)]
    assert kept(queue) == (0, count)
    # What a rewind left to the heap is dropped by age like all the rest.
    node.tick(2 * 24 * HOUR_MS)
    assert kept(queue) == (0, 0)


def test_a_queue_is_deleted_during_a_rewind() -> None:
    node = Node()
    peer = declare(node)
    for _ in range(2 * SLICE):
        peer.send(publish(1, "", "q", b"m"))
    peer.send(method(1, "basic.consume", queue="q", consumer_tag="c", no_wait=True))
    peer.send(method(1, "basic.ack", delivery_tag=0, multiple=True))
    queue = node.classic("q")
    rewinding = queue.rewind(0)
    assert rewinding is not None
    assert queue.retained_count() > 0
    peer.send(method(1, "queue.delete", queue="q", no_wait=True))
    node.run()
    assert rewinding.task is not None
    assert rewinding.task.over
    assert node.core.memory.held_messages == 0
