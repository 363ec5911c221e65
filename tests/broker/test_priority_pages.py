"""Deep priority queues: what one hands out is what one with all of it in memory does.

Two brokers get the same operations; one keeps nothing in memory that it can page.  What their
clients hear, what waits, is counted and is found after a stop must be the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leveret.broker.backlog.priorities import PriorityReady
from leveret.broker.backlog.priority_pages import PriorityPage, PriorityPages
from leveret.broker.backlog.window import RequeuedMessage
from leveret.broker.queue.browse import BrowseFilter, browse
from leveret.broker.queue.classic import ClassicQueue
from leveret.store.disks.recording import RecordingDisk
from leveret.store.records.record import RETAINED_COUNT
from support.node.core import Node, Peer, all_waiting, held
from support.wire.raw import Method
from support.wire.raw_codec import method, publish

ARGUMENTS = {"x-max-priority": 5, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}

#: Priority (above 5 counts as 5), persistent, expiration in ms or none, and bytes.
MESSAGE = st.tuples(
    st.sampled_from([0, 0, 1, 2, 5, 9]),
    st.sampled_from([True, True, False]),
    st.sampled_from([None, None, None, 50, 400]),
    st.sampled_from([0, 10, 300]),
)


def ready_of(queue: ClassicQueue) -> PriorityReady:
    """What waits in a priority queue."""
    ready = queue.ready
    assert isinstance(ready, PriorityReady)
    return ready


def name(item: RequeuedMessage) -> tuple[str, int]:
    """What tells a body from all others, short enough to be read."""
    number, _, rest = item.message.body.partition(b".")
    return number.decode(), len(rest)


def check_counts(node: Node, queue: ClassicQueue) -> None:
    """Whether the pages are what they say, and memory holds what is counted."""
    ready = ready_of(queue)
    pages = ready.pages
    waiting = all_waiting(queue)
    assert len(waiting) == queue.ready_count()
    assert sum(item.message.size for item in waiting) == queue.ready.size
    assert sum(len(item.message.body) for item in waiting) == queue.ready.bodies
    tail = ready.at.within(ready.tail_start, ready.next - 1)
    assert ready.tail_count == len(tail)
    assert ready.tail_bytes == sum(item.message.size for item in tail)
    if pages is None:
        return
    assert isinstance(pages, PriorityPages)
    items = [page for page in pages.items if isinstance(page, PriorityPage)]
    assert len(items) == len(pages.items)
    assert pages.away_count == sum(page.waiting for page in items)
    assert pages.away_bytes == sum(page.size for page in items)
    assert len(waiting) == pages.away_count + ready.at.count
    for page in items:
        assert page.waiting > 0
        assert page.levels
        assert page.stored is not None
        assert page.stored.kept
    for level in range(6):
        holding = [page for page in items if page.levels >> level & 1]
        assert pages.lowest.get(level) is (holding[0] if holding else None)
    places = [item for level in ready.levels.values() for item in level.items]
    assert len(places) <= 2 * ready.at.count + 1024, "what went to the disk is not in memory"


class Machine(RuleBasedStateMachine):
    """Two brokers side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = [Node(window_bytes=0), Node(window_bytes=-1)]
        self.peers: list[Peer] = []
        self.out: list[int] = []
        self.number = 0
        self.consumes = False

    @initialize()
    def start(self) -> None:
        """Declare a queue with priorities, and one for its dead letters."""
        self.connect()
        for peer in self.peers:
            peer.declare("dead")
            peer.declare("q", arguments=ARGUMENTS)

    def connect(self) -> None:
        self.peers = [node.connect() for node in self.nodes]
        self.out = []
        self.consumes = False

    def hear(self) -> list[Method]:
        """What both clients heard: the same."""
        paged, plain = (peer.take() for peer in self.peers)
        assert paged == plain
        self.out += [
            got.delivery_tag for got in paged if got.name in {"basic.deliver", "basic.get-ok"}
        ]
        return paged

    def send(self, *parts: bytes) -> list[Method]:
        for peer in self.peers:
            peer.send(*parts)
        return self.hear()

    @rule(messages=st.lists(MESSAGE, min_size=1, max_size=9), together=st.booleans())
    def publish(self, messages: list[tuple[int, bool, int | None, int]], together: bool) -> None:
        parts = []
        for priority, persistent, expiration, size in messages:
            props: dict[str, Any] = {"delivery_mode": 2 if persistent else 1}
            if priority:
                props["priority"] = priority
            if expiration is not None:
                props["expiration"] = str(expiration)
            self.number += 1
            parts.append(publish(1, "", "q", b"%d." % self.number + bytes(size), **props))
        if together:
            self.send(*parts)
        else:
            for part in parts:
                self.send(part)

    @rule(times=st.integers(1, 6), no_ack=st.sampled_from([False, False, True]))
    def get(self, times: int, no_ack: bool) -> None:
        for _ in range(times):
            before = list(self.out)
            self.send(method(1, "basic.get", queue="q", no_ack=no_ack))
            if no_ack:
                self.out = before

    @rule(prefetch=st.sampled_from([1, 4, 50]))
    def consume(self, prefetch: int) -> None:
        if not self.consumes:
            self.send(method(1, "basic.qos", prefetch_count=prefetch))
            self.send(method(1, "basic.consume", queue="q", consumer_tag="c"))
            self.consumes = True

    @rule()
    def cancel(self) -> None:
        if self.consumes:
            self.send(method(1, "basic.cancel", consumer_tag="c"))
            self.consumes = False

    @rule(data=st.data(), verb=st.sampled_from(["ack", "ack", "requeue", "reject"]),
          multiple=st.booleans())  # fmt: skip
    def settle(self, data: st.DataObject, verb: str, multiple: bool) -> None:
        if self.out:
            self.settle_one(data.draw(st.sampled_from(self.out)), verb, multiple)

    def settle_one(self, tag: int, verb: str, multiple: bool) -> None:
        self.out = [one for one in self.out if one != tag and not (multiple and one < tag)]
        if verb == "ack":
            self.send(method(1, "basic.ack", delivery_tag=tag, multiple=multiple))
            return
        values = {"delivery_tag": tag, "multiple": multiple, "requeue": verb == "requeue"}
        self.send(method(1, "basic.nack", **values))

    @rule()
    def purge(self) -> None:
        self.send(method(1, "queue.purge", queue="q"))
        self.sync()

    @rule(by_ms=st.sampled_from([1, 60, 500]))
    def pass_time(self, by_ms: int) -> None:
        for node in self.nodes:
            node.tick(by_ms)
        self.hear()

    @rule()
    def sync(self) -> None:
        for node in self.nodes:
            node.sync()
        self.hear()

    @rule(items=st.integers(1, 5), steps=st.integers(1, 4))
    def checkpoint(self, items: int, steps: int) -> None:
        for node in self.nodes:
            for _ in range(steps):
                node.step_checkpoint(items)
                node.sync()
        self.hear()

    @rule()
    def whole_checkpoint(self) -> None:
        for node in self.nodes:
            node.take_checkpoint()
        self.hear()

    @rule(synced=st.booleans())
    def crash(self, synced: bool) -> None:
        """Lose the processes and what was not synced."""
        if synced:
            self.sync()
        images = [node.crashed(lambda _: 0)[0] for node in self.nodes]
        self.restart(images)

    @rule()
    def stop(self) -> None:
        self.restart([node.stop() for node in self.nodes])

    def restart(self, images: list[Any]) -> None:
        clocks = [node.clock for node in self.nodes]
        self.nodes = [
            Node(RecordingDisk(image), clock=clock, window_bytes=window)
            for image, clock, window in zip(images, clocks, (0, -1), strict=True)
        ]
        assert not any(node.core.damaged for node in self.nodes)
        self.connect()

    @rule()
    def look(self) -> None:
        """Browsing gives the same, and takes nothing."""
        paged, plain = (
            [(name(item), item.count) for item in page.items]
            for page in (browse(node.classic("q"), BrowseFilter()) for node in self.nodes)
        )
        assert paged == plain

    @invariant()
    def same(self) -> None:
        if not self.peers:
            return
        found = []
        for node in self.nodes:
            queue = node.classic("q")
            check_counts(node, queue)
            found.append(
                (
                    [(name(item), item.count) for item in all_waiting(queue)],
                    sorted((name(item), item.count) for item in queue.out.values()),
                    (queue.ready_count(), queue.ready.size, queue.ready.bodies),
                    (queue.unacked_count, queue.unacked_bytes),
                    sorted(name(item) for item in all_waiting(node.classic("dead"))),
                )
            )
        assert found[0] == found[1]


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=15,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def step(machine: Machine, draw: random.Random) -> None:
    """One operation, as chance says."""
    messages = [
        (
            draw.choice([0, 0, 1, 2, 5, 9]),
            draw.random() < 0.7,
            draw.choice([None, None, None, None, 50, 400]),
            draw.choice([0, 10, 300]),
        )
        for _ in range(draw.randint(1, 12))
    ]

    def settle() -> None:
        if machine.out:
            verb = draw.choice(["ack", "ack", "requeue", "reject"])
            machine.settle_one(draw.choice(machine.out), verb, draw.random() < 0.5)

    weighted: list[tuple[int, Callable[[], None]]] = [
        (25, lambda: machine.publish(messages, draw.random() < 0.5)),
        (20, lambda: machine.get(draw.randint(1, 6), draw.random() < 0.3)),
        (4, lambda: machine.consume(draw.choice([1, 4, 50]))),
        (3, machine.cancel),
        (20, settle),
        (1, machine.purge),
        (4, lambda: machine.pass_time(draw.choice([1, 60, 500]))),
        (6, machine.sync),
        (12, lambda: machine.checkpoint(draw.randint(1, 5), draw.randint(1, 4))),
        (2, machine.whole_checkpoint),
        (3, lambda: machine.crash(draw.random() < 0.5)),
        (1, machine.stop),
        (3, machine.look),
    ]
    steps = [one for _, one in weighted]
    draw.choices(steps, [weight for weight, _ in weighted])[0]()


