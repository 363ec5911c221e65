"""Each batch is written to two destinations under one name, with events sampled, and kills in turn.

A `foreachBatch` saves its rows to a stream and to a queue under the same `writeId` and number, so a
kill may come between the two.  Both must hold every number once, in order; and no event of the
broker may tell of a staging queue.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from leveret.client.blocking import connect
from leveret.spark.columns.messages import STREAM_OFFSET
from soak import brokers, drivers
from soak.board import Row
from soak.streams import BATCHES, SECONDS
from soak.world import World

NAME: Final = "destinations"
RUNS: Final = 50

#: Every so many messages of a queue are followed.
SAMPLE_EVERY: Final = 4
EVENTS: Final = "amq.leveret.events"


def run(runs: int, seed: int, say: Callable[[str], None]) -> Iterator[Row]:
    """Kill driver or broker so many times; yield a row for each destination.  Raises: SoakError."""
    chance = random.Random(seed)
    settings = {"EVENT_SAMPLE_EVERY": str(SAMPLE_EVERY)}
    with World(["both"], settings=settings) as world:
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
                say(f"{world.kills:,} kills, {world.batches():,} batches")
        published = world.finish()
        say(f"{published:,} published, all written")
        yield _with_events(world.judge_out("two destinations: stream"), world)
        yield world.judge_out("two destinations: queue", "kept")


def _with_events(row: Row, world: World) -> Row:
    """Return the row; events of staging queues count as what nobody published."""
    with connect(world.broker.uri, recover=False) as connection, connection.channel() as channel:
        count = channel.queue_declare(EVENTS, passive=True).message_count
        channel.qos(1000)
        consumer = channel.consume(EVENTS, arguments={STREAM_OFFSET: "first"})
        staged = 0
        for number, message in enumerate(islice(consumer, count), 1):
            if number % 500 == 0:
                channel.ack(message.delivery_tag, multiple=True)
            staged += str(json.loads(message.body).get("queue", "")).startswith("leveret.staging.")
    note = f"{count:,} events, {staged:,} of staging queues; {row.note}"
    return replace(row, phantom=row.phantom + staged, note=note)
