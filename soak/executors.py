"""An executor is killed: a Python worker that reads or writes; Spark tries its task again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Final

from soak import streams
from soak.board import Row
from soak.world import World

NAME: Final = "executor"
RUNS: Final = 50

#: Between two looks for a worker: each batch has some for a moment.
LOOK_SECONDS: Final = 0.05


def run(runs: int, seed: int, say: Callable[[str], None]) -> Iterator[Row]:
    """Kill so many workers."""
    return streams.run("executor", kill, runs, seed, say)


def kill(world: World, chance: random.Random) -> None:
    """Kill a worker."""
    while not world.kill_worker(chance.randrange):
        time.sleep(LOOK_SECONDS)
