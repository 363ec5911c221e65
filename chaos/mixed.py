"""SIGKILL under all kinds of work: transactions, topics, a stream, acks, returns, definitions.

It is the scenario of `tests/crash/test_kill.py` with more seeds: what each client tries and is
promised is in a synced ledger, and every restart is judged by it whole.  The first broken promise
ends a directory and is counted by its kind.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from chaos.board import Row
from chaos.campaign import BREACHES
from support.brokers.broker_process import BrokerProcess, BrokerProcessError
from support.crash.kill_book import Violation
from support.crash.kill_scenario import DEEP, SHORT, Scenario
from support.crash.ledger import Ledger

NAME: Final = "mixed"
RUNS: Final = 500

PER_DIRECTORY: Final = 10
CONFIRMS_MAX: Final = 400

SETTINGS: Final[tuple[dict[str, str], ...]] = ({}, SHORT, DEEP)

_KIND: Final = re.compile(r"seed \d+: (lost|phantom|altered):")


@dataclass
class Score:
    """What came of all directories."""

    runs: int = 0
    boots: int = 0
    confirms: int = 0
    checkpoints: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def row(self, name: str) -> Row:
        """Return the row of the scoreboard."""
        kinds = self.kinds
        return Row(
            name, self.runs, self.boots, self.confirms, kinds.get("lost", 0),
            kinds.get("phantom", 0), kinds.get("altered", 0), kinds.get("other", 0),
            note=f"{self.checkpoints:,} checkpoints",
        )  # fmt: skip


def run(runs: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Kill so many times."""
    score = Score()
    number = 0
    while score.runs < runs and not score.faults:
        directory = Path(tempfile.mkdtemp(prefix="chaos-mixed-"))
        number += 1
        kills = min(PER_DIRECTORY, runs - score.runs)
        crash_again(directory, directory / "data", seed + number, kills, score, lambda: None)
        say(f"{score.runs:,} kills, {score.confirms:,} confirmed")
        if not score.faults:
            shutil.rmtree(directory)
    for fault in score.faults:
        say(fault)
    return [score.row("kill -9 under mixed work")]


def crash_again(
    directory: Path, data: Path, seed: int, crashes: int, score: Score, crash: Callable[[], None]
) -> None:
    """Crash so many times on one data directory, judging after each; the ledger lies apart.

    The seed decides on the settings too.  `crash` does what a crash is beside the kill.
    """
    with (
        Ledger(directory / "ledger") as ledger,
        BrokerProcess(data, settings=SETTINGS[seed % len(SETTINGS)]) as broker,
    ):
        scenario = Scenario(seed, broker, ledger)
        try:
            scenario.define()
            for _ in range(crashes):
                score.runs += 1
                scenario.load(scenario.random.randrange(1, CONFIRMS_MAX))
                crash()
                broker.start()
                if scenario.random.randrange(4) == 0:
                    broker.crash()
                score.boots += 1
                scenario.verify(crashed=True)
        except BrokerProcessError as error:
            score.faults.append(f"{directory}: no start: {error}")
        except BREACHES as error:
            found = _KIND.match(str(error)) if isinstance(error, Violation) else None
            kind = found[1] if found else "other"
            score.kinds[kind] = score.kinds.get(kind, 0) + 1
            score.faults.append(f"{directory}: {type(error).__name__}: {error}")
        score.confirms += scenario.book.confirms
        score.checkpoints += scenario.checkpoints
