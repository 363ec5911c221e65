"""The cost fuzzer: random requests to random topologies, each of which must cost a bounded amount.

A world (`cost_worlds`) is a broker in memory with much of a few things in it: bindings of all
types, deep queues, consumers, unacked deliveries, streams, delays, policies.  Random requests
(`cost_requests`) go to it, and each call into the core is judged (`cost_gauge`): by the steps that
the core counts, by the lines of its code that run, and by time.

Lines are counted in plain Python, so where the installed broker is compiled, another process runs
the same sources as they are; the compiled one is judged by steps and time.  A call that took too
long is too long only when it is so again in two more runs of the same seed, by the processor's
time.  That finds what no line shows: a sort, a join or a copy of much is one line.

What a world holds is compared with the account that the broker keeps of it (`cost_memory`).
"""

from __future__ import annotations

import gc
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from chaos import ROOT
from chaos.board import Row, skipped
from support.costs.cost_gauge import PLAIN, Excess, Gauge
from support.costs.cost_memory import unbooked
from support.costs.cost_requests import one_request
from support.costs.cost_worlds import World

NAME: Final = "costs"

#: Requests whose lines are counted; as many again are timed where the broker is compiled.
RUNS: Final = 100_000

#: Requests to one world, and how much is in it.
REQUESTS: Final = 500
SIZES: Final = (10, 200, 200, 1_000, 1_000, 4_000)

#: How often a call that took too long must be so again, by the processor's time: another program
#: that takes the caches can make one slow, but not the same one three times.
REPEATS: Final = 2

#: One world of so many is judged by its memory.
MEMORY_EACH: Final = 5

#: Findings that are told one by one; the rest is counted.
TOLD_MAX: Final = 40

_ENDED: Final = re.compile(r"^costs: (\d+) requests, (\d+) calls, (\d+) violations")


@dataclass
class Score:
    """What came of some worlds."""

    requests: int = 0
    calls: int = 0
    most: Counter[str] = field(default_factory=Counter)
    found: list[str] = field(default_factory=list)


def run(runs: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Make so many requests whose lines are counted, and as many that are timed."""
    if PLAIN:
        reason = "the broker is not compiled here"
        counted = fuzzed(runs, seed, say)
        return [_row("costs, counted", counted), skipped("costs, timed", reason)]
    timed = fuzzed(runs, seed, say)
    return [_counted_elsewhere(runs, seed, say), _row("costs, timed", timed)]


def fuzzed(runs: int, seed: int, say: Callable[[str], None]) -> Score:
    """Make so many requests to one world after the other, and judge them."""
    score = Score()
    while score.requests < runs:
        number = score.requests // REQUESTS
        chosen = random.Random(f"{seed} {number}")
        world_seed, size = chosen.randrange(1 << 30), chosen.choice(SIZES)
        count = min(REQUESTS, runs - score.requests)
        found = [str(one) for one in judged(world_seed, size, count, score)]
        if number % MEMORY_EACH == 0:
            found += unbooked(world_seed, min(size, 1_000))
        for text in found:
            if len(score.found) < TOLD_MAX:
                say(f"world {world_seed} of {size}: {text}")
            score.found.append(text)
        score.requests += count
        if number % 20 == 19:
            say(f"{score.requests:,} requests, {len(score.found):,} violations")
    return score


def judged(
    seed: int, size: int, count: int, score: Score, parts: Sequence[str] = ()
) -> list[Excess]:
    """Make requests to one world; return which of their calls cost too much."""
    gauge = tried(seed, size, count, parts)
    score.calls += gauge.calls
    for name, most in gauge.most.items():
        score.most[name] = max(score.most[name], most)
    found = [one for one in gauge.excesses if not one.timed]
    timed = [one for one in gauge.excesses if one.timed]
    for _ in range(REPEATS):
        if not timed:
            break
        known = {(one.number, one.call) for one in timed}
        again = tried(seed, size, max(one.number for one in timed), parts, exact=True)
        timed = [one for one in again.excesses if one.timed and (one.number, one.call) in known]
    return found + timed


def tried(
    seed: int, size: int, count: int, parts: Sequence[str] = (), *, exact: bool = False
) -> Gauge:
    """Make requests to one world; return what was measured."""
    gauge = Gauge()
    if exact:
        gauge.use_processor_time()
    # A collection of all that a world holds would be counted as the work of some request.
    gc.collect()
    gc.disable()
    try:
        world = World(seed, size, gauge)
        for part in parts or world.some_parts():
            world.build(part)
        for _ in range(count):
            one_request(world)
        world.close()
    finally:
        gc.enable()
    return gauge


def _counted_elsewhere(runs: int, seed: int, say: Callable[[str], None]) -> Row:
    """Have lines counted by a process that runs the sources as plain Python."""
    process = subprocess.Popen(
        [sys.executable, "-m", "chaos.costs", str(runs), str(seed)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    score = Score()
    for line in process.stdout:
        ended = _ENDED.match(line)
        if ended is not None:
            score.requests, score.calls = int(ended[1]), int(ended[2])
            score.found += [""] * int(ended[3])
        else:
            say(line.rstrip())
    if process.wait() != 0:
        score.found.append("the process that counts lines failed")
    return _row("costs, counted", score)


def _row(name: str, score: Score) -> Row:
    most = ", ".join(f"{name} {most:,}" for name, most in sorted(score.most.items()) if most)
    note = f"{score.calls:,} calls; at most: {most}" if most else f"{score.calls:,} calls"
    return Row(name, 1, 1, score.requests, 0, 0, 0, len(score.found), note=note)


def main() -> int:
    """Count the lines of as many requests as the first argument says; the second is the seed."""
    score = fuzzed(int(sys.argv[1]), int(sys.argv[2]), lambda text: print(text, flush=True))
    print(_row("costs, counted", score).note)
    print(f"costs: {score.requests} requests, {score.calls} calls, {len(score.found)} violations")
    return 0 if PLAIN else 1


if __name__ == "__main__":
    raise SystemExit(main())
