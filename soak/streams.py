"""Exactly once: a stream archived and written through the sink while somebody is killed.

The lake and the stream behind the sink must both hold every number that was published, once, in
order: the lake by offsets, the sink's stream by the task that wrote it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Final

from soak.board import Row
from soak.world import World

#: How the sink keeps a row from being written twice.
DEDUPS: Final = ("staged", "rows")

#: A kill comes so long after a batch was committed: somewhere in the next.
SECONDS: Final = (0.0, 1.0)

#: Between two kills each query has committed at least so many batches.
BATCHES: Final = 1

Kill = Callable[[World, random.Random], None]


def run(who: str, kill: Kill, runs: int, seed: int, say: Callable[[str], None]) -> Iterator[Row]:
    """Kill so many times; yield a row for the archive and one for the sink.  Raises: SoakError."""
    for dedup in DEDUPS:
        chance = random.Random(seed)
        with World(["archive", "sink"], dedup=dedup) as world:
            world.start_driver()
            while world.kills < runs:
                world.wait_for_batches(BATCHES)
                time.sleep(chance.uniform(*SECONDS))
                kill(world, chance)
                world.kills += 1
                if world.kills % 10 == 0:
                    say(f"{world.kills:,} kills, {world.batches():,} batches")
            published = world.finish()
            say(f"{published:,} published, all read")
            yield world.judge_lake(f"{who} killed: archive", "archive")
            yield world.judge_out(f"{who} killed: sink ({dedup})")
