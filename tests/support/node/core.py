"""A broker without sockets, threads and clocks: the core with a disk in memory, driven by hand.

`Node` replaces `app` and the runner of a process: it recovers, runs effects, and syncs only when a
test asks for it.  So a test can stop at any point: a group being written, a peer that does not
read, a crash between two calls.  `Peer` is a client at the other end of one connection; it encodes
and decodes with `raw_codec`, which shares no code with Leveret.

Invariants: one seed gives one run; nothing here blocks; each method that a peer receives is stored
with the length of the disk's trace when it left the broker (`Heard.at`).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from leveret.broker.attributes.arguments import Arguments
from leveret.broker.backlog.window import RequeuedMessage, WindowPart
from leveret.broker.broker import Broker
from leveret.broker.queue.classic import ClassicQueue
from leveret.broker.queue.waiting import WaitingQueue
from leveret.broker.recovery.checkpoint import BrokerCheckpoint
from leveret.broker.recovery.compaction import Compaction
from leveret.broker.recovery.restore import Restore
from leveret.broker.scheduler.costs import ROUND
from leveret.broker.scheduler.effects import ChunkReader, ChunkWanted
from leveret.broker.scheduler.link import Link
from leveret.broker.sinks.area import StagingArea, area_of
from leveret.broker.stream.stream import Stream
from leveret.broker.super_streams import declare as super_stream_declare
from leveret.broker.users.users import User, hash_password
from leveret.broker.vhost.ids import StreamIds
from leveret.broker.vhost.vhost import Vhost
from leveret.clock import ManualClock
from leveret.limits import OUTPUT_BYTES_HIGH, SLICE_MESSAGES, TX_COST_MAX
from leveret.names import Name
from leveret.server.runner import FLUSHES_PER_TURN
from leveret.session.authentication import Authenticator, Login
from leveret.session.connection.connection import AmqpConnection
from leveret.session.settings import Peer as PeerAddress
from leveret.session.settings import SessionSettings, Tokens
from leveret.store.checkpoint.checkpoint import (
    Checkpoint,
    CheckpointOutput,
    CheckpointSource,
    CheckpointStore,
    CheckpointWork,
    NewChunk,
)
from leveret.store.checkpoint.files import CheckpointFiles
from leveret.store.disk import Disk
from leveret.store.disks.recording import Image, RecordingDisk, crash_states
from leveret.store.journal.files import JournalFiles
from leveret.store.journal.journal import Journal, JournalGroup
from leveret.store.recovery.mending import read_best
from leveret.store.recovery.recovery import recover
from leveret.store.segments.segments import ChunkRef
from leveret.store.segments.spill import SpillBatch
from leveret.store.segments.spill_files import SpillFiles
from support.wire.raw import CAPABILITIES, Method
from support.wire.raw_codec import PROTOCOL_HEADER, WITH_CONTENT, method
from support.wire.raw_stream import Inbox

UUID: Final = bytes(range(16))

#: The bytes that the queues of each node may hold in memory; 0 pages everything, below 0 nothing.
WINDOW_BYTES: Final = int(os.environ.get("LEVERET_TEST_WINDOW_BYTES", "-1"))

#: The maximum cost of a call into the core in any test: a round, and in addition a commit, or the
#: routing of one message with its copies.  This is at most about 30 ms.
CALL_COST_MAX: Final = ROUND + TX_COST_MAX

#: The length of the shortest publish on the wire.
PUBLISH_BYTES_MIN: Final = 32

#: The core is in an endless loop if it still has work after this many rounds.
TURNS_MAX: Final = 10_000


def _ignore(group: int) -> None:
    """Ignore a sealed group."""


def declare_super_stream(vhost: Vhost, name: Name, arguments: Arguments) -> bool:
    """Declare a super stream as the operator, to the end; return whether it is new."""
    declaring = super_stream_declare.declare_super_stream(vhost, name, arguments)
    while True:
        try:
            cost = next(declaring)
            vhost.core.scheduler.spent += cost
        except StopIteration as end:
            return bool(end.value)


class SeededTokens(Tokens):
    """Tokens generated from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def token(self) -> str:
        return f"{self._random.getrandbits(128):022x}"


