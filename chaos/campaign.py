"""A campaign: one data directory, a load on it, and a crash, again and again.

A campaign is cut into chapters.  In each a broker works and dies some times and what it left is
taken and judged at the end of the chapter; the directory stays the same.

Invariants: a crash is whatever the caller says (`Crash`); each crash is followed by one start on
what it left, and counted.  A broker that does not start ends its campaign.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rabbitmq import RabbitMQError

from chaos import load
from chaos.accounts import Accounts, Counts
from chaos.board import Row
from support.brokers.broker_process import BrokerProcessError
from support.wire import raw

#: What a broker that breaks the rules makes the clients raise.
BREACHES = (AssertionError, OSError, raw.Closed)


@dataclass
class Score:
    """The sums of several campaigns."""

    runs: int = 0
    boots: int = 0
    checkpoints: int = 0
    counts: Counts = field(default_factory=Counts)

    def row(self, name: str, note: str, *, compared: bool = False) -> Row:
        """Return the row of the scoreboard."""
        counts = self.counts
        # Leveret alone promises that an ack is durable with the confirm of what was sent behind it.
        violations = counts.violations - counts.returned * compared
        return Row(
            name, self.runs, self.boots, counts.confirmed, counts.lost, counts.phantom,
            counts.altered, violations, note=note, compared=compared,
        )  # fmt: skip

    def repeats(self) -> str:
        """Return words on what came again."""
        counts = self.counts
        kinds = {
            "repeats marked": counts.repeats,
            "repeats unmarked": counts.unmarked,
            "back after a durable ack": counts.returned,
            "out of order": counts.disorder,
            "torn": counts.torn,
            "times no service": counts.other,
        }
        return ", ".join(f"{count:,} {kind}" for kind, count in kinds.items() if count)


def run(
    broker: load.Broker,
    score: Score,
    *,
    crashes: int,
    chapter: int,
    seconds: tuple[float, float],
    chance: random.Random,
    crash: Callable[[], None],
    arguments: Mapping[str, object],
    tries: int = 1,
    quiet: float = 0.0,
    defined: Callable[[], None] = lambda: None,
) -> None:
    """Let a started broker work and crash so many times, judging after each chapter.

    `crash` is called when the broker was killed: it does the rest of the crash, before the start.
    `defined` is called when the queues are declared; `tries` and `quiet` are for `load`.
    """
    accounts = Accounts(load.QUEUES, score.counts)
    try:
        load.define(broker, arguments)
        defined()
        for number in range(1, crashes + 1):
            score.runs += 1
            load.work_and_die(broker, accounts, chance, chance.uniform(*seconds), tries)
            score.checkpoints += getattr(broker, "output", "").count("checkpoint")
            crash()
            broker.start()
            score.boots += 1
            if number % chapter == 0 or number == crashes:
                load.drain(broker, accounts, quiet)
    except (BrokerProcessError, RabbitMQError) as error:
        score.counts.fault(f"no start: {error}")
    except BREACHES as error:
        score.counts.other += 1
        score.counts.fault(f"{type(error).__name__}: {error}")
