"""The broker is killed and started again; publisher and queries go on by themselves."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Final

from soak import streams
from soak.board import Row
from soak.world import World

NAME: Final = "broker"
RUNS: Final = 50

#: How long nobody answers.
OUTAGE_SECONDS: Final = (0.0, 2.0)


def run(runs: int, seed: int, say: Callable[[str], None]) -> Iterator[Row]:
    """Kill the broker so many times."""
    return streams.run("broker", kill, runs, seed, say)


def kill(world: World, chance: random.Random) -> None:
    """Kill the broker and start it after a moment."""
    world.broker.kill()
    time.sleep(chance.uniform(*OUTAGE_SECONDS))
    world.broker.start()
