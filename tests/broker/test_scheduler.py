"""The scheduler itself: whose turn it is and for how long, in what it counts.

That the parts of the core keep to it is shown by `model/test_operations.py` and `hostile/`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from leveret.broker.core import Core
from leveret.broker.scheduler.costs import (
    DEFINING_METHOD,
    DELIVERIES_OF_ONE_MIN,
    LATE_SLICE,
    METHOD,
    ROUND,
    SHARE_MIN,
    SHARE_OF_DELIVERIES,
    SHARE_OF_INPUT,
    SHARE_OF_LATE_INPUT,
    SHARE_OF_TASKS,
    SLICE,
)
from leveret.broker.scheduler.task import WAIT
from leveret.limits import SLICE_MESSAGES, UNSYNCED_BYTES_MAX
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish

#: In memory, and on one build: what is counted is the same on both.
pytestmark = [pytest.mark.one_build, pytest.mark.in_memory]

#: What the frame at which a slice ends may take beyond it.
LAST_FRAME = 4 * (DEFINING_METHOD + METHOD)


@pytest.fixture
def node() -> Node:
    """A broker, which is at the beginning of a round whenever a client has been answered."""
    return Node()


# -- tasks -----------------------------------------------------------------------------------------


def counting(
    core: Core, name: str, steps: int, log: list[str], follows: Iterator[int] | None = None
) -> Iterator[int]:
    """Take so many steps, log the name at each slice and at the end, and start what follows."""
    while steps > SLICE:
        log.append(name)
        steps -= SLICE
        yield SLICE
    log.append(name)
    core.scheduler.spent += steps
    log.append(f"{name} ended")
    if follows is not None:
        core.scheduler.start(follows)


@pytest.fixture
def core() -> Core:
    return Node().core


def test_a_short_one_ends_at_once(core: Core) -> None:
    log: list[str] = []
    core.scheduler.start(counting(core, "a", SLICE, log))
    assert log == ["a", "a ended"]
    assert not core.scheduler.tasks


def test_long_ones_take_turns(core: Core) -> None:
    log: list[str] = []
    core.scheduler.start(counting(core, "a", 3 * SLICE, log))
    core.scheduler.start(counting(core, "b", 2 * SLICE, log))
    assert log == ["a", "b"]
    core.settle()
    assert core.scheduler.resume
    assert log == ["a", "b", "a", "b", "b ended"]
    core.settle()
    assert log[5:] == ["a", "a ended"]
    assert not core.scheduler.resume


def test_a_turn_has_steps_for_some_of_them(core: Core) -> None:
    """The others come first in the next one."""
    log: list[str] = []
    for name in "abc":
        core.scheduler.start(counting(core, name, 3 * SLICE, log))
    log.clear()
    before = core.scheduler.spent
    core.settle()
    assert log == ["a", "b"]
    assert core.scheduler.spent - before == SHARE_OF_TASKS
    core.settle()
    assert log == ["a", "b", "c", "a", "a ended"]
    core.settle()
    assert log[5:] == ["b", "b ended", "c", "c ended"]


def test_the_end_of_one_may_begin_another(core: Core) -> None:
    """It gets its other slices in later turns."""
    log: list[str] = []
    second = counting(core, "b", 3 * SLICE, log)
    core.scheduler.start(counting(core, "a", 2 * SLICE, log, second))
    core.settle()
    assert log == ["a", "a", "a ended", "b"]
    core.settle()
    core.settle()
    assert log[4:] == ["b", "b", "b ended"]


def test_a_stop_does_all_that_is_left(core: Core) -> None:
    log: list[str] = []
    second = counting(core, "b", 30 * SLICE, log)
    core.scheduler.start(counting(core, "a", 20 * SLICE, log, second))
    core.scheduler.end_tasks()
    assert log[-1] == "b ended"
    assert core.scheduler.spent >= 50 * SLICE


def test_a_stop_gives_up_what_waits_for_the_disk(core: Core) -> None:
    """Nothing is written while tasks come to their end: waiting for it would never end."""

    def rejecting() -> Iterator[int]:
        for _ in range(9):
            core.journal.define("start", {"version": "x" * (UNSYNCED_BYTES_MAX // 8 - 1000)})
        while core.scheduler.is_writing_much():
            yield WAIT

    core.scheduler.start_later(rejecting())
    core.scheduler.end_tasks()
    assert len(core.scheduler.tasks) == 1


# -- connections and queues ------------------------------------------------------------------------


def declares(peer: Peer, count: int) -> bytes:
    """Return so many declares, none of which is answered, so that no reply waits for a sync."""
    return b"".join(
        method(1, "queue.declare", queue=f"{id(peer)}-{number}", no_wait=True)
        for number in range(count)
    )


def a_round(node: Node) -> int:
    """Do one round of the loop; return what it cost."""
    before = int(node.core.scheduler.spent)
    node.settle()
    return int(node.core.scheduler.spent) - before


def consume(queue: str) -> bytes:
    """Return a request for all messages of a queue, which is not answered."""
    return method(1, "basic.consume", queue=queue, no_ack=True, no_wait=True)


def test_all_connections_that_ask_for_little_are_served_in_one_turn_of_their_user(
    node: Node,
) -> None:
    """They do not wait for a slice of the other user's each."""
    node.add_user("greedy", configure=".*")
    node.add_user("quiet", configure=".*")
    greedy = node.connect_as("greedy")
    quiet = [node.connect_as("quiet") for _ in range(20)]
    node.settle()
    greedy.feed(declares(greedy, 5000))
    # What the round has left for those that come late is used up too.
    node.core.scheduler.spent += SHARE_OF_INPUT + SHARE_OF_LATE_INPUT
    for number, peer in enumerate(quiet):
        peer.feed(method(1, "queue.declare", queue=f"quiet{number}", no_wait=True))
    assert all(peer.connection.waits_for_turn() for peer in quiet)
    for _ in range(2):
        assert a_round(node) <= SHARE_OF_INPUT + SLICE + LAST_FRAME
    assert not any(peer.connection.waits_for_turn() for peer in quiet)
    assert all(f"quiet{number}" in node.vhost.queues.by_name for number in range(20))
    assert greedy.connection.waits_for_turn()


