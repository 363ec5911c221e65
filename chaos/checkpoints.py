"""Checkpoints that fail: nothing older is superseded, and nothing goes on that depends on them.

On real processes a part of the broker raises what nobody expects, a call to the disk fails, or the
process is killed, at the N-th step of checkpoints that run all the time; or a definition comes to
be that cannot be written.  The broker ends with the code for it, a check of the directory finds
nothing left out, and a start on a good disk finds all that was confirmed.

In memory the same is done to the core at every step, with a crash at once afterwards.
"""

from __future__ import annotations

import contextlib
import random
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chaos.board import Row
from chaos.eio import BODY, SHORT, opened, publish_until_the_end
from chaos.eio import WINDOW as IN_FLIGHT
from leveret.app.ground import INTERNAL_ERROR
from leveret.broker.recovery.checkpoint import BrokerCheckpoint
from leveret.store.disk import ReadDisk, StorageFailure
from leveret.store.disks.faulty import Fault, FaultyDisk
from leveret.store.disks.recording import RecordingDisk
from leveret.store.format import STATE_DIR
from leveret.store.survey.survey import Survey
from support.brokers.broken_broker import BrokenSource, Countdown, broken
from support.brokers.broker_process import BrokerProcess, BrokerProcessError
from support.node.core import Node, Peer, held
from support.wire import raw
from support.wire.raw_codec import method, publish

NAME: Final = "checkpoints"
RUNS: Final = 120

#: Of each process so many are tried in memory.
IN_MEMORY_FOR_EACH: Final = 50

#: How often a checkpoint that failed is asked to go on.
FAILURES_MAX: Final = 10

#: The faults of `broken_broker`, the range of their number, and with what the process ends.
FAULTS: Final[tuple[tuple[tuple[str, ...], tuple[int, int], int], ...]] = (
    (("step",), (1, 150), INTERNAL_ERROR),
    (("definition",), (1, 150), INTERNAL_ERROR),
    (("disk", "append", "state"), (1, 60), INTERNAL_ERROR),
    (("disk", "append", "segments"), (1, 30), INTERNAL_ERROR),
    (("disk", "rename", "state"), (1, 8), INTERNAL_ERROR),
    (("disk", "unlink", "journal"), (1, 8), INTERNAL_ERROR),
    (("error", "append", "state"), (1, 60), 1),
    (("error", "sync", "state"), (1, 8), 1),
    (("error", "rename", "state"), (1, 8), 1),
    (("kill", "append", "state"), (1, 60), -signal.SIGKILL),
    (("kill", "rename", "state"), (1, 8), -signal.SIGKILL),
    (("kill", "unlink", "state"), (1, 6), -signal.SIGKILL),
)

#: A queue in memory, and one of which most lies on the disk.
SETTINGS: Final = (SHORT, {**SHORT, "queue_window_bytes": "16384"})


@dataclass
class Outcome:
    """What came of some failures."""

    boots: int = 0
    confirmed: int = 0
    lost: int = 0
    phantom: int = 0
    altered: int = 0
    violations: int = 0