@pytest.mark.parametrize("seed", range(4))
def test_long_runs(seed: int) -> None:
    """Longer lives than a shrinking search takes."""
    machine = Machine()
    machine.start()
    draw = random.Random(seed)
    for _ in range(120):
        step(machine, draw)
        machine.same()


# -- what chance meets too seldom ------------------------------------------------------------------


def deep(count: int, **arguments: Any) -> Peer:
    """A client of a broker whose queue `q` has messages of five levels on the disk."""
    peer = Node(window_bytes=0).connect()
    peer.declare("q", arguments={"x-max-priority": 5} | arguments)
    for number in range(count):
        peer.send(publish(1, "", "q", b"%d" % number, delivery_mode=2, priority=number % 5))
    return peer


def in_order(count: int) -> list[bytes]:
    """The bodies that `deep` published, as they are to be handed out."""
    return [b"%d" % number for number in sorted(range(count), key=lambda one: (-(one % 5), one))]


def test_memory_holds_nothing_of_what_lies_on_the_disk() -> None:
    """Counts, bytes, and no place in any level."""
    peer = deep(200)
    queue = peer.node.classic("q")
    ready = ready_of(queue)
    assert ready.at.count < 10
    assert sum(len(level.items) for level in ready.levels.values()) == ready.at.count
    assert queue.ready_count() == 200
    assert peer.node.core.memory.held_messages == ready.at.count
    peer.call(1, "basic.consume", queue="q", no_ack=True)
    assert peer.bodies() == in_order(200)
    assert (peer.node.core.memory.held_messages, peer.node.core.memory.held_bytes) == (0, 0)


