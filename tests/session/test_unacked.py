"""The unacked deliveries of a channel, against a dict of them (AMQP 0-9-1 section 1.8.3.13)."""

from __future__ import annotations

import gc
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker.queue.queue import Queue
from leveret.limits import UNACKED_PER_CHANNEL_MAX
from leveret.message import Address, Message
from leveret.names import Name
from leveret.session.channel.unacked import Unacked, UnackedList
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish

#: Deliveries of a full block (`unacked._BLOCK`).
BLOCK = 256

MESSAGE = Message(Address(b"", b""), b"\0\0", b"", 0, False)


class Model:
    """The list and its model: the open deliveries by tag."""

    def __init__(self, queue: Queue) -> None:
        self.list = UnackedList()
        self.queue = queue
        self.open: dict[int, Unacked] = {}
        self.rolled: list[Unacked] = []
        self.tag = 0

    def add(self, count: int) -> None:
        for _ in range(count):
            self.tag += 1
            one = Unacked(self.tag, self.queue, None, MESSAGE, self.tag, 0)
            self.list.add(one)
            self.open[self.tag] = one

    def take(self, tag: int) -> None:
        """Take an open, a settled or an unknown tag."""
        expected = self.open.pop(tag, None)
        assert self.list.take(tag) is expected
        if expected is not None:
            self.rolled.append(expected)

    def take_some(self, place: int) -> None:
        """Take an open tag, the one at a place."""
        if self.open:
            self.take(list(self.open)[place % len(self.open)])

    def take_up_to(self, tag: int) -> None:
        expected = [self.open.pop(one) for one in list(self.open) if one <= tag]
        taken: list[Unacked] = []
        while self.list.has_up_to(tag):
            taken += self.list.take_up_to(tag, 7)
        assert taken == expected
        assert self.list.take_up_to(tag, 7) == []
        self.rolled += expected

    def take_all(self, _: int) -> None:
        expected = list(self.open.values())
        self.open = {}
        assert self.list.take_up_to(self.tag, self.tag) == expected
        self.rolled += expected

    def restore(self, _: int) -> None:
        """Roll a transaction back: what was taken since the last one is open again."""
        self.list.restore(self.rolled)
        self.open.update({int(one.tag): one for one in self.rolled})
        self.open = dict(sorted(self.open.items()))
        self.rolled = []

    def check(self) -> None:
        assert self.list.from_tag(0, self.tag + 1) == list(self.open.values())
        assert self.list.count == len(self.open)
        assert self.list.oldest() is next(iter(self.open.values()), None)

    def kept(self) -> int:
        """Return how many deliveries the list keeps in memory, settled ones too."""
        gc.collect()
        found = list(gc.get_referents(self.list))
        seen = {id(one) for one in found}
        count = 0
        while found:
            one = found.pop()
            count += isinstance(one, Unacked)
            if isinstance(one, list):
                news = [new for new in gc.get_referents(one) if id(new) not in seen]
                seen.update(id(new) for new in news)
                found += news
        return count


@pytest.fixture(scope="module")
def queue() -> Queue:
    """Some queue."""
    peer = Node().connect()
    peer.call(1, "queue.declare", queue="q")
    return peer.node.vhost.queues.existing(Name("q"), None)


steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "take", "take_some", "take_up_to", "take_all", "restore"]),
        st.integers(0, 30),
    ),
    max_size=40,
)


@given(steps, st.sampled_from([0, 0, BLOCK - 2, BLOCK, 3 * BLOCK]))
def test_the_list_is_a_dict_by_tags(
    queue: Queue, steps: list[tuple[str, int]], before: int
) -> None:
    model = Model(queue)
    model.add(before)
    for name, number in steps:
        getattr(model, name)(number)
        model.check()


@settings(max_examples=20)
@given(st.randoms(use_true_random=False), st.integers(BLOCK - 1, 5 * BLOCK + 1))
def test_acks_in_any_order_leave_nothing(queue: Queue, chosen: random.Random, count: int) -> None:
    model = Model(queue)
    model.add(count)
    tags = list(model.open)
    chosen.shuffle(tags)
    for number, tag in enumerate(tags):
        model.take(tag)
        if number == count // 2:
            model.restore(0)
            model.check()
            for again in tags[: number + 1]:
                model.take(again)
    model.check()
    assert model.kept() == 0


@pytest.mark.parametrize("count", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1])
def test_blocks_end_at_their_borders(queue: Queue, count: int) -> None:
    model = Model(queue)
    model.add(count)
    for tag in range(1, BLOCK + 2):
        model.take(tag)
        if abs(tag - BLOCK) <= 2:
            model.check()
    model.add(2)
    model.take_up_to(count)
    model.check()
    assert model.kept() == 2


def test_what_is_settled_is_not_kept(queue: Queue) -> None:
    """The oldest delivery is never acked, all others are: in order, backward, or every other."""
    model = Model(queue)
    model.add(1)
    for step in (1, -1, 2, -2):
        model.add(4 * BLOCK)
        for tag in list(model.open)[1:][::step]:
            model.take(tag)
            assert model.list.count == len(model.open)
        model.check()
        assert model.kept() == len(model.open)


