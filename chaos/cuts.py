"""The power goes while messages flow: nothing that was confirmed is lost.

The data lie on an ext4 of their own.  At a moment drawn from 0.05 to 0.8 s after the broker is
ready it is killed and the disk is taken as it was then, without what nobody had synced; a broker
starts on that, and so on, 20 times for each disk.  A fifth as often it goes under the mixed work of
`mixed`, with transactions, definitions and a stream.

Two things stand beside it: Leveret with `sync = never`, which must lose (or the test shows
nothing), and RabbitMQ with classic and with quorum queues.  For both the whole disk is synced once
when the queues are declared, so that only messages are at stake.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from rabbitmq import RabbitMQ, installed

from chaos import campaign, mixed, rabbit
from chaos.board import Row, skipped
from chaos.kills import SETTINGS
from chaos.mounts import Image, Unsupported
from support.brokers.broker_process import BrokerProcess

NAME: Final = "cuts"
RUNS: Final = 500

PER_DISK: Final = 20
CHAPTER: Final = 2
SECONDS: Final = (0.05, 0.8)

#: The share of the runs that mixed work gets beside them.
MIXED: Final = 0.2

#: The share of the runs that the rows to compare with get.
COMPARED: Final = 0.02

#: RabbitMQ's moments; it needs longer to get going.
RABBIT_SECONDS: Final = (0.5, 2.0)

TITLE: Final = "power cut under load"


def run(runs: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Cut the power so many times, and some times more for comparison."""
    try:
        with Image():
            pass
    except Unsupported as error:
        return [skipped(TITLE, str(error))]
    few = max(2, round(runs * COMPARED))
    rows = [
        leveret(TITLE, SETTINGS, runs, seed, say),
        mixed_work(max(1, round(runs * MIXED)), seed, say),
        control(few, seed, say),
    ]
    if not installed():
        return [*rows, skipped(f"RabbitMQ: {TITLE}", rabbit.MISSING)]
    return rows + [rabbitmq(type_, few, seed, say) for type_ in rabbit.TYPES]


def leveret(
    name: str,
    each: tuple[Mapping[str, str], ...],
    runs: int,
    seed: int,
    say: Callable[[str], None],
    *,
    synced: bool = False,
) -> Row:
    """Cut the power under Leveret; `each` are the settings that the disks take in turn.

    With `synced` the whole disk is synced when the queues are declared.
    """
    chance = random.Random(seed)
    score = campaign.Score()
    disks = 0
    while score.runs < runs and disks * PER_DISK <= score.runs:
        with (
            Image() as image,
            BrokerProcess(image.path / "data", settings=each[disks % len(each)]) as broker,
        ):
            campaign.run(
                broker, score, crashes=min(PER_DISK, runs - score.runs), chapter=CHAPTER,
                seconds=SECONDS, chance=chance, crash=image.cut, arguments={},
                defined=image.sync if synced else lambda: None,
            )  # fmt: skip
            broker.kill()
        disks += 1
        say(f"{name}: {score.runs:,} cuts, {score.counts.confirmed:,} confirmed")
    rabbit.tell(score, say)
    return score.row(name, f"{score.checkpoints:,} checkpoints; {score.repeats()}")


def mixed_work(runs: int, seed: int, say: Callable[[str], None]) -> Row:
    """Cut the power under transactions, definitions, a stream and all else of `mixed`."""
    score = mixed.Score()
    disks = 0
    while score.runs < runs and not score.faults:
        disks += 1
        crashes = min(mixed.PER_DIRECTORY, runs - score.runs)
        with Image() as image:
            place = image.directory, image.path / "data"
            mixed.crash_again(*place, seed + disks, crashes, score, image.cut)
        say(f"mixed work: {score.runs:,} cuts, {score.confirms:,} confirmed")
    for fault in score.faults:
        say(fault)
    return score.row("power cut under mixed work")


def control(runs: int, seed: int, say: Callable[[str], None]) -> Row:
    """Cut the power under a Leveret that does not sync: if nothing is lost, the test is blind."""
    name = f"sync = never: {TITLE}"
    row = leveret(name, ({"sync": "never"},), runs, seed, say, synced=True)
    if row.lost:
        return replace(row, compared=True, note=f"it must lose; {row.note}")
    return replace(row, violations=row.violations + 1, note="nothing lost without a sync")


def rabbitmq(type_: str, runs: int, seed: int, say: Callable[[str], None]) -> Row:
    """Cut the power under RabbitMQ."""
    chance = random.Random(seed)
    score = campaign.Score()
    disks = 0
    while score.runs < runs and disks <= score.runs:
        disks += 1
        with Image() as image, RabbitMQ(image.path) as broker:
            name = f"RabbitMQ {broker.version} {type_}: {TITLE}"
            campaign.run(
                broker, score, crashes=runs - score.runs, chapter=CHAPTER,
                seconds=RABBIT_SECONDS, chance=chance, crash=image.cut,
                arguments=rabbit.TYPES[type_], tries=rabbit.TRIES, quiet=rabbit.QUIET,
                defined=image.sync,
            )  # fmt: skip
        say(f"{name}: {score.runs:,} cuts, {score.counts.confirmed:,} confirmed")
    rabbit.tell(score, say)
    return score.row(name, score.repeats(), compared=True)
