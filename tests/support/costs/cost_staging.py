"""Batches of a sink in a world: messages that tasks stage, and the commits that release them.

Invariant: `World.staged` names the staging queues that were declared, by their batch.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from leveret.broker.sinks.commit import COMMIT_KEY
from support.costs.cost_worlds import SINK, stage, staging_queue
from support.wire.raw_codec import method, publish

if TYPE_CHECKING:
    from support.costs.cost_gauge import QuickPeer
    from support.costs.cost_worlds import World

#: The handling of unroutable staged messages.
_UNROUTABLE: Final = ("fail", "drop", "dead-letter:amq.fanout", "dead-letter:none")


def _who(world: World) -> QuickPeer:
    """The client that stages: mostly the owner of the world's staged batches."""
    return world.draw.choices([world.peers[0], world.peers[2]], weights=[9, 1])[0]


def stage_request(world: World) -> None:
    """Declare staging queues, and stage messages to random exchanges in them."""
    draw = world.draw
    world.batch += draw.random() < 0.3
    batch = world.batch
    frames: list[bytes] = []
    for _ in range(draw.choice([1, 1, 30])):
        name, declares = staging_queue(world, batch)
        frames.append(declares)
        for _ in range(draw.choice([1, 30])):
            key = world.queue() if draw.random() < 0.5 else world.key()
            frames.append(stage(name, world.exchange(), key, bytes(draw.choice([0, 10, 1_000]))))
    _who(world).send(*frames)


def commit_request(world: World) -> None:
    """Commit a batch, or repeat a commit; sometimes with queues that do not belong to it."""
    draw = world.draw
    # A commit ends lower staged batches, which should happen rarely.
    batch = draw.choice([min(world.staged, default=1)] * 6 + [*world.staged, 1, world.batch])
    queues = list(world.staged.get(batch, []))
    if draw.random() < 0.1:
        queues = [*queues, *queues[:1], world.queue()]
    command: dict[str, Any] = {
        "sink": SINK, "batch": batch, "queues": queues, "unroutable": draw.choice(_UNROUTABLE),
        "lower": draw.choice(["drop", "fail"]),
    }  # fmt: skip
    body = json.dumps(command).encode()
    frames = [publish(2, "", COMMIT_KEY, body, mandatory=True, delivery_mode=2)]
    if draw.random() < 0.2:
        # Other requests continue in the meantime, and may purge or delete the examined queues.
        name = draw.choice([*queues, "none"])
        frames.append(method(1, draw.choice(["queue.purge", "queue.delete"]), queue=name))
    _who(world).send(*frames * draw.choice([1, 1, 5]))
    if draw.random() < 0.7:
        world.staged.pop(batch, None)
