"""One run of the real core on a recording disk, driven by clients and by chance.

Clients send, the disk's work is done piece by piece, time passes, checkpoints run, and the broker
is stopped or killed and started again.

What is done, and when, is drawn from a seed: a group may be sealed and not written, written and
not told, while other things happen; a checkpoint goes on in small slices between them.  What the
clients hear goes into the ledger with the length that the disk's trace had.

Invariant: one seed gives one run.
"""

from __future__ import annotations

import contextlib
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from leveret.broker.queue.queue import Queue
from leveret.broker.queue.target import RECORDS_ALL
from leveret.broker.recovery.checkpoint import BrokerCheckpoint
from leveret.broker.recovery.compaction import UNBOUNDED, Compaction
from leveret.broker.scheduler.effects import ChunkWanted
from leveret.broker.sinks.area import StagingArea
from leveret.clock import ManualClock
from leveret.server.runner import FLUSHES_PER_TURN
from leveret.store.disk import Disk, StorageFailure
from leveret.store.disks.faulty import Fault, FaultyDisk
from leveret.store.disks.recording import Image, RecordingDisk
from leveret.store.records.record import SEED_MASK
from replay.account import Account, Holding
from replay.ledger import Ledger, Place, Sent, number_of
from support.node.core import TURNS_MAX, UUID, Node, Peer, Slices
from support.wire.raw import Method
from support.wire.raw_codec import decode_properties, method, properties, publish

#: Channels of the one connection that publishes and of the one that consumes.
CONFIRM, TX, PLAIN = 1, 2, 3

REPLIES_MAX = 1000
COMPACT_PERCENT = 90

#: What may befall a life: stops and kills between two acts, calls of the disk that fail, or kills
#: at any call of the disk.
PLAIN_LIFE, FAULTY, KILLS = "plain", "faulty", "kills"

#: Calls that may fail: in which folder, which, and among how many of them.
_FAULTS = (
    ("journal", "sync", 30),
    ("journal", "append", 30),
    ("journal", "open", 4),
    ("journal", "fsync_dir", 4),
    ("journal", "unlink", 2),
    ("state", "append", 9),
    ("state", "sync", 3),
    ("state", "rename", 3),
    ("state", "fsync_dir", 4),
    ("segments", "append", 3),
    ("segments", "sync", 3),
)

#: Calls of the disk up to a kill.
_KILLED_AFTER = 150


def some_fault(chance: random.Random) -> Fault:
    """Return a call of the disk that fails, or that is cut short."""
    within, verb, most = chance.choice(_FAULTS)
    kind = "short" if verb == "append" and chance.random() < 0.5 else "error"
    return Fault(kind, chance.randint(1, most), verbs=(verb,), within=within)


def some_kill(chance: random.Random) -> Fault:
    """Return a call before which, or in the middle of which, the process is killed."""
    kind = chance.choice(("error", "short"))
    return Fault(kind, chance.randint(1, _KILLED_AFTER), lasting=True)


@dataclass
class Sizes:
    """How soon things happen that a real node does after megabytes."""

    journal_file_bytes: int = 3000
    journal_bytes: int = 9000
    checkpoint_items: int = 6
    #: Memory of a queue before its messages go to pages (below 0: all), and the bytes of a page.
    window_bytes: int = -1
    page_bytes: int = 300


