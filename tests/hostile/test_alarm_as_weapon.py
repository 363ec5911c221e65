"""The memory alarm as a weapon: what waits for years must not keep publishers blocked.

Messages with a delay of ten years stay for as long, and over restarts.  They are on the disk beyond
a window in memory, so that publishers go on; what of them stays in memory is counted here.
"""

from __future__ import annotations

import gc
import random
import tracemalloc
from pathlib import Path

import pytest

from leveret.broker.broker import RETENTION_SHARE, RETRY_SHARE
from leveret.broker.delayed.pages import DELAYED_NEAR_MS
from leveret.broker.exchanges.recent_history import History
from leveret.broker.scheduler.accounts import UNACKED_BYTES
from leveret.broker.scheduler.costs import SHARE_OF_DEADLINES
from leveret.chunk import ChunkBuilder
from leveret.limits import CHUNK_BYTES_MAX, DELAY_MS_MAX, MESSAGE_OVERHEAD_BYTES, PAGES_AHEAD
from leveret.message import Address, Message
from leveret.names import Name
from leveret.store.disk import Disk, RealDisk
from leveret.store.disks.recording import Image, RecordingDisk, crash_states
from leveret.store.segments.segments import ChunkRef
from leveret.store.segments.spill import SpillOwner
from support.node.core import Node, Peer, held
from support.node.delayed import bind, declare, delay, drain, ids, listed, store_of
from support.wire.raw_codec import decode_properties, method, properties, publish

KIB = b"x" * 1024
LIMIT = 4_000_000
WINDOW = 500_000
YEARS = {"x-delay": DELAY_MS_MAX}


