"""SIGKILL under load, again and again: nothing that was confirmed is lost.

A thousand kills at moments drawn from 0.05 to 0.8 s after the broker is ready (short, so that all
of them take half an hour), 20 on each data directory; each fifth start is killed itself, somewhere
on its way.  The directories differ in how often they checkpoint and in how
much of a queue is kept in memory.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from chaos import campaign
from chaos.board import Row
from support.brokers.broker_process import BrokerProcess

NAME: Final = "kills"
RUNS: Final = 1000

PER_DIRECTORY: Final = 20
CHAPTER: Final = 5
SECONDS: Final = (0.05, 0.8)

#: A start takes about half a second: where it is killed.
START_SECONDS: Final = (0.1, 0.7)

#: The default journal, which is hardly ever checkpointed; one that is every second; one that is
#: all the time; and the last two with queues that keep 64 KiB or nothing in memory and the rest in
#: chunks, which the last one compacts all the time.
SETTINGS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"journal_bytes_max": "4194304", "journal_file_bytes": "1048576"},
    {"journal_bytes_max": "65536", "journal_file_bytes": "65536"},
    {
        "journal_bytes_max": "4194304",
        "journal_file_bytes": "1048576",
        "queue_window_bytes": "65536",
    },
    {
        "journal_bytes_max": "65536",
        "journal_file_bytes": "65536",
        "queue_window_bytes": "0",
        "compact_records_min": "100",
        "compact_live_percent": "90",
    },
)


def run(runs: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Kill so many times."""
    chance = random.Random(seed)
    score = campaign.Score()
    starts = 0
    number = 0
    while score.runs < runs and not score.counts.faults:
        directory = Path(tempfile.mkdtemp(prefix="chaos-kills-"))
        settings = SETTINGS[number % len(SETTINGS)]
        number += 1
        with BrokerProcess(directory / "data", settings=settings) as broker:

            def crash(broker: BrokerProcess = broker) -> None:
                nonlocal starts
                if chance.randrange(5) == 0:
                    starts += 1
                    kill_a_start(broker, chance.uniform(*START_SECONDS))

            campaign.run(
                broker, score, crashes=min(PER_DIRECTORY, runs - score.runs), chapter=CHAPTER,
                seconds=SECONDS, chance=chance, crash=crash, arguments={},
            )  # fmt: skip
        clean_up(directory, score, say)
        say(f"{score.runs:,} kills, {score.counts.confirmed:,} confirmed")
    note = f"{starts} starts killed too; {score.checkpoints:,} checkpoints; {score.repeats()}"
    return [score.row("kill -9 under load", note)]


def kill_a_start(broker: BrokerProcess, seconds: float) -> None:
    """Start the broker and kill it so much later, wherever it is then."""
    process = subprocess.Popen(
        broker.command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=broker.environment,
    )
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    process.kill()
    process.wait()


def clean_up(directory: Path, score: campaign.Score, say: Callable[[str], None]) -> None:
    """Remove a directory, or tell of what is wrong and leave it to be looked at."""
    if not score.counts.faults:
        shutil.rmtree(directory)
        return
    for fault in score.counts.faults:
        say(fault)
    say(f"left as it is: {directory}")
