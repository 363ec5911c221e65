"""A real broker process with a fault of ours in it: an exception that nobody expects, at a place.

`BrokenBroker` starts this module as a program: `leveret serve`, but for one part of it that raises:

    step N          the hand-over of a checkpoint, in its N-th step, and from then on in none
    definition N    a definition that cannot be written, which the N-th step of a checkpoint meets
    disk N VERB PLACE   the N-th call VERB to a file of the folder PLACE, in the thread that does it
    error N VERB PLACE  the same call fails with EIO
    kill N VERB PLACE   the process is killed at the entry of that call
    clock N         the N-th look at the clock, wherever it is
    recovery N      the N-th listing of a folder, which the recovery begins with
    room N          the N-th look at the room on the disk, which a thread takes
    timer N         what is due N ms after the start
    parts N         nothing by itself: a queue `broken`, bound to `amq.fanout`, that takes no
                    message and cannot be counted; a connection of `guest` that bears no change of
                    what he may do

The parts are handed in (`leveret.app.parts`: a `Disk`, a `Clock`, a `CheckpointSource`); nothing is
patched.  Faults count from the moment that the broker is ready.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

if __name__ == "__main__":
    # The helpers that all tests share lie two folders up.
    sys.path[0] = str(Path(__file__).parents[2])

from leveret.app.node import Node
from leveret.app.parts import Parts, SystemClock
from leveret.broker.node.broker import Broker
from leveret.broker.queue.target import RECORDS_NONE, Target
from leveret.broker.recovery.compaction import Compaction
from leveret.broker.scheduler.link import Link
from leveret.broker.scheduler.timers import Timed
from leveret.broker.values.queue_attributes import QueueAttributes
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

#: What every fault of ours says.
BUG = "nobody expects this"


class BrokenBroker(BrokerProcess):
    """A broker process with a fault in it, said as above."""

    fault: Sequence[str] = ()

    @property
    def command(self) -> list[str]:
        """The command line of `start`."""
        where = ["--host", self.host, "--data-dir", str(self.data_dir)]
        return [*self.wrapper, self.python, __file__, *where, *self.fault]


def broken(data_dir: Path, settings: dict[str, str], *fault: object) -> BrokenBroker:
    """Return a broker with a fault in it."""
    broker = BrokenBroker(data_dir, settings=settings)
    broker.fault = [str(word) for word in fault]
    return broker


class Countdown:
    """Raises at the N-th call after it was armed; whoever goes on afterwards can go on."""

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
    """A hand-over in small steps, one of which raises; then it says that nothing is left."""

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
    """A clock one look at which raises."""

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


class BrokenNode(Node):
    """A broker with the fault that `sys.argv` names."""

    kind = ""
    words: Sequence[str] = ()

    def __init__(
        self, settings: Settings, _parts: Parts, on_failure: Callable[[int], None]
    ) -> None:
        self.countdown = Countdown(int(self.words[0]))
        self.broken = BrokenParts(settings, self.kind, self.countdown)
        super().__init__(settings, self.broken, on_failure)

    async def start(self) -> None:
        """Start, and let the fault count from here on."""
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
    """A hand-over before one of whose steps a user gets a limit that cannot be written."""

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
    """What takes no message."""

    def publish(self, message: Message) -> int:
        raise ZeroDivisionError(BUG)


class BrokenQueue(IdleQueue):
    """A queue that takes no message and cannot be counted."""

    def new_target(self) -> Target:
        return BrokenTarget(self.core, self.name, self.queue_id, RECORDS_NONE)

    def ready_count(self) -> int:
        raise ZeroDivisionError(BUG)


class BrokenLink(Link):
    """A connection that does not bear to hear of a change."""

    def access_changed(self) -> None:
        raise ZeroDivisionError(BUG)

    def check_consumers(self) -> Iterator[int]:
        return iter(())

    def synced(self, group: int) -> None:
        """Wait for nothing."""

    def spilled(self) -> None:
        """Wait for nothing."""

    def alarm(self, blocked: bool, reason: str) -> None:
        """Publish nothing."""

    def force(self, text: str) -> None:
        """End in silence."""

    def yield_turn(self) -> None:
        """Ask for nothing."""

    def take_turn(self) -> None:
        """Ask for nothing."""

    def channel_count(self) -> int:
        return 0


class _Due(Timed):
    """What is timed, and raises when it is due."""

    def due(self, now_ms: int) -> None:
        raise ZeroDivisionError(BUG)


class _Room(FaultyDisk):
    """A disk one look at whose room raises."""

    def __init__(self, disk: Disk, looks: Countdown) -> None:
        super().__init__(disk)
        self._looks = looks

    def free(self) -> int:
        self._looks.count()
        return super().free()


class _Folders(FaultyDisk):
    """A disk one listing of which raises."""

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
    """Run a broker; the command line is as `BrokenBroker` says it."""
    _, _, host, _, data_dir, kind, *words = sys.argv
    BrokenNode.kind = kind
    BrokenNode.words = words
    given = {"host": host, "port": 0, "http_port": 0, "metrics": False, "data_dir": Path(data_dir)}
    return run(load(given), BrokenNode)


if __name__ == "__main__":
    sys.exit(main())