def make(disk: Disk | None = None, like: Node | None = None, window: int = WINDOW) -> Node:
    """A broker with little memory, half of which is for what waits."""
    clock = None if like is None else like.clock
    node = Node(disk, memory_bytes_max=LIMIT, window_bytes=window, clock=clock)
    node.broker.eviction.configure(window, LIMIT // 2)
    return node


def begin(node: Node, *, durable: bool = True) -> Peer:
    """A peer with the delayed exchange `e`, and `q` bound to it."""
    peer = node.connect()
    declare(peer, durable=durable)
    bind(peer)
    return peer


def flood(peer: Peer, count: int, *, exchange: str = "e", mode: int = 2) -> None:
    """Publish messages that are due in ten years, as fast as the broker takes them."""
    one = publish(1, exchange, "k", KIB, headers=YEARS, delivery_mode=mode)
    for _ in range(0, count, 50):
        peer.send(*[one] * 50)
        peer.node.sync()


def is_blocked(node: Node) -> bool:
    for _ in range(2):
        # What was written in the first is judged in the second.
        node.run()
    return bool(node.broker.blocked)


# -- what is delayed -------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("mode", [1, 2])
def test_ten_years_of_messages_block_nobody(durable: bool, mode: int) -> None:
    """Twice what memory may hold: the window stays, and a few numbers of each chunk."""
    node = make()
    peer = begin(node, durable=durable)
    flood(peer, 8000, mode=mode)
    assert store_of(node).ready_count() == 8000
    assert not is_blocked(node)
    assert node.broker.memory_bytes() < WINDOW + 2 * CHUNK_BYTES_MAX
    assert peer.names() == []


def test_what_a_message_on_the_disk_takes(tmp_path: Path) -> None:
    """Less than 100 bytes, as the process counts them and as the broker does."""
    node = make(RealDisk(str(tmp_path)))
    peer = begin(node)
    flood(peer, 1000)
    store = store_of(node)

    def rest() -> None:
        """Have all on the disk, and nothing of the past in memory."""
        while store.memory.count() > 0:
            store.evict()
            node.sync()
        node.take_checkpoint()
        peer.forget_sent()
        gc.collect()

    rest()
    tracemalloc.start()
    try:
        booked = int(node.core.memory.held_bytes)
        flood(peer, 10_000)
        rest()
        taken = tracemalloc.get_traced_memory()[0] / 10_000
    finally:
        tracemalloc.stop()
    assert store.ready_count() == 11_000
    assert 1 < taken < 100
    assert taken / 2 < (node.core.memory.held_bytes - booked) / 10_000 < 2 * taken


@pytest.mark.parametrize("checkpoint", [False, True])
def test_after_a_restart_they_block_nobody_either(checkpoint: bool) -> None:
    """No body is in memory, before anything is delivered or written."""
    node = make()
    peer = begin(node)
    flood(peer, 8000)
    if checkpoint:
        node.take_checkpoint()
    node.sync()
    again = make(RecordingDisk(node.image()), node)
    assert again.core.memory.held_messages < (1 if checkpoint else WINDOW // len(KIB))
    assert again.broker.memory_bytes() < WINDOW + 2 * CHUNK_BYTES_MAX
    assert not is_blocked(again)
    assert not again.core.wanted
    assert store_of(again).ready_count() == 8000
    assert ids(store_of(again)) == list(range(1, 8001))
    flood(again.connect(), 1000)
    assert not is_blocked(again)


def test_many_exchanges_of_which_none_fills_its_window() -> None:
    """Together they fill the memory for what waits: then they write what they have."""
    node = make()
    peer = node.connect()
    for number in range(30):
        values = {"type": "x-delayed-message", "arguments": {"x-delayed-type": "fanout"}}
        peer.call(1, "exchange.declare", exchange=f"e{number}", durable=True, **values)
        flood(peer, 200, exchange=f"e{number}")
    assert not is_blocked(node)
    assert node.broker.memory_bytes() < LIMIT // 2 + CHUNK_BYTES_MAX


def test_a_slow_disk_rings_the_alarm_which_ends_by_itself() -> None:
    """What is not written yet is in memory; without any consumer it leaves it."""
    node = make()
    peer = begin(node)
    one = publish(1, "e", "k", KIB, headers=YEARS, delivery_mode=2)
    node.hold_spill = True
    while not node.broker.blocked:
        peer.send(*[one] * 50)
    node.hold_spill = False
    assert not is_blocked(node)
    assert node.broker.memory_bytes() < LIMIT // 2 + CHUNK_BYTES_MAX


# -- in time ---------------------------------------------------------------------------------------


def test_they_come_back_in_time_and_in_order() -> None:
    """Delays at random, from nothing to three days; what comes is what is due, in its order."""
    chance = random.Random(5)
    node = make(window=40_000)
    peer = begin(node)
    start = node.clock.wall_ms()
    due: list[tuple[int, int]] = []
    for number in range(1200):
        ms = chance.choice([10, 50_000, 100_000, 3 * 86_400_000])
        ms = chance.randint(1, ms)
        delay(peer, ms, b"%d" % number + b" " * chance.randint(0, 400))
        due.append((ms, number))
    due.sort()
    came = 0
    while came < len(due):
        # To the next deadline, or to a moment before it.
        node.tick(max(due[came][0] - (node.clock.wall_ms() - start) - chance.randint(0, 1), 1))
        now = node.clock.wall_ms() - start
        ready = [number for ms, number in due[came:] if ms <= now]
        assert [int(body) for body in drain(peer)] == ready
        came += len(ready)
        assert store_of(node).memory.taken() < 40_000 + PAGES_AHEAD * CHUNK_BYTES_MAX
    assert not listed(node)
    assert node.core.memory.held_bytes == 0


def test_all_due_at_the_same_moment() -> None:
    """They come in slices, from the disk by and by, in the order of their publishes."""
    node = make()
    peer = begin(node)
    delay_ms = 1000 + 2 * DELAYED_NEAR_MS
    for number in range(6000):
        delay(peer, delay_ms, b"%d" % number + KIB)
    store, queue = store_of(node), node.classic("q")
    node.core.now_ms = node.clock.wall_ms() + delay_ms
    most = 0
    while store.ready_count() > 0:
        ready = int(queue.ready_count())
        node.settle()
        most = max(most, int(store.memory.count()))
        assert queue.ready_count() - ready <= SHARE_OF_DEADLINES
        node.write_spilled()
        node.read_wanted()
        if node.begin_sync():
            # While much is not synced, nothing comes.
            node.write()
            group, node.group = node.group, None
            assert group is not None
            node.core.syncs.synced(group.number)
    assert most * len(KIB) < WINDOW + (PAGES_AHEAD + 1) * CHUNK_BYTES_MAX
    assert [int(got.split(b"x")[0]) for got in drain(peer)] == list(range(6000))


def test_a_later_publish_that_is_due_before_them_is_not_held_up() -> None:
    node = make()
    peer = begin(node)
    flood(peer, 2000)
    delay(peer, 5, b"soon")
    node.tick(5)
    assert drain(peer) == [b"soon"]


# -- over crashes ----------------------------------------------------------------------------------


def test_at_every_crash_each_confirmed_message_is_there_once() -> None:
    """While they are written, read, delivered, cancelled and handed over to a checkpoint."""
    chance = random.Random(3)
    node = Node(window_bytes=0)
    peer = begin(node)
    peer.call(1, "confirm.select")
    node.sync()
    since = node.trace_length()
    for number in range(24):
        delay(peer, chance.choice([5, 500, 70_000]), b"%d" % number, delivery_mode=1 + number % 2)
        if number % 3 == 0:
            node.sync()
        if number % 7 == 0:
            node.tick(5)
        if number == 15:
            node.take_checkpoint()
        if number == 20:
            node.compact()
    node.sync()
    acks = [heard for heard in peer.heard if heard.method.name == "basic.ack"]
    confirmed = [(heard.at, heard.method.delivery_tag) for heard in acks]
    assert confirmed[-1][1] == 24
    assert node.recording is not None
    for state in crash_states(node.recording, chance.randrange, 2, since=since):
        again = Node(RecordingDisk(state.image), window_bytes=0)
        store = store_of(again)
        found = [int(stats.id) for stats in listed(again)]
        found += [1 + int(item.message.body) for item in held(again.classic("q"))]
        promised = max([tag for at, tag in confirmed if at <= state.operations], default=0)
        transient = [1 + n for n in range(24) if n % 2 == 0]
        missing = set(range(1, promised + 1)) - set(found)
        assert len(found) == len(set(found)), state.what
        # A transient message ends with the process once it is in a queue.
        assert missing <= set(transient), state.what
        assert all(tag < store.next_sequence for tag in found)
        again.tick(71_000)
        assert not listed(again)


def test_chunks_of_earlier_versions_are_learned_after_a_start() -> None:
    """Their column of expiries says when a message would expire, and not when it is due."""
    node = Node(window_bytes=0)
    peer = begin(node)
    store = store_of(node)
    now = node.clock.wall_ms()
    builder = ChunkBuilder(store.queue_id, False, True)
    for sequence, ms in ((1, 700), (2, 90_000), (3, 300)):
        kept = properties(headers={"x-delay": ms}, delivery_mode=2)
        expiry = now + (100_000 if sequence == 3 else 10)
        message = Message(Address(b"e", b"k"), kept, b"%d" % ms, now, True)
        builder.add(sequence, message, 0, expiry)
    refs: list[ChunkRef] = []

    class Owner(SpillOwner):
        def spilled(self, ref: ChunkRef) -> None:
            refs.append(ref)

    node.spill.add(builder, Owner(), False)
    node.run()
    record = store.definition("/")
    del record["dues_from"]
    node.journal.define("queue", record)
    node.journal.spill(store.queue_id, refs[0], [])
    node.sync()
    again = Node(RecordingDisk(node.image()), clock=node.clock, window_bytes=0)
    again.tick(0)
    assert ids(store_of(again)) == [1, 2, 3]
    again.take_checkpoint()
    delay(again.connect(), 50, b"50")
    again.sync()
    again = Node(RecordingDisk(again.image()), clock=node.clock, window_bytes=0)
    peer = again.connect()
    for ms in (50, 300, 700, 90_000):
        again.tick(now + ms - 1 - again.clock.wall_ms())
        assert drain(peer) == []
        again.tick(1)
        assert drain(peer) == [b"%d" % ms]
    assert not listed(again)


@pytest.mark.parametrize("whole", [True, False])
def test_damage_costs_what_it_hit(whole: bool) -> None:
    """A chunk, or one message; all others come, also those of the chunk that are in memory."""
    node = Node(window_bytes=0)
    peer = begin(node)
    for number in range(6):
        delay(peer, 1000 if number % 2 else 5_000_000, b"<%d>" % number + b" " * 60)
    node.sync()
    for _ in range(3):
        # So that the journal has nothing of it any more.
        node.take_checkpoint()
        node.sync()
    image: Image = node.image()
    for path, data in image.files.items():
        if path.endswith(".seg") and b"<2>" in data:
            hit = data.rfind(b"LVchunk3", 0, data.index(b"<2>")) + 130 if whole else None
            at = data.index(b"<2>") + 1 if hit is None else hit
            image.files[path] = data[:at] + b"?" + data[at + 1 :]
    again = Node(RecordingDisk(image), clock=node.clock, window_bytes=0)
    again.tick(1000)
    again.tick(5_000_000)
    came = {body[:3] for body in drain(again.connect())}
    assert b"<2>" not in came
    assert len(came) == 5 if not whole else 2 <= len(came) < 6
    assert sum(int(one.records) for one in again.core.damaged) == 6 - len(came)
    assert (store_of(again).ready_count(), again.core.memory.held_bytes) == (0, 0)


def test_cancel_and_purge_of_what_is_on_the_disk() -> None:
    node = make()
    peer = begin(node)
    flood(peer, 2000)
    exchanges = node.vhost.exchanges
    assert store_of(node).memory.get(7) is None
    assert exchanges.cancel_delayed(Name("e"), 7)
    assert not exchanges.cancel_delayed(Name("e"), 7)
    node.sync()
    assert ids(store_of(make(RecordingDisk(node.image()), node)))[5:8] == [6, 8, 9]
    assert exchanges.purge_delayed(Name("e")) == 1999
    node.sync()
    assert (node.core.memory.held_bytes, node.spill.unwritten_bytes) == (0, 0)
    assert ids(store_of(make(RecordingDisk(node.image()), node))) == []


# -- what is kept ----------------------------------------------------------------------------------


def retain(node: Node, queues: int, each: int) -> Peer:
    """Publish to queues that retain what is acked, and take it."""
    peer = node.connect()
    for number in range(queues):
        name = f"kept{number}"
        peer.declare(name, arguments={"x-retain-acked-bytes": LIMIT * 9})
        peer.call(1, "basic.consume", queue=name, no_ack=True)
        peer.take()
        for _ in range(0, each, 50):
            peer.send(*[publish(1, "", name, KIB, delivery_mode=2)] * 50)
            node.sync()
            peer.take()
    return peer


@pytest.mark.parametrize("queues", [1, 20])
def test_retained_messages_have_a_share(queues: int) -> None:
    """Also after a restart; the newest of each queue stay while the share is not far exceeded."""
    node = make()
    peer = retain(node, queues, 6000 // queues)
    assert not is_blocked(node)
    share = LIMIT // RETENTION_SHARE
    assert share / 2 < int(node.core.memory.retention.bytes) < share + queues * 2 * len(KIB)
    last = node.classic(f"kept{queues - 1}").retained
    assert last is not None
    assert 6000 // queues in last.messages
    node.sync()
    again = make(RecordingDisk(node.image()), node)
    assert not is_blocked(again)
    assert again.core.memory.retention.bytes == node.core.memory.retention.bytes
    for number in range(queues):
        peer.send(method(1, "queue.delete", queue=f"kept{number}"))
        node.sync()
    assert (node.core.memory.retention.bytes, node.core.memory.retention.keepers) == (0, [])


def test_histories_have_the_same_share() -> None:
    node = make()
    peer = node.connect()
    length = {"x-recent-history-length": 4096}
    for number in range(5):
        name = f"h{number}"
        peer.call(1, "exchange.declare", exchange=name, type="x-recent-history", arguments=length)
        for _ in range(40):
            peer.send(*[publish(1, name, "k", KIB)] * 50)
    assert not is_blocked(node)
    kept, share = int(node.core.memory.retention.bytes), LIMIT // RETENTION_SHARE
    assert share / 2 < kept < share + 5 * 2 * len(KIB)
    assert node.core.memory.held_messages * (len(KIB) + 200) <= kept
    for number in range(5):
        peer.call(1, "exchange.delete", exchange=f"h{number}")
    assert (node.core.memory.retention.bytes, node.core.memory.retention.keepers) == (0, [])
    assert node.core.memory.held_messages == 0


def test_who_keeps_most_makes_room() -> None:
    core = make().core
    share = core.memory.retention
    message = Message(Address(b"", b""), b"", b"body", 0, False)
    piece = message.size + MESSAGE_OVERHEAD_BYTES
    share.bytes_max = 10 * piece
    histories = [History(core, f"h{number}", 100) for number in range(5)]
    for history in histories:
        for _ in range(20):
            history.publish(message)
        assert share.bytes <= 12 * piece
    assert [len(history.messages) for history in histories] == [2] * 5
    for history in histories[1:]:
        history.drop()
    assert (len(share.keepers), share.bytes) == (1, 2 * piece)
    share.bytes += 20 * piece
    histories[0].shrink()
    assert not histories[0].messages, "beyond twice the share nobody may keep anything"


# -- who is blocked --------------------------------------------------------------------------------


def test_one_who_fills_a_queue_does_not_block_the_others() -> None:
    """Nobody consumes it: its messages go to the disk, and a neighbour's go through."""
    node = make()
    greedy, quiet = node.connect(), node.connect()
    greedy.declare("full")
    quiet.declare("used")
    quiet.call(1, "basic.consume", queue="used", no_ack=True)
    for _ in range(100):
        for mode in (1, 2):
            greedy.send(*[publish(1, "", "full", KIB, delivery_mode=mode)] * 50)
        quiet.send(publish(1, "", "used", b"m"))
        node.sync()
    assert len(quiet.bodies()) == 100
    assert not node.broker.blocked
    assert node.broker.memory_bytes() < WINDOW + 2 * CHUNK_BYTES_MAX + LIMIT // 4


# -- what comes back -------------------------------------------------------------------------------


def is_blocked_for_long(node: Node) -> bool:
    """Queues are asked once a second whether what was handed out has come back."""
    node.tick(1000)
    return is_blocked(node)


def take_all(peer: Peer, count: int, queue: str = "q") -> None:
    """Have all that waits delivered and not acked."""
    peer.call(1, "basic.consume", queue=queue, consumer_tag="c")
    peer.node.sync()
    assert len(peer.bodies()) == count


def give_back(peer: Peer) -> None:
    """Cancel the consumer, so that nobody takes them again, and give all back."""
    peer.call(1, "basic.cancel", consumer_tag="c")
    peer.send(method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True))
    peer.node.sync()


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("way", ["requeue", "lose"])
def test_what_came_back_goes_to_the_disk(mode: int, way: str) -> None:
    """All of a queue was taken and given back; nobody takes it again, and publishers go on."""
    node = make()
    peer = node.connect()
    peer.declare("q")
    for number in range(5000):
        peer.send(publish(1, "", "q", b"%04d" % number + KIB, delivery_mode=mode))
        if number % 50 == 0:
            node.sync()
    consumer = node.connect()
    take_all(consumer, 5000)
    if way == "requeue":
        give_back(consumer)
    else:
        consumer.lose()
    assert not is_blocked_for_long(node)
    queue = node.classic("q")
    assert (queue.ready_count(), queue.unacked_count) == (5000, 0)
    assert node.broker.memory_bytes() < LIMIT // 2 + CHUNK_BYTES_MAX
    # They come again, in their places, and as those that came back.
    again = node.connect()
    take_all(again, 5000)
    deliveries = [one for one in again.heard if one.method.name == "basic.deliver"]
    assert all(one.method.redelivered for one in deliveries)
    assert [int(one.method.body[:4]) for one in deliveries] == list(range(5000))


def test_every_other_one_comes_back_while_the_rest_is_out() -> None:
    """No page lies over a message that may come back; when all are there, all can go."""
    node = make()
    peer = node.connect()
    peer.declare("q")
    for _ in range(80):
        peer.send(*[publish(1, "", "q", KIB, delivery_mode=1)] * 50)
        node.sync()
    consumer = node.connect()
    take_all(consumer, 4000)
    consumer.call(1, "basic.cancel", consumer_tag="c")
    for first in (1, 2):
        for tag in range(first, 4001, 2):
            consumer.send(method(1, "basic.nack", delivery_tag=tag, requeue=True))
        node.sync()
    assert not is_blocked_for_long(node)
    assert node.classic("q").ready_count() == 4000
    assert node.broker.memory_bytes() < LIMIT // 2 + CHUNK_BYTES_MAX


def test_how_often_they_came_back_outlives_a_restart() -> None:
    node = make()
    peer = node.connect()
    peer.declare("q", arguments={"x-delivery-limit": 3})
    for _ in range(80):
        peer.send(*[publish(1, "", "q", KIB, delivery_mode=2)] * 50)
        node.sync()
    for _ in range(2):
        consumer = node.connect()
        take_all(consumer, 4000)
        give_back(consumer)
        assert not is_blocked_for_long(node)
    node.take_checkpoint()
    node.sync()
    again = make(RecordingDisk(node.image()), node)
    consumer = again.connect()
    take_all(consumer, 4000)
    deliveries = [one.method for one in consumer.heard if one.method.name == "basic.deliver"]
    headers = [decode_properties(one.properties)["headers"] for one in deliveries]
    assert {int(one["x-acquired-count"]) for one in headers} == {2}


@pytest.mark.parametrize("mode", [1, 2])
def test_retries_in_five_years_have_a_share(mode: int) -> None:
    """What exceeds it is ready at once, and lies on the disk; a neighbour's retries wait on."""
    node = make()
    peer, quiet = node.connect(), node.connect()
    least = {"x-delayed-retry-type": "all", "x-delayed-retry-min": DELAY_MS_MAX // 2}
    peer.declare("q", arguments=least)
    quiet.declare("quiet", arguments=least)
    quiet.send(publish(1, "", "quiet", b"m"))
    tag = quiet.call_get("quiet").delivery_tag
    quiet.send(method(1, "basic.nack", delivery_tag=tag, requeue=True))
    for _ in range(100):
        peer.send(*[publish(1, "", "q", KIB, delivery_mode=mode)] * 50)
        node.sync()
    consumer = node.connect()
    take_all(consumer, 5000)
    give_back(consumer)
    assert not is_blocked_for_long(node)
    queue, share = node.classic("q"), LIMIT // RETRY_SHARE
    assert queue.retry_count() + queue.ready_count() == 5000
    assert share / 2 < int(node.core.memory.retries.bytes) < share + 2 * len(KIB)
    assert node.classic("quiet").retry_count() == 1
    node.sync()
    again = make(RecordingDisk(node.image()), node)
    assert not is_blocked_for_long(again)
    for name in ("q", "quiet"):
        peer.call(1, "queue.delete", queue=name)
    assert (node.core.memory.retries.bytes, node.core.memory.retries.keepers) == (0, [])
    assert (node.core.memory.held_bytes, node.core.memory.held_messages) == (0, 0)


def test_what_a_retry_takes() -> None:
    """As the process counts it, and as the broker does."""
    node = Node()
    peer = node.connect()
    peer.declare("q", arguments={"x-delayed-retry-type": "all", "x-delayed-retry-min": 10_000})
    peer.send(*[publish(1, "", "q", KIB)] * 2000)
    take_all(peer, 2000)
    held = int(node.broker.memory_bytes())
    gc.collect()
    tracemalloc.start()
    try:
        give_back(peer)
        node.tick()
        peer.forget_sent()
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] / 2000
    finally:
        tracemalloc.stop()
    assert node.classic("q").retry_count() == 2000
    unacked = 2000 * int(UNACKED_BYTES)
    assert (int(node.broker.memory_bytes()) - held + unacked) / 2000 >= taken / 2, taken