class Machine(Node):
    """A node whose groups are written at most once, and which notes when they were durable."""

    def __init__(
        self,
        disk: Disk,
        recording: RecordingDisk,
        clock: ManualClock,
        sizes: Sizes,
        marks: list[tuple[int, int]],
        chance: random.Random,
    ) -> None:
        self.written = False
        self.chance = chance
        self.reads: list[ChunkWanted] = []
        #: Whether the journal could not be written.
        self.failed = False
        self.marks = marks
        super().__init__(
            disk, recording=recording, clock=clock, begin=False, window_bytes=sizes.window_bytes
        )
        #: Any file of which less than most is live is copied.
        self.compaction = Compaction(self.core, 0, COMPACT_PERCENT)
        self.compact_below = 0
        self.moved = 0
        self.core.memory.window_mask = 0
        self.core.memory.page_bytes = sizes.page_bytes
        self.core.stream_cache.bytes_max = 10 * sizes.page_bytes
        self.journal.file_bytes_max = sizes.journal_file_bytes
        self._begin()

    def write(self) -> None:
        """Write the group under way unless that was done."""
        assert self.group is not None
        if not self.written:
            self.failed = True
            super().write()
            self.failed = False
            self.written = True
            self.marks.append((self.trace_length(), int(self.group.number)))

    def end_sync(self) -> None:
        """Tell the core of the group that was written."""
        self.written = False
        super().end_sync()

    def run(self) -> None:
        """Do what the core noted; chunks are written and read now or later."""
        for _ in range(TURNS_MAX):
            self.broker.settle()
            for link in self.core.take_woken(FLUSHES_PER_TURN):
                if link in self.peers:
                    self.peers[link].flush()
            while self.spill.waits and self.chance.random() < 0.5:
                batch = self.spill.take()
                self.spill_files.write(batch)
                self.core.spilled(batch)
            self.spill_files.remove(self.spill.take_unused())
            self.reads += self.core.take_wanted()
            while self.reads and self.chance.random() < 0.7:
                wanted = self.reads.pop(0)
                wanted.arrived(self.core.reader.read(wanted.owner, wanted.ref, wanted.levels))
            core = self.core
            if not (core.scheduler.resume or core.scheduler.dispatchers or core.scheduler.woken):
                return
        raise AssertionError("the core does not rest")

    def step_checkpoint(self, items: int = 1000) -> bool:
        """Go on with a checkpoint as the app does: when one is done, what it noted is compacted."""
        if self.checkpoint is None:
            noting = self.compaction if self.compaction.done else None
            source = Slices(BrokerCheckpoint(self.broker, noting), items)
            self.compact_below = int(self.spill.numbers.next)
            now_ms = self.clock.wall_ms()
            self.checkpoint = self.checkpoints.begin(self.journal, source, now_ms)
        done = super().step_checkpoint(items)
        if done and self.compaction.done:
            self.compaction.begin(self.compact_below, UNBOUNDED)
            self.moved += int(self.compaction.planned)
        return done

    def go_on(self) -> None:
        """Do the next piece of the journal's work."""
        if self.group is None:
            self.begin_sync()
        elif not self.written:
            self.write()
        else:
            self.end_sync()


@dataclass
class Out:
    """A message that a client was given and has not settled."""

    peer: Peer
    channel: int
    tag: int
    place: Place
    #: Of what a stream delivered.
    offset: int | None = None


@dataclass
class Life:
    """One broker's life on one disk, and what is known of it afterwards."""

    disk: RecordingDisk
    start: Holding
    ledger: Ledger
    clock: ManualClock
    #: (length of the trace, newest durable group).
    marks: list[tuple[int, int]] = field(default_factory=list)
    account: Account | None = None
    #: What the disk refused, after which nothing may be promised; none on a disk that works.
    failure: StorageFailure | None = None
    #: (length of the trace, step) for those who look for what was done.
    steps: list[tuple[int, str]] = field(default_factory=list)

    @property
    def seed(self) -> int:
        """The seed of the store's digests."""
        return int.from_bytes(UUID[:8], "little") & SEED_MASK

    def durable(self, at: int) -> int:
        """Return the newest group that the broker knew to be durable at a length of the trace."""
        return max((group for length, group in self.marks if length <= at), default=0)

    def step(self, at: int) -> str:
        """Return what was done at a length of the trace."""
        done = [(number, what) for number, (length, what) in enumerate(self.steps) if length <= at]
        return "the start" if not done else f"step {done[-1][0]} ({done[-1][1]})"