class Logins(Authenticator):
    """Verifies logins at once against the broker's users."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def begin(self, login: Login) -> None:
        login.answer(self._broker.users.verify(login.user, login.password))


class Slices(CheckpointSource):
    """A broker's checkpoint source with very small slices, so that other work runs in between."""

    def __init__(self, source: CheckpointSource, items: int) -> None:
        self._source = source
        self._items = items

    def begin(self, group: int) -> None:
        self._source.begin(group)

    def hand_over(self, out: CheckpointOutput) -> Iterator[int]:
        for items in self._source.hand_over(out):
            yield items * SLICE_MESSAGES // self._items

    def chunked(self, chunk: NewChunk) -> None:
        self._source.chunked(chunk)


def all_waiting(queue: WaitingQueue) -> list[RequeuedMessage]:
    """Return all ready messages of a queue, in memory and on disk, by sequence."""
    found = {item.sequence: item for item in queue.ready.waiting()}
    pages = queue.ready.pages
    for page in pages.away() if pages is not None else []:
        for sequence in range(int(page.start), int(page.last) + 1):
            item = queue.ready.look(sequence)
            if item is not None:
                found[sequence] = item
    return [found[sequence] for sequence in sorted(found)]


def held(queue: WaitingQueue) -> list[RequeuedMessage]:
    """Return all persistent messages of a queue, delivered or not."""
    found = {item.sequence: item for item in all_waiting(queue) if item.message.persistent}
    windows: list[WindowPart] = []
    for part in queue.live_parts(windows):
        found |= {item.sequence: item for item in part if item and item.message.persistent}
    for window in windows:
        found |= {item.sequence: item for item in window.persistent(0, len(window.items))}
    return [found[sequence] for sequence in sorted(found)]


class Reader(ChunkReader):
    """Reads chunks at once."""

    def __init__(self, disk: Disk, seed: int) -> None:
        super().__init__()
        self._disk = disk
        self._seed = seed

    def read(self, owner: int, ref: ChunkRef, levels: int) -> bytes:
        return read_best(self._disk, self._seed, owner, ref, levels).data