def test_who_comes_late_has_a_small_slice_and_all_of_them_little(node: Node) -> None:
    greedy = node.connect()
    late = [node.connect() for _ in range(50)]
    greedy.feed(declares(greedy, 5000))
    a_round(node)
    before = int(node.core.scheduler.spent)
    inputs = [declares(peer, 20) for peer in late]
    read = sum(len(data) // 256 for data in inputs)
    taken = [peer.feed(data) for peer, data in zip(late, inputs, strict=True)]
    assert max(taken) <= LATE_SLICE + LAST_FRAME
    most = SHARE_OF_LATE_INPUT + LATE_SLICE + LAST_FRAME + read
    assert int(node.core.scheduler.spent) - before <= most
    assert all(peer.connection.waits_for_turn() for peer in late)


def test_many_small_batches_bring_no_more_of_what_expires_than_one(node: Node) -> None:
    """Each is the end of a batch, but all of them are in one round."""
    peer = node.connect()
    peer.declare("dead", durable=False, arguments={"x-max-length": 10})
    more = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    peer.declare("many", durable=False, arguments={"x-message-ttl": 1000} | more)
    count = 5 * ROUND
    peer.send(publish(1, "", "many", b"m") * count)
    quiet = node.connect()
    quiet.declare("quiet", durable=False)
    node.clock.advance(2000)
    node.now()
    before = int(node.core.scheduler.spent)
    node.settle()
    for _ in range(40):
        quiet.receive(publish(1, "", "quiet", b"m"))
        node.broker.settle(False)
    taken = int(node.core.scheduler.spent) - before
    assert taken <= ROUND + 2 * SHARE_MIN + 40 * 4
    assert node.classic("quiet").ready_count() == 40
    # What is left goes on in the next rounds, and all of it is done.
    assert node.core.scheduler.resume
    node.run()
    assert node.classic("many").ready_count() == 0
    assert not node.core.scheduler.letters.any()


def test_many_small_batches_deliver_no_more_than_one(node: Node) -> None:
    peer = node.connect(1, 2)
    for number in range(8):
        peer.declare(f"deep{number}", durable=False)
        peer.send(publish(1, "", f"deep{number}") * 3000)
    before = int(node.core.scheduler.spent)
    node.settle()
    for number in range(8):
        consume = method(2, "basic.consume", queue=f"deep{number}", no_ack=True, no_wait=True)
        peer.receive(consume)
        node.broker.settle(False)
    # What a method takes comes beside it.
    most = SHARE_OF_DELIVERIES + SHARE_OF_LATE_INPUT + 16 * DEFINING_METHOD
    assert int(node.core.scheduler.spent) - before <= most
    assert node.core.scheduler.has_more()
    node.run()
    assert sum(heard.method.name == "basic.deliver" for heard in peer.heard) == 8 * 3000


def test_the_input_of_a_round_is_bounded_whoever_sends_it(node: Node) -> None:
    peers = [node.connect() for _ in range(100)]
    inputs = [declares(peer, 60) for peer in peers]
    node.settle()
    before = int(node.core.scheduler.spent)
    for peer, data in zip(peers, inputs, strict=True):
        peer.feed(data)
    taken = int(node.core.scheduler.spent) - before
    fed = sum(len(data) // 256 for data in inputs)
    assert taken <= SHARE_OF_INPUT + SLICE + LAST_FRAME + fed
    while any(peer.connection.waits_for_turn() for peer in peers):
        a_round(node)
    assert len(node.vhost.queues.by_name) == 6000


def test_a_round_ends_when_a_slice_is_not_left_in_it(node: Node) -> None:
    """Until then a busy connection does without another look at what waits."""
    peer = node.connect()
    peer.declare("q")
    node.settle()
    most = SHARE_OF_INPUT - SLICE - LAST_FRAME
    peer.feed(publish(1, "", "q", b"x") * (most // 2))
    node.broker.settle(False)
    assert not node.core.scheduler.must_go_on()
    peer.feed(publish(1, "", "q", b"x") * (SLICE - 100))
    node.broker.settle(False)
    assert node.core.scheduler.must_go_on()
    node.settle()
    assert not node.core.scheduler.must_go_on()


def test_what_a_turn_brings_is_delivered_before_the_next_one(node: Node) -> None:
    first, second, consumer = node.connect(), node.connect(), node.connect()
    for queue in ("one", "two"):
        consumer.declare(queue, durable=False)
        consumer.call(1, "basic.consume", queue=queue, no_ack=True)
    node.settle()
    # The round is over.
    node.core.scheduler.spent += SHARE_OF_INPUT + SHARE_OF_LATE_INPUT
    for peer, body in ((first, b"first"), (second, b"second")):
        peer.feed(publish(1, "", "one", body) + publish(1, "", "two", body))
        assert peer.connection.waits_for_turn()
    consumer.take()
    a_round(node)
    consumer.flush()
    delivered = [(heard.method.routing_key, heard.method.body) for heard in consumer.heard[-4:]]
    assert delivered == [
        ("one", b"first"),
        ("two", b"first"),
        ("one", b"second"),
        ("two", b"second"),
    ]


@pytest.mark.parametrize("limit", [{}, {"x-delivery-limit": 5}], ids=["plain", "counted"])
def test_queues_that_continue_have_a_share_whatever_is_scheduled_in_the_round(
    node: Node, limit: dict[str, Any]
) -> None:
    rounds = 5
    filler, quiet, greedy = node.connect(), node.connect(), [node.connect(1) for _ in range(2)]
    deep = [f"deep{number}" for number in range(2 * rounds)]
    for name in ("old", *deep):
        counted = limit if name in deep else {}
        filler.declare(name, durable=False, arguments=counted)
        for _ in range(10):
            filler.send(publish(1, "", name, b"m") * 500)
    quiet.receive(consume("old"))
    a_round(node)
    quiet.flush()
    old = node.classic("old")
    shares = []
    for _ in range(rounds):
        left = old.ready_count()
        assert left > 0
        # The round is over, so that what follows is part of the next one.
        node.core.scheduler.spent += SHARE_OF_INPUT + SHARE_OF_LATE_INPUT
        for peer in greedy:
            peer.feed(consume(deep.pop()))
            assert peer.connection.waits_for_turn()
        # A delivery with a header is two steps, of which a share has as many as it has messages.
        most = SHARE_OF_INPUT + SHARE_OF_DELIVERIES + 2 * SHARE_MIN
        assert a_round(node) <= most + (SLICE_MESSAGES if limit else 0)
        assert not any(peer.connection.waits_for_turn() for peer in greedy)
        for peer in (*greedy, quiet):
            peer.flush()
        shares.append(int(left - old.ready_count()))
    # Where those that go on are too many for a round, the others of them come first in the next.
    pairs = itertools.pairwise(shares)
    assert all(sum(pair) >= DELIVERIES_OF_ONE_MIN for pair in pairs), shares


def test_what_expires_at_once_is_delivered_where_others_had_the_round(node: Node) -> None:
    """A TTL of 0 asks for a consumer that can take the message, not for an idle broker."""
    greedy, publisher, consumer = node.connect(1, 2), node.connect(), node.connect()
    greedy.declare("fast", durable=False, arguments={"x-delivery-limit": 5})
    greedy.call(2, "basic.consume", queue="fast", no_ack=True)
    consumer.declare("now", durable=False, arguments={"x-message-ttl": 0})
    consumer.call(1, "basic.consume", queue="now", no_ack=True)
    node.settle()
    node.core.scheduler.spent += SHARE_OF_INPUT + SHARE_OF_LATE_INPUT
    greedy.feed(publish(1, "", "fast", b"m") * 2000)
    publisher.feed(publish(1, "", "now", b"m") * 2000)
    assert publisher.connection.waits_for_turn()
    node.run()
    queue = node.classic("now")
    assert (queue.target.published, queue.delivered_no_ack) == (2000, 2000)
