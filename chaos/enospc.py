"""A file system of 64 MiB that fills: by publishers, then by others to its last byte (R7).

Publishers are blocked while there is room; consumers go on; nothing confirmed is lost, even by a
kill on the full disk neither; with room again publishers go on within seconds, by themselves.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from chaos import mounts
from chaos.board import Row, skipped
from support.brokers.broker_process import BrokerProcess, BrokerProcessError
from support.wire import raw

NAME: Final = "enospc"
RUNS: Final = 20

MIB: Final = 1 << 20
DISK_BYTES: Final = 64 * MIB
RESERVE: Final = 12 * MIB
SETTINGS: Final = {
    "disk_free_bytes_min": str(RESERVE),
    "ballast_bytes": str(4 * MIB),
    "journal_bytes_max": str(8 * MIB),
    "journal_file_bytes": str(2 * MIB),
}

WINDOW: Final = 50
#: Far more than the disk holds.
PUBLISHES_MAX: Final = 100_000
#: How soon publishers go on when there is room.
RESUME_SECONDS_MAX: Final = 5.0


@dataclass
class Round:
    """One disk that was filled."""

    bodies: dict[int, int] = field(default_factory=dict)  # number to size
    confirmed: set[int] = field(default_factory=set)
    acked: set[int] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    free_when_blocked: int = 0
    resumed_seconds: float = 0.0
    boots: bool = False
    lost: int = 0
    phantom: int = 0
    altered: int = 0


def run(runs: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Fill so many disks."""
    rounds = []
    for number in range(runs):
        try:
            with disk() as place:
                one = Filling(place, random.Random(seed + number)).run()
        except mounts.Unsupported as error:
            return [skipped(NAME, str(error))]
        for problem in one.problems:
            say(problem)
        rounds.append(one)
    least = min(one.free_when_blocked for one in rounds)
    slowest = max(one.resumed_seconds for one in rounds)
    note = f"blocked with {least >> 20} MiB left or more, on again after {slowest:.1f} s at most"
    return [
        Row(
            "ENOSPC: blocked, resumed", runs, sum(one.boots for one in rounds),
            sum(len(one.confirmed) for one in rounds), sum(one.lost for one in rounds),
            sum(one.phantom for one in rounds), sum(one.altered for one in rounds),
            sum(len(one.problems) for one in rounds), note=note,
        )
    ]  # fmt: skip