@pytest.mark.parametrize("seed", range(12))
def test_whole_blocks_are_rolled_back(queue: Queue, seed: int) -> None:
    """Deliveries of a block or two are settled and come back, in any order."""
    model = Model(queue)
    chosen = random.Random(seed)
    for _ in range(60):
        if len(model.open) < 3 * BLOCK:
            model.add(chosen.choice([1, 5, BLOCK - 1, BLOCK, BLOCK + 1]))
        tags = list(model.open)
        match chosen.randrange(4):
            case 0:
                model.take_up_to(
                    tags[chosen.choice([0, -1, len(tags) // 2, BLOCK - 2]) % len(tags)]
                )
            case 1:
                begin = chosen.randrange(len(tags))
                for tag in tags[begin : begin + chosen.choice([1, BLOCK // 2, 2 * BLOCK])]:
                    model.take(tag)
            case 2:
                chosen.shuffle(tags)
                for tag in tags[: chosen.choice([1, BLOCK])]:
                    model.take(tag)
        if chosen.random() < 0.6:
            chosen.shuffle(model.rolled)
            model.restore(0)
        elif chosen.random() < 0.5:
            model.rolled.clear()
        model.check()


def test_a_block_that_came_back_twice(queue: Queue) -> None:
    model = Model(queue)
    model.add(BLOCK + 44)
    for tag in (BLOCK - 1, BLOCK - 6):
        model.take_up_to(tag)
        model.restore(0)
        model.check()
    model.take_up_to(1)
    model.check()


def test_few_that_are_left_block_by_block_lie_in_few_blocks(queue: Queue) -> None:
    model = Model(queue)
    model.add(BLOCK)
    for first in range(1, 40 * BLOCK, BLOCK):
        model.add(BLOCK)
        for tag in range(first, first + BLOCK - 1):
            model.take(tag)
    model.check()
    lists = [one for one in gc.get_referents(model.list) if isinstance(one, list)]
    (blocks,) = [one for one in lists if isinstance(one[0], list)]
    assert len(blocks) <= 4


def test_few_that_are_left_of_very_many_lie_in_few_blocks(queue: Queue) -> None:
    model = Model(queue)
    model.add(64 * BLOCK)
    for tag in range(64 * BLOCK, 0, -1):
        if tag % BLOCK:
            model.take(tag)
    model.check()
    lists = [one for one in gc.get_referents(model.list) if isinstance(one, list)]
    (blocks,) = [one for one in lists if isinstance(one[0], list)]
    assert len(blocks) <= 2


UNKNOWN = {
    "zero": (0, False),
    "never given": (4, False),
    "never given, multiple": (4, True),
    "the largest": (2**64 - 1, False),
    "the largest, multiple": (2**64 - 1, True),
    "twice": (2, False),
}


@pytest.mark.parametrize("name", ["basic.ack", "basic.nack"])
@pytest.mark.parametrize("kind", UNKNOWN)
def test_a_tag_that_names_nothing_settles_nothing(peer: Peer, name: str, kind: str) -> None:
    """Behaviour 58 (unknown delivery tags): also where it would take others with it."""
    peer.call(1, "queue.declare", queue="q")
    peer.send(*[publish(1, "", "q", b"x")] * 3)
    for _ in range(3):
        peer.call_get("q")
    peer.send(method(1, "basic.ack", delivery_tag=2))
    tag, multiple = UNKNOWN[kind]
    peer.send(method(1, name, delivery_tag=tag, multiple=multiple))
    closed = peer.expect(1, "channel.close")
    assert (closed.code, closed.text) == (406, f"PRECONDITION_FAILED - unknown delivery tag {tag}")
    assert peer.node.vhost.queues.existing(Name("q"), None).ready_count() == 2


def test_tag_0_with_multiple_is_all(peer: Peer) -> None:
    """Behaviour 58 (unknown delivery tags): fine where nothing is unacked."""
    peer.call(1, "queue.declare", queue="q")
    peer.send(*[publish(1, "", "q", b"x")] * 3)
    for _ in range(3):
        peer.call_get("q")
    for _ in range(2):
        peer.send(method(1, "basic.ack", delivery_tag=0, multiple=True))
        assert peer.node.vhost.queues.existing(Name("q"), None).unacked_count == 0
    peer.call(1, "basic.qos")


def test_a_channel_that_holds_its_most_gets_nothing_more(peer: Peer) -> None:
    """At the limit basic.get with acks is refused (406), one before it is not."""
    peer.declare("q")
    peer.send(publish(1, "", "q", b"a"), publish(1, "", "q", b"b"))
    unacked = peer.connection.channels.by_number[1].unacked
    unacked.count = UNACKED_PER_CHANNEL_MAX - 1
    assert peer.call_get("q").name == "basic.get-ok"
    assert unacked.count == UNACKED_PER_CHANNEL_MAX
    assert peer.call_get("q", no_ack=True).name == "basic.get-ok"
    peer.send(method(1, "basic.get", queue="q"))
    assert peer.expect(1, "channel.close").fields["code"] == 406
