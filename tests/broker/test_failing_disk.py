"""A disk that fails at any one call: what was confirmed is there, nothing false was said.

A small script of publishes, acks, a transaction, a stream and checkpoints runs on the whole core.
At its k-th call, for every k, the disk fails (EIO) or has no room (ENOSPC).  A lack of room that
shows at a write is waited out; all else is the end, and a restart finds what was promised.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from typing import TypeVar

import pytest

from leveret.names import Name
from leveret.store.ballast import Ballast
from leveret.store.disk import DiskFull, StorageFailure
from leveret.store.disks.faulty import Fault, FaultyDisk
from leveret.store.disks.recording import Image, RecordingDisk
from leveret.store.journal.files import JournalFiles
from support.node.core import Node, Peer
from support.node.variants import few_of
from support.wire.raw_codec import method, publish

PADDING = bytes(300)
#: More calls than the script makes.
CALLS_MAX = 400
Result = TypeVar("Result")

#: More waits for room than any sync needs.
WAITS_MAX = 50


class Script:
    """The script, with what it was told meanwhile."""

    def __init__(self, fault: Fault | None = None) -> None:
        self.recording = RecordingDisk()
        self.disk = FaultyDisk(self.recording)
        self.node = Node(self.disk, recording=self.recording)
        self.sent: list[int] = []
        self.confirmed: set[int] = set()
        self.taken: set[int] = set()
        #: Those whose ack was synced.
        self.gone: set[int] = set()
        self.committed = False
        #: How often there was no room.
        self.full = 0
        self.failed = False
        self.peer: Peer = self.node.connect(1, 2, 3)
        self.peer.call(1, "queue.declare", queue="q", durable=True)
        self.peer.call(2, "tx.select")
        self.peer.call(1, "confirm.select")
        self.peer.call(1, "queue.declare", queue="s", durable=True, arguments={
            "x-queue-type": "stream"})  # fmt: skip
        if fault is not None:
            self.disk.faults.append(fault)

    def run(self) -> None:
        """Run to the end, or until the disk fails."""
        try:
            for step in (self.publish, self.take, self.checkpoint, self.publish, self.commit,
                         self.checkpoint, self.take, self.checkpoint, self.publish):  # fmt: skip
                step()
                self.sync()
        except StorageFailure:
            self.failed = True

    def sync(self) -> None:
        """Sync."""
        self.outlast(self.node.sync)
        self.hear()
        self.gone |= self.taken

    def outlast(self, call: Callable[[], Result]) -> Result:
        """Do a thing; where there is no room, again and again."""
        for _ in range(WAITS_MAX):
            try:
                return call()
            except DiskFull:
                self.full += 1
                self.hear()
                self.make_room()
        raise AssertionError("there is never room")

    def make_room(self) -> None:
        """Nothing: a fault strikes once."""

    def publish(self) -> None:
        """Three confirmed messages, to a queue and a stream."""
        for _ in range(3):
            number = len(self.sent)
            self.sent.append(number)
            body = b"%d." % number + PADDING
            self.peer.send(publish(1, "", "q", body, delivery_mode=2))
            self.peer.send(publish(1, "", "s", body, delivery_mode=2))

    def take(self) -> None:
        """Take the oldest two messages."""
        for _ in range(2):
            self.peer.send(method(3, "basic.get", queue="q", no_ack=True))
            got = self.peer.expect(3, "basic.get-ok")
            self.taken.add(int(got.body.partition(b".")[0]))

    def commit(self) -> None:
        """Three messages, all or none."""
        for letter in (b"a", b"b", b"c"):
            self.peer.send(publish(2, "", "q", letter + b"." + PADDING, delivery_mode=2))
        self.peer.send(method(2, "tx.commit"))

    def checkpoint(self) -> None:
        """A whole checkpoint."""
        while not self.outlast(lambda: self.node.step_checkpoint(2)):
            self.sync()

    def hear(self) -> None:
        """Note what was confirmed: of each number the queue's message and the stream's."""
        for got in self.peer.take():
            if got.name == "tx.commit-ok":
                self.committed = True
                continue
            assert got.name == "basic.ack", got
            first = got.delivery_tag if not got.multiple else 1
            for tag in range(first, got.delivery_tag + 1):
                self.confirmed.add(tag)

    # -- the checks --------------------------------------------------------------------------------

    def check(self, image: Image) -> None:
        """A restart on `image` finds what was promised, and nothing else."""
        node = Node(RecordingDisk(image))
        assert [str(damage) for damage in node.report.damages] == []
        peer = node.connect()
        ready = node.vhost.queues.existing(Name("q"), None).ready_count()
        bodies = [peer.call_get("q", no_ack=True).body for _ in range(ready)]
        assert all(body.partition(b".")[2] == PADDING for body in bodies)
        names = [body.partition(b".")[0] for body in bodies]
        numbers = [int(name) for name in names if name.isdigit()]
        letters = [name for name in names if not name.isdigit()]
        confirmed = {tag // 2 for tag in self.confirmed if tag % 2 == 1}
        assert numbers == sorted(set(numbers))
        assert confirmed - self.taken <= set(numbers) <= set(self.sent) - self.gone
        assert letters in ([], [b"a", b"b", b"c"])
        assert letters or not self.committed
        kept = {tag // 2 - 1 for tag in self.confirmed if tag % 2 == 0}
        assert len(kept) <= node.stream("s").next_offset <= len(self.sent)

    def check_all(self, draw: Callable[[int], int]) -> None:
        """Check what lies on the disk now, and what a power cut could leave of it."""
        self.check(self.node.image())
        for image in self.node.crashed(draw):
            self.check(image)


def test_the_script_runs_to_its_end() -> None:
    script = Script()
    script.run()
    assert not script.failed
    assert len(script.confirmed) == 18
    assert script.committed
    assert len(script.disk.operations) < CALLS_MAX
    script.check_all(random.Random(0).randrange)


@pytest.mark.in_memory
@pytest.mark.parametrize("kind", ["error", "short"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_failure_of_any_one_call(kind: str, number: int) -> None:
    draw = random.Random(1).randrange
    outcomes = {"failed": 0, "waited": 0}
    for at in range(1, CALLS_MAX):
        script = Script(fault := Fault(kind, at, number=number))
        script.run()
        script.check_all(draw)
        if fault.hits == 0:
            break
        assert script.failed != (script.full > 0), f"call {at}"
        outcomes["failed" if script.failed else "waited"] += 1
    assert outcomes["failed"] > 20
    assert (outcomes["waited"] > 5) == (number == errno.ENOSPC)


class SmallDisk(Script):
    """The script on a disk that is full again and again; `ballast` pays first."""

    def __init__(self, room: int, ballast: int) -> None:
        super().__init__()
        kept = Ballast(self.disk, ballast)
        assert kept.fill()
        self.node.files = JournalFiles(self.disk, kept)
        self.room = room
        self.recording.bytes_max = sum(map(len, self.recording.image().files.values()))

    def make_room(self) -> None:
        """Give the disk so much more room."""
        self.recording.bytes_max += self.room


@pytest.mark.in_memory
@pytest.mark.parametrize("ballast", few_of([500, 0, 3000], 1))
@pytest.mark.parametrize("room", [1000, 1400, 2500, 5000])
def test_a_disk_that_is_full_again_and_again(room: int, ballast: int) -> None:
    script = SmallDisk(room, ballast)
    script.run()
    assert not script.failed
    assert len(script.confirmed) == 18
    assert script.committed
    script.check_all(random.Random(2).randrange)
    if ballast == 0 and room < 2500:
        assert script.full > 1
