"""A real broker process with an injected fault: an unexpected exception at a chosen place.

`BrokenBroker` starts this module as a program: `leveret serve` with one part that raises:

    step N          the N-th step of a checkpoint's source, once
    definition N    a definition that cannot be written, in the N-th step of a checkpoint
    disk N VERB PLACE   the N-th call VERB to a file of the folder PLACE, in the calling thread
    error N VERB PLACE  the same call fails with EIO
    kill N VERB PLACE   the process is killed at the start of that call
    clock N         the N-th reading of the clock, anywhere
    recovery N      the N-th listing of a folder, with which the recovery begins
    room N          the N-th check of the free disk space, in a thread
    timer N         a timer that fires N ms after the start
    parts N         nothing at first: adds a queue `broken`, bound to `amq.fanout`, that raises on
                    a publish and when it is counted, and a connection of `guest` that raises when
                    the user's permissions change

The parts are injected (`leveret.app.parts`: a `Disk`, a `Clock`, a `CheckpointSource`), not
patched.  Faults are counted from the time when the broker is ready.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

if __name__ == "__main__":
    # The helpers that all tests share are two folders up.
    sys.path[0] = str(Path(__file__).parents[2])

from leveret.app.node import RunningBroker
from leveret.app.parts import Parts, SystemClock
from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.broker import Broker
from leveret.broker.queue.target import RECORDS_NONE, Target
from leveret.broker.recovery.compaction import Compaction
from leveret.broker.scheduler.link import Link
from leveret.broker.scheduler.timers import Timed
from leveret.cli.serving.process import run
from leveret.clock import Clock
from leveret.config import Settings, load
from leveret.limits import SLICE_MESSAGES
from leveret.message import Message
from leveret.names import Name
from leveret.store.checkpoint.checkpoint import CheckpointOutput, CheckpointSource, NewChunk
from leveret.store.disk import Disk
from leveret.store.disks.faulty import Fault, FaultyDisk
from support.brokers.broker_process import BrokerProcess
from support.node.idle_queues import IdleQueue, IdleTarget

#: The text of every injected exception.
BUG = "nobody expects this"


class BrokenBroker(BrokerProcess):
    """A broker process with a fault, given as above."""

    fault: Sequence[str] = ()

    @property
    def command(self) -> list[str]:
        """The command line of `start`."""
        where = ["--host", self.host, "--data-dir", str(self.data_dir)]
        return [*self.wrapper, self.python, __file__, *where, *self.fault]


def broken(data_dir: Path, settings: dict[str, str], *fault: object) -> BrokenBroker:
    """Return a broker with a fault."""
    broker = BrokenBroker(data_dir, settings=settings)
    broker.fault = [str(word) for word in fault]
    return broker


class Countdown:
    """Raises at the N-th call after it was armed, and only once."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.armed = False
        self.calls = 0

    def count(self) -> None:
        """Count a call."""
        self.calls += self.armed
        if self.armed and self.calls == self.at:
            raise ZeroDivisionError(BUG)


class BrokenSource(CheckpointSource):
    """A checkpoint source in small steps, one of which raises; then it reports its end."""

    def __init__(self, source: CheckpointSource, steps: Countdown) -> None:
        self._source = source
        self._steps = steps

    def begin(self, group: int) -> None:
        self._source.begin(group)

    def hand_over(self, out: CheckpointOutput) -> Iterator[int]:
        for number, _ in enumerate(self._source.hand_over(out), 1):
            if number % 5 == 0:
                self._steps.count()
                yield SLICE_MESSAGES
        self._steps.count()

    def chunked(self, chunk: NewChunk) -> None:
        self._source.chunked(chunk)


class BrokenClock(SystemClock):
    """A clock that raises on one reading."""

    def __init__(self, looks: Countdown) -> None:
        super().__init__()
        self._looks = looks

    def wall_ms(self) -> int:
        self._looks.count()
        return super().wall_ms()


class BrokenParts(Parts):
    """The parts of a broker, one of them with a fault."""

    def __init__(self, settings: Settings, kind: str, countdown: Countdown) -> None:
        super().__init__(settings)
        self.kind = kind
        self.countdown = countdown
        self.faulty = FaultyDisk(super().disk())
        self.steps = 0

    def clock(self) -> Clock:
        return BrokenClock(self.countdown) if self.kind == "clock" else super().clock()

    def disk(self) -> Disk:
        if self.kind == "room":
            return _Room(self.faulty, self.countdown)
        if self.kind == "recovery":
            self.countdown.armed = True
            return _Folders(self.faulty, self.countdown)
        return self.faulty

    def checkpoint_source(self, broker: Broker, compaction: Compaction | None) -> CheckpointSource:
        source = super().checkpoint_source(broker, compaction)
        if self.kind == "step":
            return BrokenSource(source, self.countdown)
        if self.kind == "definition":
            return _Worsening(source, self, broker)
        return source


