"""Debian's RabbitMQ under the same load and the same kills, for comparison.

Its rows fail nothing: they show what the same script finds there, with classic and with quorum
queues, each on the defaults of the package.  It takes some seconds to start, so there are few runs.
A node that does not serve again after a kill is given up, counted, and followed by a new one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from rabbitmq import RabbitMQ, installed

from chaos import campaign
from chaos.board import Row, skipped

NAME: Final = "rabbitmq"
RUNS: Final = 20

CHAPTER: Final = 5
SECONDS: Final = (0.5, 2.0)

#: What a queue is declared with.
TYPES: Final[dict[str, dict[str, object]]] = {
    "classic": {},
    "quorum": {"x-queue-type": "quorum"},
}

#: Of the first messages after a start, how many are tried.
TRIES: Final = 5

#: When nothing came for so many seconds, a queue counts as empty.
QUIET: Final = 5.0

MISSING: Final = "rabbitmq-server is not installed"


def run(runs: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Kill so many times with each type of queue."""
    if not installed():
        return [skipped("RabbitMQ: kill -9 under load", MISSING)]
    rows = []
    for type_, arguments in TYPES.items():
        chance = random.Random(seed)
        score = campaign.Score()
        nodes = 0
        while score.runs < runs and nodes <= score.runs:
            nodes += 1
            with RabbitMQ() as broker:
                name = f"RabbitMQ {broker.version} {type_}: kill -9 under load"
                campaign.run(
                    broker, score, crashes=runs - score.runs, chapter=CHAPTER, seconds=SECONDS,
                    chance=chance, crash=lambda: None, arguments=arguments, tries=TRIES,
                    quiet=QUIET,
                )  # fmt: skip
        tell(score, say)
        say(f"{type_}: {score.runs:,} kills, {score.counts.confirmed:,} confirmed")
        rows.append(score.row(name, score.repeats(), compared=True))
    return rows


def tell(score: campaign.Score, say: Callable[[str], None]) -> None:
    """Say what was found."""
    for fault in score.counts.faults:
        say(fault)
