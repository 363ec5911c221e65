"""The walk behind the totals of metrics: what goes while it is under way is counted once."""

from __future__ import annotations

import asyncio
import random

import pytest

from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.queue.queue import Queue
from leveret.broker.stats.metrics import QueueRows, QueueWalk
from leveret.management.metrics import series as table
from leveret.management.metrics.text import SLICE_SAMPLES, Sample, pieces
from leveret.management.metrics.totals import WALK_SHARED_MS, WALK_SHARED_OBJECTS_MIN, Walks
from leveret.message import Address, Message
from leveret.names import Name
from support.node.core import Node

_MESSAGE = Message(Address(b"", b"q"), b"\x10\x00\x01", b"body", 0, False)


def declare(node: Node, name: str) -> Queue:
    return node.vhost.queues.declare(None, Name(name), QueueAttributes())


def publish(node: Node, queue: Queue, count: int) -> None:
    for _ in range(count):
        node.vhost.publish(_MESSAGE, [queue.target], None)


def walked(node: Node) -> QueueWalk:
    return QueueWalk(node.broker, node.broker.core.counts.begin_walk())


def published(walk: QueueWalk) -> int:
    return sum(int(counts.published) for counts in walk.finish().values())


def see_all(walk: QueueWalk) -> None:
    for _ in walk.see_all():
        pass


def whole(node: Node) -> int:
    walk = walked(node)
    see_all(walk)
    return published(walk)


@pytest.mark.parametrize("seen", [False, True], ids=["before it was seen", "after it was seen"])
def test_a_queue_that_goes_during_a_walk_counts_once(seen: bool) -> None:
    node = Node()
    queue = declare(node, "goes")
    publish(node, queue, 3)
    walk = walked(node)
    if seen:
        see_all(walk)
    publish(node, queue, 1)
    node.vhost.queues.drop(queue)
    see_all(walk)
    # What came after it was seen is told by the next walk.
    assert published(walk) == (3 if seen else 4)
    assert whole(node) == 4


def test_a_queue_that_comes_and_goes_during_a_walk_counts_once() -> None:
    node = Node()
    walk = walked(node)
    queue = declare(node, "short")
    publish(node, queue, 2)
    node.vhost.queues.drop(queue)
    see_all(walk)
    assert published(walk) == 2
    assert whole(node) == 2


@pytest.mark.parametrize("seed", range(5))
def test_totals_never_fall_whatever_happens_meanwhile(seed: int) -> None:
    rng = random.Random(seed)
    node = Node()
    queues = [declare(node, f"q{number}") for number in range(60)]
    done = 0
    last = 0
    for turn in range(30):
        walk = walked(node)
        for _ in walk.see_all():
            for _ in range(rng.randrange(3)):
                if queues and rng.random() < 0.4:
                    node.vhost.queues.drop(queues.pop(rng.randrange(len(queues))))
                elif queues:
                    count = rng.randrange(5)
                    publish(node, rng.choice(queues), count)
                    done += count
        total = published(walk)
        assert last <= total <= done
        last = total
        queues.append(declare(node, f"new{turn}"))
    assert whole(node) == done


def test_entries_beyond_the_limit_are_counted_and_left_out() -> None:
    node = Node()
    for number in range(5):
        declare(node, f"q{number}")
    for limit, taken in ((5, 5), (4, 4)):
        rows = QueueRows(node.broker, None, limit)
        assert sum(rows.take_all()) == 5
        assert (len(rows.rows), rows.omitted) == (taken, 5 - taken)
    none = QueueRows(node.broker, ["no such vhost"], 5)
    assert sum(none.take_all()) == 0
    assert not none.rows


def test_objects_without_a_sample_give_empty_pieces() -> None:
    """Else a series that no queue has would be looked for in all of them at once."""
    one = table.QUEUE_HEAD["queue_head_message_timestamp"]
    nothing: list[Sample | None] = [None]
    found: list[Sample | None] = [(("/", "q"), 7)]
    samples = nothing * 2 * SLICE_SAMPLES + found + nothing * SLICE_SAMPLES
    text = list(pieces(one, "p_", samples))
    assert [bool(piece) for piece in text] == [True, False, True, False]
    assert b"".join(text).splitlines()[2:] == [
        b'p_queue_head_message_timestamp{queue="q",vhost="/"} 7.0'
    ]


def test_who_asks_soon_after_another_shares_the_walk_over_very_many_queues() -> None:
    node = Node()
    walks = Walks(node.broker, node.clock)

    async def run() -> None:
        declare(node, "first")
        few = await walks.totals()
        assert await walks.totals() is not few
        for number in range(WALK_SHARED_OBJECTS_MIN):
            declare(node, str(number))
        many = await walks.totals()
        node.clock.advance(WALK_SHARED_MS - 1)
        assert await walks.totals() is many
        assert await walks.totals(many.wall_ms) is many
        assert await walks.totals(many.wall_ms + 1) is not many
        many = await walks.totals()
        node.clock.advance(WALK_SHARED_MS)
        assert await walks.totals() is not many

    asyncio.run(run())


def test_the_sums_for_listings_leave_out_what_no_listing_shows() -> None:
    node = Node()
    publish(node, declare(node, "shown"), 2)
    hidden = declare(node, "hidden")
    hidden.hidden = True
    publish(node, hidden, 3)
    totals = asyncio.run(Walks(node.broker, node.clock).totals())
    assert sum(int(counts.published) for counts in totals.queues.values()) == 5
    assert (totals.sums.queues, totals.sums.done.published, totals.sums.ready) == (1, 2, 2)