@pytest.mark.parametrize("crash", [False, True])
def test_a_start_takes_nothing_into_memory(crash: bool) -> None:
    """The levels are learned again, and the order is kept."""
    peer = deep(100)
    peer.node.take_checkpoint()
    peer.node.sync()
    image = peer.node.image() if crash else peer.node.stop()
    node = Node(RecordingDisk(image), window_bytes=0)
    assert ready_of(node.classic("q")).at.count < 10
    again = node.connect()
    again.call(1, "basic.consume", queue="q", no_ack=True)
    assert again.bodies() == in_order(100)


def test_a_page_is_read_whole_where_there_is_room() -> None:
    """One read for all of its levels."""
    peer = deep(100)
    node = peer.node
    pages = ready_of(node.classic("q")).pages
    assert pages is not None
    node.core.memory.window_bytes = 1 << 30
    first = pages.items[0].first
    assert peer.call_get("q").body == b"4"
    assert pages.items[0].first > first, "all of the first page is in memory"


def test_a_purge_leaves_what_is_handed_out_between() -> None:
    peer = deep(60)
    taken = [peer.call_get("q").body for _ in range(4)]
    purged = peer.call(1, "queue.purge", queue="q").message_count
    assert purged == 56
    peer.node.sync()
    node = Node(RecordingDisk(peer.node.image()), window_bytes=0)
    assert [item.message.body for item in held(node.classic("q"))] == taken
    assert sorted(taken) == sorted(in_order(60)[:4])


