"""Calls to the disk that fail with EIO, from the n-th on (scoreboard R8).

The broker confirms nothing more, ends with a code that is not 0 within a second of the failed call,
and a start on a good disk finds all that was confirmed.
"""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chaos import strace
from chaos.board import Row, skipped
from support.brokers.broker_process import BrokerProcess, BrokerProcessError
from support.wire import raw

NAME: Final = "eio"
RUNS: Final = 60

#: Checkpoints and new journal files all the time.
SHORT: Final = {"journal_bytes_max": "65536", "journal_file_bytes": "65536"}
BODY: Final = bytes(3000)
WINDOW: Final = 10

#: The calls that fail, and the range from which the first one is drawn: behind the start.
FAULTS: Final = (
    ("fdatasync", (12, 120)),
    ("pwritev,pwritev2", (12, 120)),
    ("pwrite64", (1, 4)),
    ("rename,renameat,renameat2", (2, 5)),
    ("fsync", (10, 40)),
    ("unlink,unlinkat", (1, 6)),
    ("openat", (1, 1)),
)

#: What writes to sockets.
SENDING: Final = ("write", "writev", "sendto", "sendmsg")

#: How soon a broker must have ended.
END_SECONDS_MAX: Final = 1.0


@dataclass
class Outcome:
    """What came of one failure."""

    fault: str
    confirmed: int = 0
    code: int = 0
    #: From the failed call to the end of the process; negative where nothing failed.
    seconds: float = -1.0
    confirms_after: int = 0
    boots: bool = False
    lost: int = 0
    phantom: int = 0
    altered: int = 0

    @property
    def wrong(self) -> list[str]:
        """What broke a promise, in words."""
        found = []
        if self.code != 1:
            found.append(f"it ended with {self.code}")
        if not 0 <= self.seconds <= END_SECONDS_MAX:
            found.append(f"it ended {self.seconds:.2f} s after the failure")
        if self.confirms_after:
            found.append(f"{self.confirms_after} confirms after the failure")
        return found


def run(runs: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Let calls of each kind fail in turn."""
    if reason := strace.missing():
        return [skipped(NAME, reason)]
    chance = random.Random(seed)
    outcomes = []
    for number in range(runs):
        calls, (first, last) = FAULTS[number % len(FAULTS)]
        outcome = one(f"{calls}:error=EIO:when={chance.randint(first, last)}+")
        outcomes.append(outcome)
        if outcome.wrong or outcome.lost or not outcome.boots:
            say(f"{outcome.fault}: {outcome.wrong}, {outcome.lost} lost")
    return [row(outcomes)]


def row(outcomes: list[Outcome]) -> Row:
    """Return the line of the scoreboard."""
    slowest = max(outcome.seconds for outcome in outcomes)
    return Row(
        "EIO: exits, keeps all", len(outcomes), sum(one.boots for one in outcomes),
        sum(one.confirmed for one in outcomes), sum(one.lost for one in outcomes),
        sum(one.phantom for one in outcomes), sum(one.altered for one in outcomes),
        sum(len(one.wrong) for one in outcomes), note=f"slowest exit {slowest:.2f} s",
    )  # fmt: skip


def one(fault: str) -> Outcome:
    """Publish until the fault ends the broker, look at what it did then, and start it again."""
    outcome = Outcome(fault)
    with no_bytecode(), tempfile.TemporaryDirectory(prefix="chaos-eio-") as place:
        directory = Path(place)
        with BrokerProcess(directory / "data", settings=SHORT) as broker:
            with opened(broker):
                pass
            broker.terminate()
        # A new file of the journal, some rolls after the start.
        within = str(directory / f"data/journal/{8:016d}.jnl") if "openat" in fault else ""
        sending = () if within else SENDING
        wrapper = strace.command(directory / "strace", fault, sending, within)
        broker = BrokerProcess(directory / "data", settings=SHORT, wrapper=wrapper)
        with contextlib.suppress(BrokerProcessError), broker:
            with opened(broker) as connection:
                outcome.confirmed = publish_until_the_end(connection)
            outcome.code = broker.wait(raw.SECONDS_MAX)
        look_at(outcome, strace.calls(directory / "strace"))
        restart(outcome, directory / "data")
    return outcome


@contextlib.contextmanager
def no_bytecode() -> Iterator[None]:
    """Keep Python from writing what it compiles: those calls would count."""
    before = os.environ.get("PYTHONDONTWRITEBYTECODE")
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONDONTWRITEBYTECODE"]


@contextlib.contextmanager
def opened(broker: BrokerProcess) -> Iterator[raw.Connection]:
    """A connection that confirms on channel 1, with the queue `q`."""
    with raw.connect(broker.uri) as connection:
        connection.open_channel(1)
        connection.declare(1, "q", durable=True)
        connection.call(1, "confirm.select")
        yield connection


def publish_until_the_end(connection: raw.Connection) -> int:
    """Publish with a window until the broker is gone; return how many were confirmed."""
    sent = confirmed = 0
    try:
        while True:
            while sent < confirmed + WINDOW:
                body = b"%d." % sent + BODY
                connection.send(raw.publish(1, "", "q", body, delivery_mode=2))
                sent += 1
            confirmed = max(confirmed, connection.expect(1, "basic.ack").delivery_tag)
    except (raw.Closed, OSError):
        return confirmed


def look_at(outcome: Outcome, calls: list[strace.Call]) -> None:
    """Find the failed call, what was confirmed after it, and when the process ended.

    What a checkpoint does is no part of a group: confirms of earlier groups may still go out then.
    """
    failed = next((place for place, call in enumerate(calls) if call.failed), -1)
    if failed < 0:
        return
    outcome.seconds = calls[-1].seconds - calls[failed].seconds
    if "/journal/" in calls[failed].text:
        for call in calls[failed:]:
            if call.text.startswith(SENDING) and strace.ACK in call.text:
                outcome.confirms_after += 1


def restart(outcome: Outcome, data: Path) -> None:
    """Start on a good disk and look for what was confirmed."""
    with contextlib.suppress(BrokerProcessError), BrokerProcess(data, settings=SHORT) as broker:
        outcome.boots = True
        with opened(broker) as connection:
            bodies = connection.drain(1, "q")
        numbers = [int(body.partition(b".")[0]) for body in bodies]
        outcome.altered = sum(body.partition(b".")[2] != BODY for body in bodies)
        outcome.lost = len(set(range(outcome.confirmed)) - set(numbers))
        # In order and once, up to what was in flight.
        outcome.phantom = len(numbers) - len(set(numbers)) + (numbers != sorted(numbers))
        outcome.phantom += sum(number >= outcome.confirmed + WINDOW for number in numbers)
        broker.terminate()
