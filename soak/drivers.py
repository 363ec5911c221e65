"""The driver is killed: alone, so that its workers are left without it, or with all it started."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final

from soak import streams
from soak.board import Row
from soak.world import World

NAME: Final = "driver"
RUNS: Final = 50


def run(runs: int, seed: int, say: Callable[[str], None]) -> Iterator[Row]:
    """Kill so many drivers."""
    return streams.run("driver", kill, runs, seed, say)


def kill(world: World, chance: random.Random) -> None:
    """Kill the driver and start another."""
    world.kill_driver(jvm_only=chance.random() < 0.5)
    world.start_driver()
