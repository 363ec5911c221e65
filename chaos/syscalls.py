"""A kill at every system call that puts something on the disk, and another one in the recovery.

A script of 200 operations (`script`) is played on a broker under strace, which kills it at the
entry of the k-th `fdatasync`; then at the k-th `rename`, and so on, for every k until the script
comes to its end.  The start on what is left is killed too, at one of its own calls.  The next start
must find the state after one of the operations: not before the last promise, not after the last
operation that was sent.  The journal is so short that checkpoints run all
the time; the second time the queues lie in chunks, which are paged and compacted meanwhile.

Counted are the states that were judged, and as confirmed the operations that were promised.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from chaos.board import Row, skipped
from chaos.campaign import BREACHES
from chaos.script import LARGE, SMALL, Script, found
from support.brokers.broker_process import BrokerProcess, BrokerProcessError
from support.wire import raw

NAME: Final = "syscalls"

#: Stands for all places; a share of it is that share of the places of each call, drawn.
RUNS: Final = 1000

OPERATIONS: Final = 200

CALLS: Final = (
    "fdatasync",
    "rename,renameat,renameat2",
    "ftruncate",
    "fsync",
    "unlink,unlinkat",
    "pwritev,pwritev2,pwrite64",
)

#: The calls of a recovery, and up to which of them one is drawn.
RECOVERY_CALLS_MAX: Final = 4


@dataclass(frozen=True)
class Way:
    """How the script is played: the broker's settings, and the size of the messages."""

    words: str
    names: str
    settings: dict[str, str]


#: All in memory, with checkpoints all the time; and with queues that have most of their messages in
#: chunks, which are read and compacted meanwhile.
WAYS: Final = (
    Way("", SMALL, {"journal_bytes_max": "65536", "journal_file_bytes": "65536"}),
    Way(
        ", deep",
        LARGE,
        {
            "journal_bytes_max": "1048576",
            "journal_file_bytes": "524288",
            "queue_window_bytes": "131072",
            "compact_records_min": "2",
            "compact_live_percent": "90",
        },
    ),
)


@dataclass
class Score:
    """What came of all plays."""

    runs: int = 0
    boots: int = 0
    promises: int = 0
    altered: int = 0
    violations: int = 0
    again: int = 0
    faults: list[str] = field(default_factory=list)

    def fault(self, text: str) -> None:
        """Tell of a fault."""
        self.faults.append(text)


def run(runs: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Kill at every place, or at a share of them."""
    rows = []
    for way in WAYS:
        try:
            counts = count_calls(way, seed)
        except BrokerProcessError as error:
            return [skipped("kill at every system call", f"strace cannot run the broker: {error}")]
        for calls in CALLS:
            name = f"kill at the k-th {calls.partition(',')[0]}{way.words}"
            rows.append(row_of(name, calls, counts[calls], way, runs, seed, say))
    return rows


def row_of(
    name: str,
    calls: str,
    count: int,
    way: Way,
    runs: int,
    seed: int,
    say: Callable[[str], None],
) -> Row:
    """Kill at the places of one kind of call, of which there are about `count`."""
    chance = random.Random(seed)
    score = Score()
    # Threads make the number of calls vary: go on until a play comes to its end, or, for a share,
    # through places in random order until so many of them were reached.
    places: Iterable[int] = itertools.count(1)
    share = runs < RUNS
    wanted = math.ceil(count * runs / RUNS)
    if share:
        places = chance.sample(range(1, count + 1), count)
    for place in places:
        reached = kill_at(calls, place, way, seed, chance, score)
        if score.faults or (score.runs == wanted if share else not reached):
            break
    for fault in score.faults:
        say(fault)
    say(f"{name}: {score.runs} of about {count} places")
    return Row(
        name, score.runs, score.boots, score.promises, 0, 0, score.altered, score.violations,
        note=f"of about {count} places; {score.again} recoveries killed at a call of theirs",
    )  # fmt: skip


def count_calls(way: Way, seed: int) -> dict[str, int]:
    """Play the script to its end; return how often the broker made each of the calls.

    Raises: BrokerProcessError.
    """
    if shutil.which("strace") is None:
        raise BrokerProcessError("strace is not installed")
    with directory() as place:
        log = place / "strace"
        flags = ["-o", str(log), "-e", f"trace={','.join(CALLS)}"]
        with under_strace(place, way, flags) as broker:
            script = Script(seed, OPERATIONS, way.names)
            script.play(broker.uri)
            assert script.complete
            broker.terminate()
        names = re.findall(r"^\d+ +(\w+)\(", log.read_text(), re.MULTILINE)
    return {calls: sum(name in calls.split(",") for name in names) for calls in CALLS}


def kill_at(
    calls: str,
    place: int,
    way: Way,
    seed: int,
    chance: random.Random,
    score: Score,
) -> bool:
    """Play until the kill, kill the recovery, and judge; False when nothing was killed."""
    script = Script(seed, OPERATIONS, way.names)
    with directory() as where:
        try:
            broker = under_strace(where, way, injected(calls, place))
            with contextlib.suppress(BrokerProcessError), broker:
                script.play(broker.uri)
                if script.complete:
                    return False
                broker.wait(raw.SECONDS_MAX)
            score.runs += 1
            score.promises += script.promises
            drawn = chance.choice(CALLS), chance.randrange(1, RECOVERY_CALLS_MAX + 1)
            score.again += killed_again(where, way, *drawn)
            judge(where, way, script, score)
        except BrokerProcessError as error:
            score.fault(f"{calls} {place}: no start: {error}")
        except BREACHES as error:
            score.altered += str(error).startswith("altered")
            score.violations += 1
            score.fault(f"{calls} {place}: {type(error).__name__}: {error}")
    return True


def killed_again(where: Path, way: Way, calls: str, place: int) -> bool:
    """Start and kill at a call of the start, or behind it; tell whether it was at the call."""
    try:
        with under_strace(where, way, injected(calls, place)):
            return False
    except BrokerProcessError:
        return True


def judge(where: Path, way: Way, script: Script, score: Score) -> None:
    """Start, and find one of the states that may be there.  Raises: BrokerProcessError."""
    with BrokerProcess(where / "data", settings=way.settings) as broker:
        score.boots += 1
        state = found(broker.uri)
        assert state in script.states[script.promised :], (
            f"{state}\nis none of the states from {script.promised} (promised): "
            f"{script.states[script.promised]}\nto {len(script.states) - 1} (sent): {script.state}"
        )
        assert broker.terminate() == 0


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """Make a directory and remove it."""
    with tempfile.TemporaryDirectory(prefix="chaos-syscalls-") as name:
        yield Path(name)


def injected(calls: str, place: int) -> list[str]:
    """Return strace's flags for a kill at the entry of a call."""
    return [
        "-o",
        "/dev/null",
        "-e",
        f"trace={calls}",
        "-e",
        f"inject={calls}:signal=KILL:when={place}",
    ]


def under_strace(where: Path, way: Way, flags: Sequence[str]) -> BrokerProcess:
    """Return a broker that strace runs, as a child of ours (-D).

    Python writes no byte code there: it renames what it writes, and those calls would count.
    """
    wrapper = ["env", "PYTHONDONTWRITEBYTECODE=1", "strace", "-D", "-f", "-qq", *flags]
    return BrokerProcess(where / "data", settings=way.settings, wrapper=wrapper)
