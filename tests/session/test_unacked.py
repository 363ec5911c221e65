"""The list of deliveries that wait for their ack, against a plain dict (behaviour 58)."""

from __future__ import annotations

import random

import pytest

from core import Node
from leveret.broker.queue import Queue
from leveret.message import Address, Message
from leveret.session.unacked import Unacked, UnackedList

MESSAGE = Message(Address(b"", b"q"), b"\0\0", b"", 0, True)


def a_queue() -> Queue:
    """Any queue: the list only hands it on."""
    node = Node()
    node.connect().declare("q")
    return node.vhost.queues["q"]


def tags(settled: list[Unacked]) -> list[int]:
    """The tags of settled deliveries."""
    return [int(unacked.tag) for unacked in settled]


@pytest.mark.parametrize("seed", range(30))
def test_against_a_dict(seed: int) -> None:
    draw = random.Random(seed)
    queue = a_queue()
    real, model = UnackedList(), dict[int, None]()
    held: list[Unacked] = []
    last = 0
    for _ in range(400):
        step = draw.randrange(10)
        if step < 4:
            for _ in range(draw.choice([1, 3, 100, 1500])):
                # A channel's tags grow; those of deliveries without acks are left out.
                last += draw.randrange(1, 3)
                real.add(Unacked(last, queue, None, MESSAGE, last, 0))
                model[last] = None
        elif step < 7:
            tag = draw.choice([*list(model)[:3], draw.randrange(last + 2)])
            got = real.take(tag)
            assert (got is not None) == (tag in model)
            if got is not None:
                assert got.tag == tag
                del model[tag]
                held.append(got)
            assert real.take(tag) is None
        elif step < 9:
            tag = draw.randrange(last + 2)
            settled = real.take_up_to(tag)
            assert tags(settled) == [one for one in model if one <= tag]
            for one in settled:
                del model[int(one.tag)]
            held += settled if draw.randrange(2) else []
        elif held:
            # A rollback puts them back in their order.
            real.restore(held)
            model = dict.fromkeys(sorted([*model, *tags(held)]))
            held = []
        assert real.count == len(model)
    assert tags(real.take_all()) == list(model)
    assert real.count == 0


def test_acks_from_the_newest_on_do_not_keep_what_is_settled() -> None:
    """One delivery that is never acked must not make the list grow for ever."""
    queue = a_queue()
    real = UnackedList()
    real.add(Unacked(1, queue, None, MESSAGE, 1, 0))
    for tag in range(2, 20_000):
        real.add(Unacked(tag, queue, None, MESSAGE, tag, 0))
        assert real.take(tag) is not None
    assert real.count == 1
    assert len(real.items) < 3000
    assert real.take(1) is not None
    assert real.items == []