class Node:
    """One broker on one disk.  `recording` is the disk under a faulty one."""

    def __init__(
        self,
        disk: Disk | None = None,
        *,
        seed: int = 0,
        memory_bytes_max: int = 1 << 40,
        settings: SessionSettings | None = None,
        recording: RecordingDisk | None = None,
        clock: ManualClock | None = None,
        begin: bool = True,
        window_bytes: int = WINDOW_BYTES,
        stream_ids: StreamIds | None = None,
    ) -> None:
        """Recover, and `begin` as a real start does: with a synced record."""
        self.clock = clock or ManualClock()
        self.disk = disk if disk is not None else RecordingDisk()
        self.recording = self.disk if isinstance(self.disk, RecordingDisk) else recording
        self.settings = settings or SessionSettings("test")
        self.tokens = SeededTokens(seed)
        self.peers: dict[Link, Peer] = {}
        self.group: JournalGroup | None = None
        self.broker = Broker(Journal(), memory_bytes_max, stream_ids)
        self.core = self.broker.core
        #: Verifies the logins of new connections.
        self.logins: Authenticator = Logins(self.broker)
        restore = Restore(self.broker)
        self.report = recover(self.disk, restore, UUID, self.clock.wall_ms())
        self.journal = self.report.journal()
        self.now()
        self.checkpoints = CheckpointStore(self.report)
        self.spill = self.checkpoints.spill
        reader = Reader(self.disk, self.report.seed)
        self.core.attach(self.journal, self.spill, reader)
        self.spill_files = SpillFiles(self.disk)
        #: True while chunks are neither written nor read until the test asks for it.
        self.hold_spill = False
        self.hold_reads = False
        self.wanted: list[ChunkWanted] = []
        self.core.memory.window_bytes = window_bytes
        if window_bytes == 0:
            # The extreme case: every page holds only a few messages.
            self.core.memory.window_mask = 0
            self.core.memory.page_bytes = 200
        restore.finish(not self.report.clean_stop)
        self.orphaned = restore.orphaned
        self.files = JournalFiles(self.disk)
        self.sealed: Callable[[int], None] = _ignore
        self.checkpoint_files = CheckpointFiles(self.disk)
        self.checkpoint: Checkpoint | None = None
        #: Checkpoint work that failed on a full disk, to be retried.
        self.work: CheckpointWork | None = None
        self.batch: SpillBatch | None = None
        if begin:
            self._begin()

    def _begin(self) -> None:
        """Journal the start, and in an empty store the default objects."""
        self.journal.define("start", {"version": "test", "time_ms": self.clock.wall_ms()})
        if not self.broker.vhosts:
            # One record, as at a real start: after a crash, all of it exists or nothing.
            self.journal.begin_tx()
            self.broker.add_vhost("/")
            hashed = hash_password(b"salt", b"guest")
            self.broker.users.put(User("guest", hashed, ["administrator"]))
            self.broker.users.set_permission("guest", "/", ".*", ".*", ".*")
            self.journal.end_tx()
        self.sync()

    @property
    def vhost(self) -> Vhost:
        """The default vhost."""
        return self.broker.vhost("/")

    @property
    def staging(self) -> StagingArea:
        """The staging area of the default vhost."""
        return area_of(self.vhost)

    def classic(self, name: str) -> ClassicQueue:
        """A classic queue of the default vhost."""
        queue = self.vhost.queues.by_name[name]
        assert isinstance(queue, ClassicQueue)
        return queue

    def waiting(self, name: str) -> WaitingQueue:
        """A classic queue or a staging queue of the default vhost."""
        queue = self.vhost.queues.by_name[name]
        assert isinstance(queue, WaitingQueue)
        return queue

    def stream(self, name: str) -> Stream:
        """A stream of the default vhost."""
        stream = self.vhost.queues.by_name[name]
        assert isinstance(stream, Stream)
        return stream

    def now(self) -> int:
        """Update the core's time; return the monotonic time."""
        self.core.now_ms = self.clock.wall_ms()
        return self.clock.monotonic_ms()

    def trace_length(self) -> int:
        """The number of operations that the disk has recorded."""
        return len(self.recording.trace) if self.recording is not None else 0

    # -- effects -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the core's effects until it is idle, without syncing."""
        for _ in range(TURNS_MAX):
            self.settle()
            for link in self.core.take_woken(FLUSHES_PER_TURN):
                if link in self.peers:
                    self.peers[link].flush()
            if not self.hold_spill:
                self.write_spilled()
            reads = bool(self.core.wanted) and not self.hold_reads
            if self.hold_reads:
                self.wanted += self.core.take_wanted()
            else:
                self.read_wanted()
            core = self.core
            listed = core.scheduler.dispatchers or core.scheduler.woken or core.wanted
            spills = self.spill.waits and not self.hold_spill
            if not (core.scheduler.resume or listed or spills or reads):
                for peer in self.peers.values():
                    peer.check_read()
                return
        raise AssertionError("the core does not rest")

    def settle(self) -> None:
        """Run one round of the core."""
        waiting = sum(peer.connection.input_bytes_held() for peer in self.peers.values())
        self.judged(self.broker.settle, waiting)

    def judged(self, call: Callable[[], None], input_bytes: int = 0) -> None:
        """Make a call into the core, and check that it did not delay others for long.

        A shell reads little from a socket at once.  A test may pass more, and complete publishes in
        the input are handled together.
        """
        before = int(self.core.scheduler.spent)
        call()
        cost = int(self.core.scheduler.spent) - before
        most = CALL_COST_MAX + input_bytes // PUBLISH_BYTES_MIN
        assert cost <= most, f"others waited for {cost}"

    def rests(self) -> bool:
        """Return whether the core is idle until the next event."""
        return not (self.core.scheduler.resume or self.core.scheduler.has_more())

    def rest(self) -> None:
        """Run rounds of the core, and nothing else, until it is idle."""
        for _ in range(TURNS_MAX):
            if self.rests():
                return
            self.settle()
        raise AssertionError("the core does not rest")

    def write_spilled(self) -> None:
        """Write the chunks that queues have no memory for.  Raises: StorageFailure."""
        while self.spill.waits or self.batch is not None:
            # A batch that failed on a full disk is retried by the next call.
            self.batch = batch = self.batch or self.spill.take()
            self.spill_files.write(batch)
            self.batch = None
            self.core.spilled(batch)
        self.spill_files.remove(self.spill.take_unused())

    def write_batch(self) -> bool:
        """Write one batch of chunks to be spilled; return whether there was one."""
        if not self.spill.waits:
            return False
        batch = self.spill.take()
        self.spill_files.write(batch)
        self.core.spilled(batch)
        self.spill_files.remove(self.spill.take_unused())
        self.run()
        return True

    def read_wanted(self) -> None:
        """Do all requested reads from the disk, even those that were held back."""
        self.wanted += self.core.take_wanted()
        wanted, self.wanted = self.wanted, []
        for one in wanted:
            one.arrived(self.core.reader.read(one.owner, one.ref, one.levels))

    def begin_sync(self) -> bool:
        """Seal the gathered records; return whether a group is being written."""
        if self.group is None:
            self.group = self.journal.seal()
            if self.group is not None:
                self.sealed(int(self.group.number))
        return self.group is not None

    def write(self) -> None:
        """Write and sync the current group, without telling the core.  Raises: StorageFailure."""
        assert self.group is not None
        self.files.write(self.group)

    def end_sync(self) -> None:
        """Tell the core that the current group is synced."""
        group, self.group = self.group, None
        assert group is not None
        self.now()
        self.core.syncs.synced(group.number)
        self.run()

    def sync(self) -> None:
        """Sync all records.  Raises: StorageFailure."""
        self.run()
        for _ in range(TURNS_MAX):
            if not self.begin_sync():
                return
            self.write()
            self.end_sync()
        raise AssertionError("there is always more to sync")

    def compact(self, room: int = 1 << 62) -> int:
        """Take a checkpoint and compact files that hold dead records."""
        compaction = Compaction(self.core, 0, 100)
        below = int(self.spill.numbers.next)
        source = BrokerCheckpoint(self.broker, compaction)
        self.checkpoint = self.checkpoints.begin(self.journal, source, self.clock.wall_ms())
        self.take_checkpoint()
        compaction.begin(below, room)
        self.run()
        self.sync()
        return int(compaction.planned)

    def step_checkpoint(self, items: int = 1000) -> bool:
        """Begin or continue a checkpoint by about `items` items; return whether it is done."""
        if self.checkpoint is None:
            source = Slices(BrokerCheckpoint(self.broker), items)
            now_ms = self.clock.wall_ms()
            self.checkpoint = self.checkpoints.begin(self.journal, source, now_ms)
        work = self.work or self.checkpoint.step()
        if work is not None:
            self.work = work
            self.checkpoint_files.run(work)
            self.work = None
        elif self.checkpoint.done:
            self.checkpoint = None
            return True
        return False

    def take_checkpoint(self) -> None:
        """Take a whole checkpoint, syncing whenever it waits for a sync."""
        for _ in range(TURNS_MAX):
            if self.step_checkpoint():
                return
            self.write_spilled()
            self.sync()
        raise AssertionError("a checkpoint without an end")

    def tick(self, by_ms: int = 0) -> None:
        """Advance the time and tick, as the shell does each second."""
        self.clock.advance(by_ms)
        now_ms = self.now()
        for peer in list(self.peers.values()):
            peer.connection.tick(now_ms)
        self.broker.tick()
        self.run()

    # -- ends --------------------------------------------------------------------------------------

    def stop(self) -> Image:
        """Stop gracefully; return the image of the disk."""
        for peer in list(self.peers.values()):
            peer.connection.force("shutdown")
        self.run()
        for peer in list(self.peers.values()):
            peer.lose()
        self.sync()
        self.broker.journal_stop(self.clock.wall_ms())
        self.sync()
        return self.image()

    def image(self) -> Image:
        """The content of the disk, synced or not."""
        assert self.recording is not None
        return self.recording.image()

    def crashed(self, draw: Callable[[int], int]) -> list[Image]:
        """Images that a crash now could leave; the first has lost everything unsynced."""
        assert self.recording is not None
        since = self.trace_length()
        return [state.image for state in crash_states(self.recording, draw, 2, since=since)]

    # -- clients -----------------------------------------------------------------------------------

    def add_user(self, name: str, *tags: str, **permission: str) -> None:
        """Add a user with the name as password, and a permission on the default vhost, if any."""
        users = self.broker.users
        users.put(User(name, hash_password(b"salt", name.encode()), list(tags)))
        if permission:
            patterns = {"configure": "", "write": "", "read": ""} | permission
            users.set_permission(name, "/", **patterns)

    def dial(self, **capabilities: bool) -> Peer:
        """A new connection on which nothing has been sent."""
        return Peer(self, CAPABILITIES | capabilities)

    def connect(self, *channels: int, heartbeat: int = 0, **capabilities: bool) -> Peer:
        """An open connection with these channels open, or channel 1."""
        return self._open(self.dial(**capabilities), "guest", "/", channels, heartbeat)

    def connect_as(self, user: str, *channels: int, vhost: str = "/", **capabilities: bool) -> Peer:
        """The same for another user (with the name as password), or in another vhost."""
        return self._open(self.dial(**capabilities), user, vhost, channels, 0)

    def _open(
        self, peer: Peer, user: str, vhost: str, channels: tuple[int, ...], heartbeat: int
    ) -> Peer:
        peer.login(heartbeat, user=user, vhost=vhost)
        for channel in channels or (1,):
            peer.call(channel, "channel.open")
        return peer