class BrokenNode(RunningBroker):
    """A broker with the fault given in `sys.argv`."""

    kind = ""
    words: Sequence[str] = ()

    def __init__(
        self, settings: Settings, _parts: Parts, on_failure: Callable[[int], None]
    ) -> None:
        self.countdown = Countdown(int(self.words[0]))
        self.broken = BrokenParts(settings, self.kind, self.countdown)
        super().__init__(settings, self.broken, on_failure)

    async def start(self) -> None:
        """Start, then arm the fault."""
        await super().start()
        self.countdown.armed = True
        if self.kind == "parts":
            self._put_parts()
        if self.kind == "timer":
            core = self.broker.core
            core.timers.set(_Due(), core.now_ms + self.countdown.at)
            self.engine.runner.run()
        if self.kind in ("disk", "error", "kill"):
            at, verb, place = self.words
            kind = "error" if self.kind == "error" else "wait"
            wait = _die if self.kind == "kill" else _raise
            fault = Fault(kind, int(at), verbs=(verb,), within=place, wait=wait)
            self.broken.faulty.faults.append(fault)

    def _put_parts(self) -> None:
        broker = self.broker
        vhost = broker.vhost("/")
        vhost.queues.by_name["broken"] = BrokenQueue(
            broker.core, 1_000_000, "broken", QueueAttributes()
        )
        vhost.exchanges.bind(Name("amq.fanout"), Name("broken"), True, "", {}, None)
        link = BrokenLink(broker.core.scheduler, broker.core.accounts, "broken")
        link.user = "guest"
        link.vhost_name = "/"
        broker.links[link] = None


class _Worsening(CheckpointSource):
    """A checkpoint source that gives a user an unwritable limit before one of its steps."""

    def __init__(self, source: CheckpointSource, parts: BrokenParts, broker: Broker) -> None:
        self._source = source
        self._parts = parts
        self._broker = broker

    def begin(self, group: int) -> None:
        self._source.begin(group)

    def hand_over(self, out: CheckpointOutput) -> Iterator[int]:
        parts = self._parts
        for number, _ in enumerate(self._source.hand_over(out)):
            if number % 5 == 0:
                parts.steps += 1
                if parts.steps == parts.countdown.at:
                    self._broker.users.limits["guest"] = {"max-connections": 10**20}
                yield SLICE_MESSAGES

    def chunked(self, chunk: NewChunk) -> None:
        self._source.chunked(chunk)


class BrokenTarget(IdleTarget):
    """A target that raises on every publish."""

    def publish(self, message: Message) -> int:
        raise ZeroDivisionError(BUG)


class BrokenQueue(IdleQueue):
    """A queue that raises on every publish, and when it is counted."""

    def new_target(self) -> Target:
        return BrokenTarget(self.core, self.name, self.queue_id, RECORDS_NONE)

    def ready_count(self) -> int:
        raise ZeroDivisionError(BUG)


class BrokenLink(Link):
    """A connection that raises when the user's permissions change."""

    def access_changed(self) -> None:
        raise ZeroDivisionError(BUG)

    def check_consumers(self) -> Iterator[int]:
        return iter(())

    def synced(self, group: int) -> None:
        """Do nothing."""

    def spilled(self) -> None:
        """Do nothing."""

    def alarm(self, blocked: bool, reason: str) -> None:
        """Do nothing."""

    def force(self, text: str) -> None:
        """Do nothing."""

    def yield_turn(self) -> None:
        """Do nothing."""

    def take_turn(self) -> None:
        """Do nothing."""

    def channel_count(self) -> int:
        return 0


class _Due(Timed):
    """A timer that raises when it fires."""

    def due(self, now_ms: int) -> None:
        raise ZeroDivisionError(BUG)


class _Room(FaultyDisk):
    """A disk that raises on one check of its free space."""

    def __init__(self, disk: Disk, looks: Countdown) -> None:
        super().__init__(disk)
        self._looks = looks

    def free(self) -> int:
        self._looks.count()
        return super().free()


class _Folders(FaultyDisk):
    """A disk that raises on one listing of a folder."""

    def __init__(self, disk: Disk, looks: Countdown) -> None:
        super().__init__(disk)
        self._looks = looks

    def list(self, path: str) -> list[str]:
        self._looks.count()
        return super().list(path)


def _raise() -> None:
    raise ZeroDivisionError(BUG)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    """Run a broker, with the command line of `BrokenBroker`."""
    _, _, host, _, data_dir, kind, *words = sys.argv
    BrokenNode.kind = kind
    BrokenNode.words = words
    given = {"host": host, "port": 0, "http_port": 0, "metrics": False, "data_dir": Path(data_dir)}
    return run(load(given), BrokenNode)


if __name__ == "__main__":
    sys.exit(main())