class Drive:
    """Clients, clock and disk of one life."""

    def __init__(
        self,
        seed: str,
        image: Image | None,
        start: Holding,
        sizes: Sizes,
        mode: str,
    ) -> None:
        self.chance = random.Random(seed)
        self.sizes = sizes
        self.mode = mode
        self.life = Life(RecordingDisk(image), start, Ledger(), ManualClock())
        self.disk: Disk = self.life.disk
        #: How soon what was recorded is synced: few records share a group, or many.
        self.pace = self.chance.choice((0.6, 0.3, 0.1))
        if mode == FAULTY:
            self.disk = FaultyDisk(self.disk, some_fault(self.chance))
        elif mode == KILLS:
            self.disk = FaultyDisk(self.disk, some_kill(self.chance))
        self.ledger = self.life.ledger
        self.number = 0
        self.out: list[Out] = []
        self._acked: list[Place] = []
        self._replies: dict[tuple[Peer, int], deque[tuple[int, Method]]] = {}
        self.connected = False

    def go_on_from(self, last: Life) -> None:
        """Know what was sent in an earlier life, and go on from its time."""
        self.ledger.sent.update(last.ledger.sent)
        self.ledger.loose |= last.ledger.loose
        self.ledger.staged = last.ledger.staged
        self.number = max(self.ledger.staged, max(self.ledger.sent, default=0))
        self.life.clock.advance(last.clock.wall_ms() - self.life.clock.wall_ms())

    def start_machine(self) -> None:
        """Start, or start again on the same disk; connect the clients."""
        life = self.life
        life.disk.unlock()
        self.connected = False
        self.machine = Machine(
            self.disk, life.disk, life.clock, self.sizes, life.marks, self.chance
        )
        self.out.clear()
        self._acked.clear()
        self._replies.clear()
        self.unconfirmed: dict[int, int] = {}
        self.confirm_tag = 0
        self.publisher = self.machine.connect(CONFIRM, TX)
        self.connect_consumer()
        self.ask(self.publisher, CONFIRM, "confirm.select")
        self.ask(self.publisher, TX, "tx.select")
        self.connected = True

    def connect_consumer(self) -> None:
        """Connect the client that consumes."""
        self.consumer = self.machine.connect(PLAIN)
        self.consuming: set[str] = set()
        #: What was seen before this connection.
        self.seen_before = len(self.ledger.seen)

    # -- hearing -----------------------------------------------------------------------------------

    def listen(self) -> None:
        """Take what came: confirms and deliveries are noted, the rest are replies."""
        for peer in (self.publisher, self.consumer):
            at = [heard.at for heard in peer.heard[len(peer.heard) - peer.pending() :]]
            for moment, got in zip(at, peer.take(), strict=True):
                self._hear(peer, moment, got)

    def _hear(self, peer: Peer, at: int, got: Method) -> None:
        if got.name in ("basic.ack", "basic.nack"):
            tags = [tag for tag in self.unconfirmed if tag <= got.delivery_tag]
            for tag in tags if got.multiple else [got.delivery_tag]:
                number = self.unconfirmed.pop(tag)
                if got.name == "basic.ack":
                    self.ledger.confirmed.append((at, number))
        elif got.name == "basic.deliver":
            self._given(peer, at, got, got.consumer_tag)
        elif got.name == "basic.cancel":
            self.consuming.discard(got.consumer_tag)
        else:
            assert got.name not in ("channel.close", "connection.close"), got
            self._replies.setdefault((peer, got.channel), deque()).append((at, got))

    def _given(self, peer: Peer, at: int, got: Method, queue: str) -> None:
        """Note a message that a client was given by a consumer, whose tag is its queue's name."""
        place = (queue, number_of(got.body))
        offset = self.offset_of(got)
        self.out.append(Out(peer, got.channel, got.delivery_tag, place, offset))
        if offset is not None:
            self.ledger.seen.append((at, queue, offset))

    @staticmethod
    def offset_of(got: Method) -> int | None:
        """Return the offset of a stream's delivery."""
        if b"x-stream-offset" not in got.properties:
            return None
        offset = decode_properties(got.properties)["headers"]["x-stream-offset"]
        return int(offset)

    def ask(self, peer: Peer, channel: int, name: str, **values: Any) -> tuple[int, Method]:
        """Send a method and return its reply, syncing until it comes."""
        peer.send(method(channel, name, **values))
        self.listen()
        for _ in range(REPLIES_MAX):
            replies = self._replies.get((peer, channel))
            if replies:
                return replies.popleft()
            self.sync()
        raise AssertionError(f"no reply to {name}")

    # -- sending -----------------------------------------------------------------------------------

    def body(self, size: int) -> bytes:
        """Return a body that no other message has."""
        self.number += 1
        return b"%d:" % self.number + self.chance.randbytes(size)

    def publish(
        self, exchange: str, key: str, size: int, *, channel: int = CONFIRM, **props: Any
    ) -> int:
        """Publish a message; return its number."""
        body = self.body(size)
        keeps = props.get("delivery_mode") == 2
        queues = self.routed(exchange, key, keeps, props.get("headers", {}))
        raw = properties(**props)
        self.ledger.sent[self.number] = Sent(exchange, key, raw, body, keeps, queues)
        if channel == CONFIRM:
            self.confirm_tag += 1
            self.unconfirmed[self.confirm_tag] = self.number
        number = self.number
        self.publisher.send(publish(channel, exchange, key, body, **props))
        self.listen()
        return number

    def routed(
        self, exchange: str, key: str, persistent: bool, headers: dict[str, Any]
    ) -> tuple[str, ...]:
        """Return the durable queues that a message goes to now."""
        vhost = self.machine.vhost
        names = [key] if not exchange else []
        source = vhost.exchanges.by_name[exchange]
        if source.delayed is not None:
            return ("",)
        names += [
            binding.queue.name
            for binding in source.bindings.values()
            if binding.queue is not None and (source.kind == "fanout" or binding.binding_key == key)
        ]
        queues = [
            vhost.queues.by_name[name]
            for name in dict.fromkeys(names)
            if name in vhost.queues.by_name
        ]
        return tuple(
            queue.name
            for queue in queues
            if queue.recorded
            and (
                persistent
                or queue.target.records_from == RECORDS_ALL
                or "x-staging-sink" in queue.arguments
            )
            and not _knows(queue, headers)
            and not _is_committed(self.machine.staging, queue)
        )

    def settle(self, out: Out, name: str, **values: Any) -> None:
        """Settle one delivery; the caller notes what that lets go."""
        self.out.remove(out)
        out.peer.send(method(out.channel, name, delivery_tag=out.tag, **values))
        self.listen()

    def ack(self, out: Out) -> None:
        """Ack one delivery."""
        self.let_go([out])
        self.settle(out, "basic.ack")

    def let_go(self, outs: list[Out]) -> None:
        """Note that a client is about to let messages go."""
        for out in outs:
            self.ledger.let_go[out.place] += 1
            self._acked.append(out.place)

    # -- the machine -------------------------------------------------------------------------------

    def sync(self) -> None:
        """Make all durable that was recorded; what was acked before is gone for good."""
        self.machine.sync()
        self.listen()
        at = self.machine.trace_length()
        self.ledger.gone += [(at, place) for place in self._acked]
        self._acked.clear()

    def hum(self) -> None:
        """Do a little of what a node does beside its clients."""
        chance, machine = self.chance, self.machine
        if chance.random() < self.pace:
            machine.go_on()
        if machine.checkpoint is not None:
            if chance.random() < 0.5:
                machine.step_checkpoint(chance.randint(1, self.sizes.checkpoint_items))
        elif machine.journal.bytes_since_roll > self.sizes.journal_bytes:
            machine.step_checkpoint(self.sizes.checkpoint_items)
        if chance.random() < 0.1:
            machine.tick(chance.choice((0, 1, 50, 700)))
        machine.run()
        self.listen()

    def restart(self) -> None:
        """Stop in order, or be killed with all that was written still in the system's memory."""
        self.connected = False
        if self.chance.random() < 0.4:
            self.machine.stop()
        self.start_machine()

    def killed(self) -> None:
        """Start again on what the system's memory holds, until a start is not killed itself."""
        for _ in range(REPLIES_MAX):
            self.disk = FaultyDisk(self.life.disk, some_kill(self.chance))
            with contextlib.suppress(StorageFailure):
                self.start_again()
                return
        raise AssertionError("no start came to its end")

    def start_again(self) -> None:
        """Start again after a kill, with what the load needs."""
        self.start_machine()

    def step(self, name: str) -> None:
        """Note what is done next."""
        self.life.steps.append((len(self.life.disk.trace), name))

    def end(self) -> Life:
        """End the life: all is synced, and the account is drawn up."""
        try:
            self.sync()
        except StorageFailure:
            if self.mode != KILLS:
                raise
            self.disk = self.life.disk
            self.start_machine()
            self.sync()
        return self.account()

    def fail(self, failure: StorageFailure) -> Life:
        """End the life because the disk failed: from here on nothing may be promised (I8)."""
        life = self.life
        life.failure = failure
        if self.connected and self.machine.failed:
            self.silence()
        return self.account()

    def silence(self) -> None:
        """Go on with everything; the journal must not be written any more, and nobody be told."""
        ledger = self.ledger
        self.machine.run()
        self.listen()
        self._replies.clear()
        before = (len(ledger.confirmed), len(ledger.promised), len(ledger.seen))
        durable = int(self.machine.journal.durable_group)
        for _ in range(3):
            for name, queue in list(self.machine.vhost.queues.by_name.items()):
                if "x-staging-sink" not in queue.arguments:
                    self.publish("", name, 3, delivery_mode=2)
            self.publisher.send(method(TX, "queue.declare", queue="late", durable=True))
            self.machine.tick(2000)
            self.machine.begin_sync()
            with contextlib.suppress(StorageFailure):
                self.machine.write()
                raise AssertionError("I8 the journal was written to after it had failed")
            self.machine.run()
            self.listen()
        after = (len(ledger.confirmed), len(ledger.promised), len(ledger.seen))
        replies = [got.name for queue in self._replies.values() for _, got in queue]
        assert before == after, "I8 something was confirmed after the journal had failed"
        assert "queue.declare-ok" not in replies, "I8 a declare was answered after the failure"
        assert durable == self.machine.journal.durable_group, "I8 a group became durable"

    def account(self) -> Life:
        """Draw up the account of the journal."""
        life = self.life
        life.account = Account(life.disk.trace, life.seed, life.start)
        return life


def _knows(queue: Queue, headers: dict[str, Any]) -> bool:
    """Whether a queue has taken that number of a publisher, or a higher one."""
    if queue.target.publishers is None or "x-publishing-id" not in headers:
        return False
    known = queue.target.publishers.by_name.get(headers["x-publisher"].encode())
    return known is not None and known.number >= headers["x-publishing-id"]


def _is_committed(area: StagingArea, queue: Queue) -> bool:
    """Whether a staging queue is of a batch that is committed: it takes nothing more."""
    if "x-staging-sink" not in queue.arguments:
        return False
    sink, batch = queue.arguments["x-staging-sink"], queue.arguments["x-staging-batch"]
    assert isinstance(sink, str)
    assert isinstance(batch, int)
    return area.sinks.has(sink, "", batch)