@dataclass
class Heard:
    """A method that the broker sent when the disk's trace was `at` operations long."""

    at: int
    method: Method


class Peer:
    """The client end of one connection; it reads the broker's output while `reads` is true."""

    def __init__(self, node: Node, capabilities: dict[str, bool]) -> None:
        self.node = node
        self.capabilities = capabilities
        #: The id of its publish session.
        self.session = ""
        self.reads = True
        #: Whether the shell reads the socket, as of its last check.
        self.is_read = True
        #: Bytes held back while the peer does not read.
        self.waiting = b""
        self.heard: list[Heard] = []
        self.inbox = Inbox()
        self._sent_by_broker: list[bytes] = []
        self._taken = 0
        address = PeerAddress("127.0.0.1", 40_000 + len(node.peers), "127.0.0.1", 5672, True)
        self.connection = AmqpConnection(
            node.broker, node.settings, node.logins, node.tokens, address, node.now()
        )
        node.peers[self.connection] = self

    # -- to the broker -----------------------------------------------------------------------------

    def send(self, *parts: bytes) -> None:
        """Have the broker receive bytes, and run the core until it is idle."""
        self.receive(*parts)
        self.node.run()
        self.is_read = not self._holds

    def receive(self, *parts: bytes) -> None:
        """Have the broker receive bytes, without running the core afterwards."""
        data, now_ms = b"".join(parts), self.node.now()
        self.node.judged(lambda: self.connection.receive(data, now_ms), len(data))

    def login(
        self,
        heartbeat: int = 0,
        frame_max: int = 131_072,
        user: str = "guest",
        vhost: str = "/",
    ) -> None:
        """Open the connection; the password is the user's name."""
        self.ask_open(user, vhost, heartbeat=heartbeat, frame_max=frame_max)
        self.expect(0, "connection.open-ok")

    def ask_open(
        self, user: str, vhost: str, *, heartbeat: int = 0, frame_max: int = 131_072
    ) -> None:
        """Do the handshake up to connection.open, without waiting for its answer."""
        client: dict[str, Any] = {"product": "core test", "capabilities": self.capabilities}
        if self.session:
            client["leveret-session"] = self.session
        self.send(PROTOCOL_HEADER)
        self.expect(0, "connection.start")
        self.send(
            method(
                0, "connection.start-ok", client_properties=client, mechanism="PLAIN",
                response=f"\0{user}\0{user}".encode(), locale="en_US",
            )
        )  # fmt: skip
        self.expect(0, "connection.tune")
        tuned = {"channel_max": 2047, "frame_max": frame_max, "heartbeat": heartbeat}
        opening = method(0, "connection.open", vhost=vhost)
        self.send(method(0, "connection.tune-ok", **tuned), opening)

    def call(self, channel: int, name: str, **values: Any) -> Method:
        """Send a method, sync if the reply waits for it, and return the reply."""
        self.send(method(channel, name, **values))
        if not self.pending():
            self.node.sync()
        return self.expect(channel, name + "-ok")

    def declare(self, queue: str, *, durable: bool = True, **values: Any) -> Method:
        """Declare a queue on channel 1."""
        return self.call(1, "queue.declare", queue=queue, durable=durable, **values)

    def call_get(self, queue: str, *, no_ack: bool = False) -> Method:
        """Get a message on channel 1; the queue must have one."""
        self.send(method(1, "basic.get", queue=queue, no_ack=no_ack))
        return self.expect(1, "basic.get-ok")

    # -- from the broker ---------------------------------------------------------------------------

    def feed(self, data: bytes) -> int:
        """Have the broker receive bytes, without polling sockets; return the steps it took."""
        core = self.connection.core
        before = int(core.scheduler.spent)
        self.connection.receive(data, self.node.now())
        return int(core.scheduler.spent) - before

    def flush(self) -> None:
        """Take the session's output, as a shell does for its transport."""
        connection = self.connection
        self.waiting += b"".join(connection.take_output())
        if self.reads:
            self._read()
        connection.account.hold_output(len(self.waiting))
        if connection.finished:
            self.lose()
        else:
            connection.flushed(self.full)
            self.is_read = not self._holds

    @property
    def _holds(self) -> bool:
        """Whether the session is halted with so much input that the shell must stop reading."""
        connection = self.connection
        return bool(connection.halted) and not connection.reads_on()

    def check_read(self) -> None:
        """Check that the shell was woken when it could read the socket again."""
        assert self.is_read or self._holds, "nobody reads this socket any more"

    @property
    def sent_by_broker(self) -> bytes:
        """All bytes that the broker has sent, joined only on demand."""
        self._sent_by_broker = [b"".join(self._sent_by_broker)]
        return self._sent_by_broker[0]

    def forget_sent(self) -> None:
        """Free the bytes that the broker has sent."""
        self._sent_by_broker.clear()

    @property
    def full(self) -> bool:
        """Whether the transport's write buffer is full."""
        return len(self.waiting) > OUTPUT_BYTES_HIGH

    def read_on(self) -> None:
        """Begin to read again."""
        self.reads = True
        self._read()
        self.connection.flushed(False)
        self.node.run()
        self.is_read = not self._holds

    def lose(self) -> None:
        """Lose the socket."""
        if self.connection in self.node.peers:
            self.vanish()
            self.node.run()

    def vanish(self) -> None:
        """Lose the socket, without running the core afterwards."""
        del self.node.peers[self.connection]
        self.node.judged(self.connection.lost)

    def _read(self) -> None:
        data, self.waiting = self.waiting, b""
        self._sent_by_broker.append(data)
        at = self.node.trace_length()
        self.heard += [Heard(at, got) for got in self.inbox.feed(data)]

    def pending(self) -> int:
        """The number of received methods that the test has not taken."""
        return len(self.heard) - self._taken

    def take(self) -> list[Method]:
        """Take the methods received since the last call."""
        new = [heard.method for heard in self.heard[self._taken :]]
        self._taken = len(self.heard)
        return new

    def names(self) -> list[str]:
        """Take the methods received since the last call; return their names."""
        return [got.name for got in self.take()]

    def expect(self, channel: int, name: str) -> Method:
        """The next method, which must be this one."""
        assert self.pending(), f"expected {name}, nothing came"
        got = self.heard[self._taken].method
        assert (got.channel, got.name) == (channel, name), f"expected {name} on {channel}: {got}"
        self._taken += 1
        return got

    def bodies(self) -> list[bytes]:
        """Take the bodies received since the last call; nothing else may have been received."""
        got = self.take()
        assert all(one.name in WITH_CONTENT for one in got), got
        return [one.body for one in got]