@contextlib.contextmanager
def disk() -> Iterator[Path]:
    """A file system of `DISK_BYTES` in memory.  Raises: Unsupported."""
    mounts.own_namespace()
    place = Path(tempfile.mkdtemp(prefix="chaos-tmpfs-"))
    try:
        mounts.command("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place))
        try:
            yield place
        finally:
            mounts.command("umount", "--lazy", str(place))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def free(place: Path) -> int:
    """The bytes that a disk has left."""
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize


class Filling:
    """Fills one disk and looks at what the broker does."""

    def __init__(self, place: Path, chance: random.Random) -> None:
        self.place = place
        self.chance = chance
        self.round = Round()
        #: The tag of the newest publish, and whether the broker has blocked the publisher.
        self.tag = 0
        self.blocked = False

    def run(self) -> Round:
        """Fill, drain, fill to the last byte, drain, go on; then kill and look."""
        data = self.place / "data"
        round_ = self.round
        with BrokerProcess(data, settings=SETTINGS) as broker:
            broker.expect_line("the ballast is created")
            with self.opened(broker) as publisher:
                publisher.call(1, "confirm.select")
                try:
                    self.fill(publisher)
                    self.consume(broker, len(round_.confirmed) // 10)
                    self.fill_to_the_last_byte(broker)
                    self.resume(broker, publisher)
                except (raw.Closed, OSError, AssertionError) as error:
                    round_.problems.append(f"{error!r}, and the broker said: {broker.output}")
            if not broker.is_running():
                round_.problems.append(f"the broker ended: {broker.output}")
            if self.chance.randrange(2):
                (self.place / "filler").unlink(missing_ok=True)
                self.fill_by_others(leave=2 * MIB)
        with contextlib.suppress(BrokerProcessError), BrokerProcess(data, settings=SETTINGS) as two:
            round_.boots = True
            self.judge(two)
        return round_

    @contextlib.contextmanager
    def opened(self, broker: BrokerProcess) -> Iterator[raw.Connection]:
        """A connection with channel 1 open and the queue `q`."""
        with raw.connect(broker.uri) as connection:
            connection.open_channel(1)
            connection.declare(1, "q", durable=True)
            yield connection

    # -- filling -----------------------------------------------------------------------------------

    def fill(self, publisher: raw.Connection) -> None:
        """Publish until the broker blocks, with room left."""
        while self.tag < PUBLISHES_MAX:
            while self.tag < len(self.round.confirmed) + WINDOW:
                self.publish(publisher)
            self.hear(publisher.next_method())
            if self.blocked:
                self.round.free_when_blocked = free(self.place)
                if self.round.free_when_blocked <= 0:
                    self.round.problems.append("blocked with no room left")
                return
        raise AssertionError("the disk never filled")

    def publish(self, publisher: raw.Connection) -> None:
        """Publish the next message."""
        size = self.chance.choice((100, 5_000, 20_000, 100_000))
        body = b"%d." % self.tag + bytes(size)
        publisher.send(raw.publish(1, "", "q", body, delivery_mode=2))
        self.round.bodies[self.tag] = len(body)
        self.tag += 1

    def hear(self, got: raw.Method) -> None:
        """Take a confirm, cumulative or not, or the word that the alarm began or ended."""
        if got.name in ("connection.blocked", "connection.unblocked"):
            self.blocked = got.name == "connection.blocked"
            return
        assert got.name == "basic.ack", got
        first = got.delivery_tag - 1
        if got.multiple:
            first = len(self.round.confirmed)
        self.round.confirmed |= set(range(first, got.delivery_tag))

    def fill_by_others(self, leave: int = 0) -> None:
        """Fill the disk with something else."""
        with (self.place / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while free(self.place) > leave:
                file.write(bytes(min(MIB, free(self.place) - leave)))

    def fill_to_the_last_byte(self, broker: BrokerProcess) -> None:
        """Leave no byte; what is delivered without a sync is delivered still."""
        self.fill_by_others()
        if free(self.place):
            self.round.problems.append(f"{free(self.place)} bytes were left")
        self.consume(broker, 5)

    # -- draining ----------------------------------------------------------------------------------

    def consume(self, broker: BrokerProcess, count: int) -> None:
        """Take and ack so many messages; who cannot within the deadline raises TimeoutError."""
        with self.opened(broker) as consumer:
            for _ in range(count):
                got = consumer.get(1, "q", no_ack=False)
                if got is None:
                    break
                consumer.send(raw.method(1, "basic.ack", delivery_tag=got.delivery_tag))
                self.round.acked.add(int(got.body.partition(b".")[0]))
            consumer.sync(1)

    def resume(self, broker: BrokerProcess, publisher: raw.Connection) -> None:
        """Give room back, and see that publishers go on by themselves."""
        (self.place / "filler").unlink()
        self.consume(broker, len(self.round.confirmed) * 2 // 3)
        end = time.monotonic() + 4 * RESUME_SECONDS_MAX
        while free(self.place) < RESERVE * 9 // 8 + 8 * MIB and time.monotonic() < end:
            time.sleep(0.02)
        begun = time.monotonic()
        while self.blocked:
            self.hear(publisher.next_method())
        self.round.resumed_seconds = time.monotonic() - begun
        if self.round.resumed_seconds > RESUME_SECONDS_MAX:
            self.round.problems.append(f"on again after {self.round.resumed_seconds:.1f} s")
        for _ in range(20):
            self.publish(publisher)
        while len(self.round.confirmed) < self.tag:
            self.hear(publisher.next_method())

    # -- judging -----------------------------------------------------------------------------------

    def judge(self, broker: BrokerProcess) -> None:
        """Look for what was confirmed and not acked; what was in flight may be there."""
        round_ = self.round
        with self.opened(broker) as connection:
            bodies = connection.drain(1, "q")
        numbers = [int(body.partition(b".")[0]) for body in bodies]
        for number, body in zip(numbers, bodies, strict=True):
            if number not in round_.bodies:
                round_.phantom += 1
            elif body != b"%d." % number + bytes(round_.bodies[number] - len(b"%d." % number)):
                round_.altered += 1
        round_.lost = len(round_.confirmed - round_.acked - set(numbers))
        if numbers != sorted(set(numbers)):
            round_.problems.append("the order changed, or messages came twice")