def run(runs: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Let checkpoints fail, on processes and in memory."""
    rows = [row("checkpoints that fail", runs, on_processes(runs, seed, say))]
    many = runs * IN_MEMORY_FOR_EACH
    rows.append(row("the same, in memory", many, in_memory(many, seed, say)))
    return rows


def row(name: str, runs: int, outcome: Outcome) -> Row:
    """Return a line of the scoreboard."""
    return Row(
        name, runs, outcome.boots, outcome.confirmed, outcome.lost, outcome.phantom,
        outcome.altered, outcome.violations,
    )  # fmt: skip


# -- on processes ----------------------------------------------------------------------------------


def on_processes(runs: int, seed: int, say: Callable[[str], None]) -> Outcome:
    """Let checkpoints of real processes fail, each kind of fault in turn."""
    chance = random.Random(seed)
    total = Outcome()
    for number in range(runs):
        words, (first, last), code = FAULTS[number % len(FAULTS)]
        fault = (words[0], chance.randint(first, last), *words[1:])
        wrong = one(fault, code, SETTINGS[number // len(FAULTS) % len(SETTINGS)], total)
        total.violations += len(wrong)
        if wrong:
            say(f"{fault}: {wrong}")
    return total


def one(
    fault: tuple[object, ...], code: int, settings: dict[str, str], total: Outcome
) -> list[str]:
    """Publish until a fault ends the broker, check what it left, and start it again.

    Returns what broke a promise other than those that `total` counts.
    """
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="chaos-checkpoints-") as place:
        data = Path(place) / "data"
        with broken(data, settings, *fault) as broker:
            with opened(broker) as connection:
                confirmed = publish_until_the_end(connection)
            ended = broker.wait(raw.SECONDS_MAX)
        if ended != code:
            wrong.append(f"it ended with {ended}, not {code}")
        wrong += left_out(data)
        total.confirmed += confirmed
        with contextlib.suppress(BrokerProcessError):
            restart(data, settings, confirmed, total)
    return wrong


def left_out(data: Path) -> list[str]:
    """Return what the newest snapshot of a directory leaves out, by a survey."""
    disk = ReadDisk(str(data))
    survey = Survey(disk)
    for _ in survey.run():
        pass
    disk.close()
    return [str(found) for found in survey.damages if found.path.startswith(STATE_DIR)]


def restart(data: Path, settings: dict[str, str], confirmed: int, total: Outcome) -> None:
    """Start on a good disk and look for what was confirmed.  Raises: BrokerProcessError."""
    with BrokerProcess(data, settings=settings) as broker:
        total.boots += 1
        with opened(broker) as connection:
            bodies = connection.drain(1, "q")
        numbers = [int(body.partition(b".")[0]) for body in bodies]
        total.altered += sum(body.partition(b".")[2] != BODY for body in bodies)
        total.lost += len(set(range(confirmed)) - set(numbers))
        # In order and once, up to what was in flight.
        total.phantom += len(numbers) - len(set(numbers)) + (numbers != sorted(numbers))
        total.phantom += sum(number >= confirmed + IN_FLIGHT for number in numbers)
        broker.terminate()


# -- in memory -------------------------------------------------------------------------------------


def in_memory(runs: int, seed: int, say: Callable[[str], None]) -> Outcome:
    """Let checkpoints of the core fail and crash at once; recover and judge."""
    total = Outcome()
    for number in range(runs):
        before = total.lost + total.phantom + total.violations
        Core(random.Random(f"{seed}/{number}"), total).fail()
        if total.lost + total.phantom + total.violations > before:
            say(f"in memory, number {number} of seed {seed}")
    return total


class Core:
    """A broker in memory with a queue, whose checkpoint is going to fail."""

    def __init__(self, chance: random.Random, total: Outcome) -> None:
        self.chance = chance
        self.total = total
        self.recording = RecordingDisk()
        self.disk = FaultyDisk(self.recording)
        window = chance.choice((-1, 0, 2000))
        self.node = Node(self.disk, recording=self.recording, window_bytes=window)
        self.peer: Peer = self.node.connect()
        self.peer.declare("q")
        self.sent = 0
        #: What was synced, and of that what was acked by a synced ack.
        self.confirmed: set[int] = set()
        self.gone: set[int] = set()

    def fail(self) -> None:
        """Work, let a checkpoint fail at some step, and judge what a crash leaves then."""
        for _ in range(self.chance.randrange(4)):
            self.work()
            self.node.take_checkpoint()
        self.work()
        if self.chance.randrange(3):
            self._break_the_source()
        else:
            verb, place = self.chance.choice(
                (("append", "state"), ("sync", "state"), ("rename", "state"), ("unlink", ""),
                 ("append", "segments"), ("fsync_dir", ""), ("pwrite", "state"))
            )  # fmt: skip
            kind = self.chance.choice(("error", "short", "wait"))
            at = self.chance.randint(1, 3)
            self.disk.faults.append(
                Fault(kind, at, verbs=(verb,), within=place, wait=_divide_by_zero, lasting=True)
            )
        with contextlib.suppress(StorageFailure):
            self._go_on()
        self.judge()

    def _go_on(self) -> None:
        """Take the checkpoint as a shell would that goes on after an exception, work between.

        Raises: StorageFailure.
        """
        failures = 0
        while failures < FAILURES_MAX:
            try:
                if self.node.step_checkpoint(self.chance.randint(1, 5)):
                    return
                self.node.write_spilled()
                self.work()
            except (ZeroDivisionError, ValueError, RuntimeError):
                failures += 1

    def _break_the_source(self) -> None:
        """Begin a checkpoint whose hand-over raises at some step."""
        node = self.node
        if self.chance.randrange(2):
            node.broker.users.limits["guest"] = {"max-connections": 10**20}
            return
        steps = Countdown(self.chance.randint(1, 12))
        steps.armed = True
        source = BrokenSource(BrokerCheckpoint(node.broker), steps)
        node.checkpoint = node.checkpoints.begin(node.journal, source, node.clock.wall_ms())

    def work(self) -> None:
        """Publish some messages, take and ack some, and sync all of it."""
        numbers = range(self.sent, self.sent + self.chance.randrange(6))
        for number in numbers:
            self.peer.send(publish(1, "", "q", b"%d" % number, delivery_mode=2))
            self.sent += 1
        taken: set[int] = set()
        for _ in range(self.chance.randrange(4)):
            self.peer.send(method(1, "basic.get", queue="q", no_ack=True))
            taken |= {int(got.body) for got in self.peer.take() if got.body}
        self.node.sync()
        self.confirmed |= set(numbers)
        self.gone |= taken

    def judge(self) -> None:
        """Recover from what a crash leaves, twice: as it lies there, and as some crash tears it."""
        total = self.total
        sure = sorted(self.confirmed - self.gone)
        total.confirmed += len(sure)
        images = [self.node.image(), *self.node.crashed(self.chance.randrange)[:2]]
        for image in images:
            again = Node(RecordingDisk(image))
            total.violations += len(again.orphaned) + len(again.report.damages)
            there = "q" in again.vhost.queues.by_name
            bodies = [item.message.body for item in held(again.classic("q"))] if there else []
            found = [int(body) for body in bodies]
            total.lost += len(set(sure) - set(found))
            # What was under way when it failed may be there or gone.
            late = {number for number in found if number not in self.confirmed}
            total.phantom += len(set(found) & self.gone) + len(found) - len(set(found))
            total.phantom += sum(number >= self.sent for number in late)
        total.boots += 1


def _divide_by_zero() -> None:
    raise ZeroDivisionError
