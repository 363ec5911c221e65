"""A queue as a source while driver and broker are killed in turn.

Nothing is lost, nothing is left unacked, and what is there twice is marked as redelivered.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from leveret.client.blocking import connect
from soak import brokers, drivers
from soak.board import Row
from soak.streams import BATCHES, SECONDS
from soak.world import World

NAME: Final = "queue"
RUNS: Final = 50

ACK_MODES: Final = ("afterBatch", "spool")


def run(runs: int, seed: int, say: Callable[[str], None]) -> Iterator[Row]:
    """Kill so many times in each mode.  Raises: SoakError."""
    for mode in ACK_MODES:
        chance = random.Random(seed)
        with World(["queue"], ack_mode=mode) as world:
            world.start_driver()
            while world.kills < runs:
                world.wait_for_batches(BATCHES)
                time.sleep(chance.uniform(*SECONDS))
                if chance.randrange(2):
                    brokers.kill(world, chance)
                else:
                    drivers.kill(world, chance)
                world.kills += 1
                if world.kills % 10 == 0:
                    say(f"{mode}: {world.kills:,} kills, {world.batches():,} batches")
            world.finish()
            row = world.judge_lake(f"queue, {mode}: driver or broker killed", "queue", marked=True)
            yield _with_left(row, world)


def _with_left(row: Row, world: World) -> Row:
    """Return the row; what is still in the queue, ready or unacked, counts as lost."""
    with connect(world.broker.uri, recover=False) as connection, connection.channel() as channel:
        # The driver's connection has ended: what it had unacked is ready again.
        left = channel.queue_declare("waiting", passive=True).message_count
    if not left:
        return row
    return replace(row, lost=row.lost + left, note=f"{left:,} left in the queue; {row.note}")
