"""Hostile values for every writable definition: refused with nothing changed, or kept everywhere.

Requests over HTTP (the Unix socket and TCP), methods of AMQP, commands of `leveret ctl` and imports
of definitions are made from the tables that the broker itself has of them, with values that are
huge, negative, of wrong types, nested, empty or full of control characters.  What is refused must
leave definitions, messages and journal as they were, and is never a 500; what is taken must be the
same after a replay, a checkpoint, a stop, a kill, and an export into an empty broker.

Most cases go to a broker in memory, whose journal is looked at after each; the others to a process
that is killed.  A run is a batch of cases on a broker of its own.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from chaos.board import Row
from chaos.harmed import scratch
from support.hostile import hostile_commands, hostile_methods, hostile_requests
from support.hostile.hostile_node import Tally, run_commands, run_methods, run_requests
from support.hostile.hostile_process import run_process, sample
from support.hostile.hostile_values import spread

NAME: Final = "hostile"

#: Batches of all kinds; each has `BATCH` cases.
RUNS: Final = 160
BATCH: Final = 160

#: What part of the batches is of each kind; the rest are on processes.
_REQUESTS: Final = 0.44
_METHODS: Final = 0.36
_COMMANDS: Final = 0.05

#: Chosen cases have one hostile place, and this part of them several.
_MIXED: Final = 0.25


@dataclass(frozen=True)
class _Kind:
    """One kind of cases: its row's name, how many batches, how to choose and to try one."""

    name: str
    batches: int
    choose: Callable[[random.Random, int], Sequence[Any]]
    run: Callable[[Path, Tally, Sequence[Any]], None]


def run(runs: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Try so many batches, at least one of each kind."""
    return [_row(kind, random.Random(f"{seed} {kind.name}"), say) for kind in _kinds(runs)]


def _kinds(runs: int) -> list[_Kind]:
    requests, methods, commands = (
        max(1, round(runs * part)) for part in (_REQUESTS, _METHODS, _COMMANDS)
    )
    processes = max(1, runs - requests - methods - commands)
    return [
        _Kind("hostile: HTTP", requests, _requests, run_requests),
        _Kind("hostile: AMQP", methods, _methods, _run_methods),
        _Kind("hostile: ctl", commands, _commands, run_commands),
        _Kind("hostile: a process, killed", processes, _processes, run_process),
    ]


def _row(kind: _Kind, random_: random.Random, say: Callable[[str], None]) -> Row:
    """Try all batches of a kind."""
    tally = Tally()
    chosen = kind.choose(random_, kind.batches * BATCH)
    booted = 0
    for number in range(kind.batches):
        base = scratch()
        base.mkdir(parents=True, exist_ok=True)
        told = len(tally.faults)
        try:
            kind.run(base, tally, chosen[number :: kind.batches])
            booted += 1
        except Exception as bug:  # noqa: BLE001 (counted, and the next batch is tried)
            tally.fails(f"{kind.name}: {bug!r}")
        finally:
            shutil.rmtree(base, ignore_errors=True)
        for fault in tally.faults[told:]:
            say(fault[:1_000])
    say(
        f"{kind.name}: {tally.cases:,} cases, {len(tally.routes)} routes or methods, "
        f"{tally.differences} differences, {tally.failures} answers of 500"
    )
    note = (
        f"{tally.cases:,} cases: {tally.taken:,} kept over {tally.restarts:,} restarts and "
        f"{tally.checkpoints:,} checkpoints, {tally.refused:,} refused"
    )
    return Row(
        kind.name, kind.batches, booted, tally.cases, 0, 0, tally.differences, tally.failures,
        note=note,
    )  # fmt: skip


def _requests(random_: random.Random, count: int) -> list[tuple[hostile_requests.Request, bool]]:
    several = round(count * _MIXED)
    over_tcp = count // 8
    alone = count - several - over_tcp
    users = hostile_requests.cases(users=True).values()
    chosen = [(one, False) for one in spread(random_, hostile_requests.cases().values(), alone)]
    chosen += [(one, True) for one in spread(random_, users, over_tcp)]
    chosen += [(one, False) for one in hostile_requests.mixed(random_, count - len(chosen))]
    random_.shuffle(chosen)
    return chosen


def _methods(random_: random.Random, count: int) -> list[hostile_methods.Case]:
    alone = count - round(count * _MIXED)
    chosen = spread(random_, hostile_methods.cases().values(), alone)
    chosen += hostile_methods.mixed(random_, count - len(chosen))
    random_.shuffle(chosen)
    return chosen


def _run_methods(base: Path, tally: Tally, batch: Sequence[hostile_methods.Case]) -> None:
    run_methods(base, tally, [(name, make()) for name, make in batch])


def _commands(random_: random.Random, count: int) -> list[hostile_commands.Case]:
    groups: dict[str, list[hostile_commands.Case]] = {}
    for case in hostile_commands.cases():
        groups.setdefault(case[0], []).append(case)
    chosen = spread(random_, groups.values(), count - round(count * _MIXED))
    return chosen + hostile_commands.mixed(random_, count - len(chosen))


def _processes(random_: random.Random, count: int) -> list[Any]:
    return sample(random_, round(count / 2.25))