def test_a_full_queue_drops_its_highest_level_first() -> None:
    """As RabbitMQ does, and a queue in memory: the head is what is next."""
    peer = deep(50, **{"x-max-length": 20})
    plain = Node(window_bytes=-1).connect()
    plain.declare("q", arguments={"x-max-priority": 5, "x-max-length": 20})
    for number in range(50):
        plain.send(publish(1, "", "q", b"%d" % number, delivery_mode=2, priority=number % 5))
    found = [
        [item.message.body for item in all_waiting(one.node.classic("q"))] for one in (peer, plain)
    ]
    assert found[0] == found[1]
    assert len(found[0]) == 20


def test_what_is_kept_after_its_ack_survives_the_cut() -> None:
    peer = deep(3, **{"x-retain-acked-bytes": 100_000})
    for number in range(3, 9):
        peer.send(publish(1, "", "q", b"%d" % number, delivery_mode=2, priority=5))
        got = peer.call_get("q")
        peer.send(method(1, "basic.ack", delivery_tag=got.delivery_tag))
    peer.node.take_checkpoint()
    peer.node.sync()
    retained = peer.node.classic("q").retained
    assert retained is not None
    kept = sorted(message.body for message in retained.messages.values())
    node = Node(RecordingDisk(peer.node.image()), window_bytes=0)
    again = node.classic("q").retained
    assert again is not None
    assert sorted(message.body for message in again.messages.values()) == kept
    assert all(item.count < RETAINED_COUNT for item in all_waiting(node.classic("q")))


@pytest.mark.parametrize("whole", [False, True])
def test_damage_costs_what_is_damaged(whole: bool) -> None:
    """A flipped bit of a body costs the message, one of the arrays the page; the rest comes."""
    peer = deep(60)
    node = peer.node
    pages = ready_of(node.classic("q")).pages
    assert pages is not None
    page = pages.items[2]
    assert page.stored is not None
    ref = page.stored.ref
    waiting = int(page.waiting)
    file = node.disk.open(ref.path)
    data = bytearray(file.read(int(ref.position), int(ref.size)))
    data[130 if whole else len(data.rstrip(b"\0")) - 1] ^= 1
    file.pwrite(bytes(data), int(ref.position))
    file.close()
    peer.call(1, "basic.consume", queue="q", no_ack=True)
    bodies = peer.bodies()
    assert len(bodies) == 60 - (waiting if whole else 1)
    assert bodies == [body for body in in_order(60) if body in bodies]
    queue = node.classic("q")
    assert (queue.ready_count(), queue.ready.size, queue.ready.bodies) == (0, 0, 0)
    assert len(node.core.damaged) == 1
